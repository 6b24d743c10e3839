//! A model of which a rank holds but a shard: where its tensors lie, and the dtypes of what is gathered.

use crate::dtype::DType;
use crate::job::ShardInit;
use crate::tensor::{Shape, Tensor};
use crate::trace::{AllocationId, Category};

use super::super::module::{ModuleKey, Part};
use super::Builder;

/// How parameters come to the device where a rank holds but a shard of each: the model computes with tensors that have
/// no memory of their own until the shards are gathered.
#[derive(Clone, Copy)]
pub(crate) struct Sharding {
    /// The dtype of gathered parameters; `None` is each one's own.
    pub param_dtype: Option<DType>,
    /// What buffers are cast to before the first pass; `None` leaves each its own.
    pub buffer_dtype: Option<DType>,
    /// When parameters and buffers get memory.
    pub init: ShardInit,
}

/// A tensor of a sharded model, in the order that `Module._apply` meets it.
pub(crate) struct Placed {
    /// What the model computes with.
    pub tensor: Tensor,
    /// The element of the model's list of layers that it belongs to, as a place in the trace.
    pub unit: Option<u32>,
    /// Its module: the adapted layer's, where it belongs to an adapter or to what that adapts.
    pub module: ModuleKey,
    /// How far its module is below the model.
    pub depth: usize,
    pub kind: PlacedKind,
}

/// What a tensor of a sharded model is.
pub(crate) enum PlacedKind {
    Parameter {
        /// The dtype of its shards.
        dtype: DType,
        /// Where it was loaded in full, what was loaded.
        original: Option<Tensor>,
    },
    Buffer {
        /// The dtype that it is loaded in.
        dtype: DType,
    },
    /// A parameter that was met before, in another module.
    Tied,
}

impl Builder {
    /// The same model, of which a rank holds a shard.
    pub(crate) fn sharded(self, sharding: Option<Sharding>) -> Self {
        self.set(|settings| settings.sharding = sharding)
    }

    /// The same model, whose adapters the wrapper leaves alone (`ignored_modules`).
    pub(crate) fn replicating_adapters(self, replicates_adapters: bool) -> Self {
        self.set(|settings| settings.replicates_adapters = replicates_adapters)
    }

    /// A weight without memory, loaded in full beside it where the shards are cut from that.
    pub(super) fn sharded_parameter(
        &self,
        (part, sizes): (Part, &[u64]),
        dtype: DType,
        sharding: Sharding,
        list: impl FnOnce(Tensor) -> Tensor,
    ) -> Tensor {
        let full = sharding.init == ShardInit::Full;
        let original = full.then(|| self.load(sizes, dtype, Category::Parameter));
        let gathered = sharding.param_dtype.unwrap_or(dtype);
        let parameter = list(Tensor::nowhere(&self.context, Shape::new(sizes), gathered));
        self.note_part(part, &parameter, PlacedKind::Parameter { dtype, original });
        parameter
    }

    /// A buffer, which no rank holds a part of.
    pub(super) fn sharded_buffer(&self, sizes: &[u64], dtype: DType, sharding: Sharding) -> Tensor {
        let cast = sharding.buffer_dtype.filter(|_| dtype.is_floating_point());
        let buffer = Tensor::nowhere(&self.context, Shape::new(sizes), cast.unwrap_or(dtype));
        if sharding.init == ShardInit::Full {
            self.begin_buffer();
            if !self.materialized {
                let _module = self.context.enter_module(self.module_id());
                let _category = self.context.enter_category(Category::Buffer);
                buffer.alloc_storage("_to_copy.default", buffer.numel().saturating_mul(dtype.size()));
            }
            self.built.borrow_mut().buffers.push(buffer.clone());
        }
        self.note(&buffer, PlacedKind::Buffer { dtype });
        buffer
    }

    /// The dtype that a buffer is loaded in.
    pub(super) fn loaded_dtype(&self, buffer: &Tensor) -> DType {
        let of_buffer = |placed: &Placed| match placed.kind {
            PlacedKind::Buffer { dtype } if placed.tensor.is_same(buffer) => Some(dtype),
            _ => None,
        };
        self.built.borrow().placed.iter().find_map(of_buffer).unwrap_or(buffer.dtype())
    }

    /// What stands for a packed weight of so many elements, which was loaded in full, where the model is sharded: FSDP shards what
    /// it is stored in, a dtype that floats.
    pub(in crate::building) fn shard_packed(&self, packed: Tensor, elements: u64) -> Tensor {
        if self.sharding.is_none() {
            return packed;
        }
        let sizes = Shape::new(&[elements, 1]);
        let parameter = Tensor::nowhere(&self.context, sizes, self.dtype);
        self.note(&parameter, PlacedKind::Parameter { dtype: self.dtype, original: Some(packed) });
        parameter
    }

    /// The memory of a parameter, or of what was loaded in its place where the model is sharded.
    pub(super) fn loaded_allocation(&self, parameter: &Tensor) -> Option<AllocationId> {
        let built = self.built.borrow();
        let original = |placed: &Placed| match &placed.kind {
            PlacedKind::Parameter { original, .. } if placed.tensor.is_same(parameter) => original.clone(),
            _ => None,
        };
        parameter.allocation().or_else(|| built.placed.iter().find_map(original)?.allocation())
    }

    pub(super) fn note(&self, tensor: &Tensor, kind: PlacedKind) {
        self.note_part(Part::Itself, tensor, kind);
    }

    fn note_part(&self, part: Part, tensor: &Tensor, kind: PlacedKind) {
        let depth = self.path.split('.').count();
        let module = (self.module_id(), part);
        let placed = Placed { tensor: tensor.clone(), unit: self.unit, module, depth, kind };
        self.built.borrow_mut().placed.push(placed);
    }

    /// The tensors of a sharded model; they are handed over.
    pub(crate) fn take_placed(&self) -> Vec<Placed> {
        std::mem::take(&mut self.built.borrow_mut().placed)
    }
}
