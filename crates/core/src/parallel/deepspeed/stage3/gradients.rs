//! Gradients on their way to a rank's parts (deepspeed/runtime/zero/stage3.py): they wait in a bucket, which is reduced when it is
//! full and when backward ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::full;
use crate::tensor::{Context, Layout, Scope, Shape, Tensor};
use crate::trace::Category;

use super::coordinator::Coordinator;
use super::offload::Offload;
use super::param::Param;

/// `reduce_and_partition_stream`, where communication overlaps.
const REDUCE_STREAM: u8 = 2;

/// What hooks of parameters and the step share.
pub(super) struct Gradients {
    pub context: Rc<Context>,
    pub trained: Vec<Rc<Param>>,
    pub dtype: DType,
    pub world_size: u64,
    pub rank: u64,
    pub bucket_size: u64,
    pub overlaps: bool,
    /// `offload_optimizer`: gradients are summed up on the host, and it steps there.
    pub offload: Option<Offload>,
    /// The bucket's memory.
    pub buffer: Tensor,
    /// `grad_partitions_flat_buffer`
    pub flat: Tensor,
    pub coordinator: Rc<Coordinator>,
    waiting: RefCell<Vec<usize>>,
    elements: Cell<u64>,
}

/// What is known before the first pass.
pub(super) struct Setup {
    pub trained: Vec<Rc<Param>>,
    pub dtype: DType,
    pub world_size: u64,
    pub rank: u64,
    pub bucket_size: u64,
    pub overlaps: bool,
    pub offload: Option<HostKind>,
}

impl Gradients {
    /// The two buffers, then the rest.
    pub(super) fn new(context: &Rc<Context>, setup: Setup, coordinator: &Rc<Coordinator>) -> Self {
        let Setup { trained, dtype, world_size, rank, bucket_size, overlaps, offload } = setup;
        let buffer = {
            let _category = context.enter_category(Category::Communication);
            full(context, "empty.memory_format", &[bucket_size], dtype)
        };
        let elements = trained.iter().map(|param| param.partition).sum();
        let flat = match offload {
            Some(kind) => Tensor::on_host(context, Shape::new(&[elements]), dtype, (kind, Category::Gradient)),
            None => {
                let _category = context.enter_category(Category::Gradient);
                full(context, "zeros.default", &[elements], dtype)
            }
        };
        Self {
            context: Rc::clone(context),
            trained,
            dtype,
            world_size,
            rank,
            bucket_size,
            overlaps,
            offload: offload.map(|_| Offload::default()),
            buffer,
            flat,
            coordinator: Rc::clone(coordinator),
            waiting: RefCell::default(),
            elements: Cell::new(0),
        }
    }

    /// `reduce_partition_and_remove_grads`
    pub(super) fn take_gradient(&self, at: usize) {
        let Some(param) = self.trained.get(at) else { return };
        let numel = param.tensor.numel();
        if self.elements.get() > 0 && self.elements.get().saturating_add(numel) > self.bucket_size {
            self.reduce();
        }
        if self.elements.get().saturating_add(numel) <= self.bucket_size {
            param.tensor.set_grad(Some(self.buffer.alias(Layout::contiguous(*param.tensor.sizes()))));
        }
        self.waiting.borrow_mut().push(at);
        self.elements.set(self.elements.get().saturating_add(numel));
    }

    /// `_backward_epilogue`
    pub(super) fn end_backward(&self) {
        self.reduce();
        if let Some(offload) = &self.offload {
            offload.end_pass();
        }
        self.coordinator.release_leftovers();
    }

    pub(super) fn enter_stream(&self) -> Option<Scope<'_, u8>> {
        self.overlaps.then(|| self.context.enter_stream(REDUCE_STREAM))
    }

    /// `__reduce_and_partition_ipg_grads`
    fn reduce(&self) {
        let mut waiting = self.waiting.take();
        waiting.sort_unstable();
        self.elements.set(0);
        let params: Vec<&Rc<Param>> = waiting.iter().filter_map(|&at| self.trained.get(at)).collect();
        let _stream = self.enter_stream();
        let _reduced = self.reduce_scatter(&params);
        if let Some(offload) = &self.offload {
            offload.take_parts(self, &waiting);
        }
        params.iter().for_each(|param| param.tensor.set_grad(None));
    }

    /// `reduce_scatter_coalesced`: all ranks' parts behind one another, those that fall short padded. One gradient that every rank
    /// has as much of is reduced where it lies.
    fn reduce_scatter(&self, params: &[&Rc<Param>]) -> Option<Tensor> {
        let empty = |elements| full(&self.context, "empty.memory_format", &[elements], self.dtype);
        let _category = self.context.enter_category(Category::Communication);
        match params {
            [] => return None,
            [one] if one.tensor.numel() % self.world_size == 0 => return None,
            _ => {}
        }
        let mut paddings = Vec::new();
        for rank in 0..self.world_size {
            for param in params {
                let part = part_of(param, rank);
                if part < param.partition {
                    paddings.push(empty(param.partition - part));
                }
            }
        }
        let elements: u64 = params.iter().map(|param| param.partition).sum();
        Some(full(&self.context, "cat.default", &[elements.saturating_mul(self.world_size)], self.dtype))
    }

    /// The parts of these parameters' gradients.
    pub(super) fn parts(&self, group: &[usize]) -> Vec<Tensor> {
        let part = |param: &Rc<Param>| self.flat.alias(Layout::contiguous(Shape::new(&[param.partition])));
        group.iter().filter_map(|&at| self.trained.get(at)).map(part).collect()
    }
}

/// Elements of a parameter that a rank has, without what its part is padded with.
pub(super) fn part_of(param: &Param, rank: u64) -> u64 {
    param.tensor.numel().saturating_sub(rank.saturating_mul(param.partition)).min(param.partition)
}
