//! The shards are made: from a model that was loaded in full, or on a model without memory, which gets it after
//! (`fully_shard`, then `to_empty`).

use std::rc::Rc;

use crate::building::{Placed, PlacedKind};
use crate::dtype::DType;
use crate::job::{Fsdp2, ShardInit};
use crate::op::full;
use crate::tensor::{Context, Shape, Tensor};
use crate::trace::Category;

use super::Mesh;
use super::param::{FsdpParam, ShardSizes};

/// What `fully_shard` was called on.
pub(super) struct Unit {
    /// The layer as a place in the trace; `None` is the model.
    pub module: Option<u32>,
    pub params: Vec<FsdpParam>,
}

impl Unit {
    /// The unsharded and the sharded parameters.
    pub(super) fn parameters(&self) -> impl Iterator<Item = (Tensor, Tensor)> {
        self.params.iter().map(|param| (param.unsharded.clone(), param.sharded.clone()))
    }
}

struct Shards<'a> {
    context: &'a Rc<Context>,
    policy: &'a Fsdp2,
    mesh: Mesh,
    /// One group for the whole model.
    root_only: bool,
}

/// The first two fake tensors of a process on a CUDA device, by which a DTensor's shape is found, make sure that it is initialised
/// (torch/_subclasses/fake_tensor.py, `init_gpu_context`).
fn ask_devices_of_fake_tensors(context: &Rc<Context>) {
    for _ in 0..2 {
        drop(Tensor::scratch(context, "empty.memory_format", 4));
    }
}

/// Shards a model, the process's first or another: its layers in order, then what is left of it.
pub(super) fn shard_units(
    policy: &Fsdp2,
    (context, is_first): (&Rc<Context>, bool),
    mesh: Mesh,
    placed: Vec<Placed>,
) -> Vec<Unit> {
    if is_first && policy.init == ShardInit::Meta {
        ask_devices_of_fake_tensors(context);
    }
    let shards = Shards { context, policy, mesh, root_only: policy.shard_root_only };
    match policy.init {
        ShardInit::Full => shards.shard_loaded(placed),
        ShardInit::Meta => shards.materialize_units(placed),
    }
}

impl Shards<'_> {
    fn unit_of(&self, placed: &Placed) -> Option<u32> {
        placed.unit.filter(|_| !self.root_only)
    }

    /// The layers, then the root.
    fn unit_modules(&self, placed: &[Placed]) -> Vec<Option<u32>> {
        let mut modules: Vec<Option<u32>> = placed.iter().map(|placed| self.unit_of(placed)).collect();
        modules.retain(Option::is_some);
        modules.dedup();
        modules.push(None);
        modules
    }

    /// `fully_shard` unit by unit: a unit's full parameters go when all its shards are there.
    fn shard_loaded(&self, mut placed: Vec<Placed>) -> Vec<Unit> {
        let modules = self.unit_modules(&placed);
        let unit = |module: Option<u32>| {
            let of_unit = placed.extract_if(.., |placed| self.unit_of(placed) == module);
            let of_unit: Vec<Placed> = of_unit.collect();
            let shard = |placed: &Placed| {
                let PlacedKind::Parameter { dtype, .. } = placed.kind else { return None };
                let sizes = self.shard_sizes(&placed.tensor);
                let mut data = self.device_parameter("new_zeros.default", sizes.padded, dtype);
                if let Some(kind) = self.policy.cpu_offload {
                    data = data.to_host((kind, Category::Parameter));
                }
                Some(self.fsdp_param(&placed.tensor, data, sizes))
            };
            Unit { module, params: of_unit.iter().filter_map(shard).collect() }
        };
        modules.into_iter().map(unit).collect()
    }

    /// `to_empty`: memory for every shard and buffer in the order of `_apply`, for a tied parameter once more.
    fn materialize_units(&self, placed: Vec<Placed>) -> Vec<Unit> {
        let mut units: Vec<(Option<u32>, Vec<Local>)> =
            self.unit_modules(&placed).into_iter().map(|module| (module, Vec::new())).collect();
        let mut current = None;
        for placed in placed {
            let module = self.unit_of(&placed);
            // A layer's shards are padded when `_apply` leaves it, the root's at the end.
            if current != module && current.is_some() {
                self.pad_units(&mut units, current);
            }
            current = module;
            let Some((_, locals)) = units.iter_mut().find(|(of, _)| *of == module) else { continue };
            match placed.kind {
                PlacedKind::Parameter { dtype, .. } => locals.push(self.local_shard(placed.tensor, dtype)),
                PlacedKind::Buffer { .. } => self.materialize_buffer(&placed.tensor),
                PlacedKind::Tied => locals.iter_mut().for_each(|local| self.replace_tied(local, &placed.tensor)),
            }
        }
        self.pad_units(&mut units, None);
        let unit = |(module, locals): (Option<u32>, Vec<Local>)| {
            let params = locals.into_iter().map(|local| self.fsdp_param(&local.unsharded, local.data, local.sizes));
            Unit { module, params: params.collect() }
        };
        units.into_iter().map(unit).collect()
    }

    fn materialize_buffer(&self, buffer: &Tensor) {
        let _category = self.context.enter_category(Category::Buffer);
        buffer.materialize("empty_permuted.default");
    }

    fn local_shard(&self, unsharded: Tensor, dtype: DType) -> Local {
        let sizes = self.shard_sizes(&unsharded);
        let data = self.empty_parameter("empty_permuted.default", sizes.local, dtype);
        Local { unsharded, data, sizes }
    }

    fn replace_tied(&self, local: &mut Local, parameter: &Tensor) {
        // On the host it stays what it is: pages are pinned later.
        if local.unsharded.is_same(parameter) && self.policy.cpu_offload.is_none() {
            local.data = self.empty_parameter("empty_permuted.default", local.sizes.local, local.data.dtype());
        }
    }

    /// `reset_sharded_param` of a unit that has its memory: shards that fall short are copied to padded ones.
    fn pad_units(&self, units: &mut [(Option<u32>, Vec<Local>)], module: Option<u32>) {
        let Some((_, locals)) = units.iter_mut().find(|(of, _)| *of == module) else { return };
        for local in locals.iter_mut().filter(|local| local.data.sizes() != &local.sizes.padded) {
            local.data = self.empty_parameter("new_zeros.default", local.sizes.padded, local.data.dtype());
        }
    }

    /// A shard that gets its memory where it stays.
    fn empty_parameter(&self, op: &'static str, sizes: Shape, dtype: DType) -> Tensor {
        match self.policy.cpu_offload {
            Some(kind) => Tensor::on_host(self.context, sizes, dtype, (kind, Category::Parameter)),
            None => self.device_parameter(op, sizes, dtype),
        }
    }

    fn device_parameter(&self, op: &'static str, sizes: Shape, dtype: DType) -> Tensor {
        let _category = self.context.enter_category(Category::Parameter);
        full(self.context, op, &sizes, dtype)
    }

    fn shard_sizes(&self, unsharded: &Tensor) -> ShardSizes {
        ShardSizes::new(unsharded.sizes(), self.mesh)
    }

    fn fsdp_param(&self, unsharded: &Tensor, data: Tensor, sizes: ShardSizes) -> FsdpParam {
        FsdpParam::new(unsharded.clone(), data, sizes, self.mesh, self.policy)
    }
}

/// A parameter while its shard gets memory.
struct Local {
    unsharded: Tensor,
    data: Tensor,
    sizes: ShardSizes,
}
