//! The flat parameters are made, layer by layer and then the model's own, an adapter's before its layer's: its parameters come to the device, lie end to end, and a
//! rank's shard of them is copied (_init_utils.py, `_init_param_handle_from_module`).

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::building::{ModuleKey, Part, Placed, PlacedKind};
use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::{UNTOLD, full};
use crate::tensor::{Layout, Shape, Tensor};
use crate::trace::Category;

use super::super::broadcast::broadcast_coalesced;
use super::Shared;
use super::handle::{Extent, Handle, Piece};

/// Addresses of parameters are multiples of so many bytes where the optimizer steps the model's own.
const ALIGNMENT: u64 = 16;

/// What is wrapped: a layer, an adapter's module, or the model, which is `None`. In their order a layer comes before its
/// adapters, as `model.modules()` has it.
pub(super) type Unit = Option<ModuleKey>;

fn unit_of(placed: &Placed) -> Unit {
    match placed.module {
        (_, Part::Itself) => placed.unit.map(|layer| (layer, Part::Itself)),
        adapter => Some(adapter),
    }
}

/// Units in the order that they are wrapped: adapters before their layer, the model last.
fn wrapped_units(placed: &[Placed]) -> Vec<Unit> {
    let mut units = Vec::new();
    for of_layer in placed.chunk_by(|one, next| one.unit == next.unit) {
        let is_adapter = |placed: &&Placed| placed.module.1 != Part::Itself;
        units.extend(of_layer.iter().filter(is_adapter).map(unit_of));
        units.extend(of_layer.iter().find(|placed| !is_adapter(placed)).map(unit_of).filter(Option::is_some));
    }
    units.push(None);
    units
}

/// What is adapted lies a module deeper: it is the `base_layer` of peft's.
fn deepen_adapted(placed: &mut [Placed]) {
    let is_adapter = |placed: &&Placed| placed.module.1 != Part::Itself;
    let adapted: BTreeSet<u32> = placed.iter().filter(is_adapter).map(|placed| placed.module.0).collect();
    placed.iter_mut().filter(|placed| adapted.contains(&placed.module.0)).for_each(|placed| placed.depth += 1);
}

/// The flat parameters as `model.modules()` has their units, and the buffers.
pub(super) fn flatten_units(shared: &Rc<Shared>, mut placed: Vec<Placed>) -> (Vec<Rc<Handle>>, Vec<Tensor>) {
    if shared.options.shard_root_only {
        placed.iter_mut().for_each(|placed| placed.unit = None);
    }
    deepen_adapted(&mut placed);
    let mut buffers = Vec::new();
    let units = wrapped_units(&placed);
    let flatten = |unit: Unit| {
        let of_unit: Vec<Placed> = placed.extract_if(.., |placed| unit_of(placed) == unit).collect();
        let (parameters, others): (Vec<Placed>, Vec<Placed>) =
            of_unit.into_iter().partition(|placed| matches!(placed.kind, PlacedKind::Parameter { .. }));
        let of_unit: Vec<Placed> =
            others.into_iter().filter(|placed| matches!(placed.kind, PlacedKind::Buffer { .. })).collect();
        let flat = flatten_unit(shared, unit, parameters, &of_unit);
        buffers.extend(of_unit.into_iter().map(|placed| placed.tensor));
        flat
    };
    let mut flattened: Vec<Flattened> = units.into_iter().filter_map(flatten).collect();
    flattened.sort_by_key(|flat| flat.unit);
    let handles = flattened.into_iter().map(|flat| Rc::new(flat.into_handle(shared))).collect();
    (handles, buffers)
}

/// What a module's parameters have become.
struct Flattened {
    unit: Unit,
    pieces: Vec<Piece>,
    extent: Extent,
    local_shard: Tensor,
    trains: bool,
}

impl Flattened {
    fn into_handle(self, shared: &Rc<Shared>) -> Handle {
        let Self { unit, pieces, extent, local_shard, trains } = self;
        let loaded = local_shard;
        let local_shard = if shared.upcasts && trains { upcast_shard(shared, &loaded) } else { loaded.clone() };
        let cuts = shared.options.use_orig_params;
        let pieces = if cuts { cut_parts(shared, pieces, extent.chunk, &local_shard) } else { pieces };
        let lie_in = (cuts && !local_shard.is_same(&loaded)).then_some(loaded);
        Handle::new(shared, unit, (pieces, extent), (local_shard, lie_in, trains))
    }
}

/// accelerate keeps trained shards in fp32 where mixed precision is on (accelerate 1.15, `prepare_model`).
fn upcast_shard(shared: &Shared, shard: &Tensor) -> Tensor {
    if shard.dtype() == DType::Float32 {
        return shard.clone();
    }
    if shared.options.cpu_offload {
        let held = (HostKind::Pageable, Category::Parameter);
        return Tensor::on_host(&shared.context, *shard.sizes(), DType::Float32, held);
    }
    let _category = shared.context.enter_category(Category::Parameter);
    shard.to(DType::Float32)
}

