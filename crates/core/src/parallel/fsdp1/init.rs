//! The flat parameters are made, layer by layer and then the model's own: its parameters come to the device, lie end to end, and a
//! rank's shard of them is copied (_init_utils.py, `_init_param_handle_from_module`).

use std::rc::Rc;

use crate::building::{Placed, PlacedKind};
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

/// The flat parameters, the root's first, and the buffers.
pub(super) fn flatten_units(shared: &Rc<Shared>, mut placed: Vec<Placed>) -> (Vec<Rc<Handle>>, Vec<Tensor>) {
    let root_only = shared.options.shard_root_only;
    let unit_of = |placed: &Placed| placed.unit.filter(|_| !root_only);
    let mut modules: Vec<Option<u32>> = placed.iter().map(unit_of).collect();
    modules.retain(Option::is_some);
    modules.dedup();
    modules.push(None);
    let mut buffers = Vec::new();
    let flatten = |module: Option<u32>| {
        let unit: Vec<Placed> = placed.extract_if(.., |placed| unit_of(placed) == module).collect();
        let (unit, of_unit): (Vec<Placed>, Vec<Placed>) =
            unit.into_iter().partition(|placed| matches!(placed.kind, PlacedKind::Parameter { .. }));
        let of_unit: Vec<Placed> =
            of_unit.into_iter().filter(|placed| matches!(placed.kind, PlacedKind::Buffer { .. })).collect();
        let flat = flatten_unit(shared, module, unit, &of_unit);
        buffers.extend(of_unit.into_iter().map(|placed| placed.tensor));
        flat
    };
    let mut flattened: Vec<Flattened> = modules.into_iter().filter_map(flatten).collect();
    flattened.rotate_right(1);
    let handles = flattened.into_iter().map(|flat| Rc::new(flat.into_handle(shared))).collect();
    (handles, buffers)
}

/// What a module's parameters have become.
struct Flattened {
    module: Option<u32>,
    pieces: Vec<Piece>,
    extent: Extent,
    local_shard: Tensor,
    trains: bool,
}

impl Flattened {
    fn into_handle(self, shared: &Rc<Shared>) -> Handle {
        let Self { module, pieces, extent, local_shard, trains } = self;
        let loaded = local_shard;
        let local_shard = if shared.upcasts && trains { upcast_shard(shared, &loaded) } else { loaded.clone() };
        let cuts = shared.options.use_orig_params;
        let pieces = if cuts { cut_parts(shared, pieces, extent.chunk, &local_shard) } else { pieces };
        let lie_in = (cuts && !local_shard.is_same(&loaded)).then_some(loaded);
        Handle::new(shared, module, (pieces, extent), (local_shard, lie_in, trains))
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
fn flatten_unit(shared: &Rc<Shared>, module: Option<u32>, unit: Vec<Placed>, buffers: &[Placed]) -> Option<Flattened> {
    let context = &shared.context;
    let _module = context.enter_module(module.unwrap_or(0));
    let moved = move_to_device(shared, &unit, buffers);
    if shared.options.sync_module_states {
        sync_module_states(&unit, &moved, buffers);
    }
    let dtype = unit.iter().find_map(|placed| match placed.kind {
        PlacedKind::Parameter { dtype, .. } => Some(dtype),
        _ => None,
    })?;
    let trains = unit.iter().any(|placed| placed.tensor.requires_grad());
    let pieces = align(shared, dtype, unit.iter().map(|placed| placed.tensor.clone()).collect());
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
    drop((moved, unit));
    let local_shard = if shared.options.cpu_offload { Handle::shard_on_host(&local_shard) } else { local_shard };
    Some(Flattened { module, pieces, extent: Extent { numel, chunk }, local_shard, trains })
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