/// `_init_param_handle_from_params`, then `FlatParamHandle.shard`.
fn flatten_unit(shared: &Rc<Shared>, unit: Unit, parameters: Vec<Placed>, buffers: &[Placed]) -> Option<Flattened> {
    let context = &shared.context;
    let _module = context.enter_module(unit.map_or(0, |(module, _)| module));
    let moved = move_to_device(shared, &parameters, buffers);
    if shared.options.sync_module_states {
        sync_module_states(&parameters, &moved, buffers);
    }
    let dtype = parameters.iter().find_map(|placed| match placed.kind {
        PlacedKind::Parameter { dtype, .. } => Some(dtype),
        _ => None,
    })?;
    let trains = parameters.iter().any(|placed| placed.tensor.requires_grad());
    let pieces = align(shared, dtype, parameters.iter().map(|placed| placed.tensor.clone()).collect());
    let numel: u64 = pieces.iter().map(Piece::numel).sum();
    let chunk = numel.div_ceil(shared.world_size);
    let paddings = make_paddings(shared, &pieces, dtype);
    let local_shard = {
        let _category = context.enter_category(Category::Parameter);
        let _flat = full(context, "cat.default", &[numel], dtype);
        drop(paddings);
        let local = numel.saturating_sub(chunk.saturating_mul(shared.rank)).min(chunk);
        let shard = full(context, "clone.default", &[local], dtype);
        if local < chunk { full(context, "constant_pad_nd.default", &[chunk], dtype) } else { shard }
    };
    drop((moved, parameters));
    let local_shard = if shared.options.cpu_offload { Handle::shard_on_host(&local_shard) } else { local_shard };
    Some(Flattened { unit, pieces, extent: Extent { numel, chunk }, local_shard, trains })
}

/// `_sync_module_params_and_buffers`: buffers, then parameters.
fn sync_module_states(unit: &[Placed], moved: &[Tensor], buffers: &[Placed]) {
    let as_loaded = |placed: &Placed| match placed.kind {
        PlacedKind::Buffer { dtype } => Some(Tensor::nowhere(placed.tensor.context(), *placed.tensor.sizes(), dtype)),
        _ => None,
    };
    let loaded = unit.iter().filter_map(|placed| match &placed.kind {
        PlacedKind::Parameter { original: Some(original), .. } => Some(original),
        _ => None,
    });
    let parameters = loaded.chain(moved).cloned();
    let states: Vec<Tensor> = buffers.iter().filter_map(as_loaded).chain(parameters).collect();
    broadcast_coalesced(&states);
}

/// `_move_module_to_device`: parameters, those of modules further up first, then buffers.
fn move_to_device(shared: &Shared, unit: &[Placed], buffers: &[Placed]) -> Vec<Tensor> {
    let context = &shared.context;
    let mut by_depth: Vec<&Placed> = unit.iter().chain(buffers).collect();
    by_depth.sort_by_key(|placed| (matches!(placed.kind, PlacedKind::Buffer { .. }), placed.depth));
    let moved = |placed: &&Placed| match &placed.kind {
        PlacedKind::Parameter { dtype, original: None } => {
            let _category = context.enter_category(Category::Parameter);
            Some(full(context, "_to_copy.default", placed.tensor.sizes(), *dtype))
        }
        PlacedKind::Buffer { dtype } => {
            let _category = context.enter_category(Category::Buffer);
            placed.tensor.alloc_storage("_to_copy.default", placed.tensor.numel().saturating_mul(dtype.size()));
            None
        }
        _ => None,
    };
    by_depth.iter().filter_map(moved).collect()
}

/// `_init_flat_param_and_metadata`: parameters with what aligns them, and what makes them divide by the ranks.
fn align(shared: &Shared, dtype: DType, parameters: Vec<Tensor>) -> Vec<Piece> {
    let aligned = match shared.options.use_orig_params {
        true => ALIGNMENT / shared.options.param_dtype.unwrap_or(dtype).size(),
        false => 1,
    };
    let mut pieces = Vec::new();
    let mut total = 0_u64;
    let pad = |pieces: &mut Vec<Piece>, total: &mut u64, to: u64| {
        let missing = total.next_multiple_of(to) - *total;
        if missing > 0 {
            pieces.push(Piece::Padding(missing));
            *total += missing;
        }
    };
    for tensor in parameters {
        pad(&mut pieces, &mut total, aligned);
        total += tensor.numel();
        pieces.push(Piece::Parameter { tensor, part: None });
    }
    if shared.options.use_orig_params {
        pad(&mut pieces, &mut total, shared.world_size);
    }
    pieces
}

/// `_construct_padding_tensor`: ones, times the number that they are filled with.
fn make_paddings(shared: &Shared, pieces: &[Piece], dtype: DType) -> Vec<Tensor> {
    let context = &shared.context;
    let padding = |piece: &Piece| match piece {
        Piece::Padding(numel) => {
            let ones = full(context, "ones.default", &[*numel], dtype);
            Some(ones.mul_scalar(UNTOLD))
        }
        Piece::Parameter { .. } => None,
    };
    pieces.iter().filter_map(padding).collect()
}

/// `_use_sharded_views`: the part of each parameter in this rank's shard is what the optimizer steps.
fn cut_parts(shared: &Shared, pieces: Vec<Piece>, chunk: u64, local_shard: &Tensor) -> Vec<Piece> {
    let begin = chunk.saturating_mul(shared.rank);
    let end = begin.saturating_add(chunk);
    let mut at = 0_u64;
    let cut = |piece: Piece| {
        let from = at;
        at = at.saturating_add(piece.numel());
        match piece {
            Piece::Parameter { tensor, .. } => {
                let numel = at.min(end).saturating_sub(from.max(begin));
                let shard = || local_shard.alias(Layout::contiguous(Shape::new(&[numel]))).into_parameter();
                let part = (numel > 0 && tensor.requires_grad()).then(shard);
                Piece::Parameter { tensor, part }
            }
            padding => padding,
        }
    };
    pieces.into_iter().map(cut).collect()
}
