//! Gradients on their way to a rank's partition, as hooks and the end of backward move them.

use std::cell::{Cell, OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::dtype::DType;
use crate::job::DeepSpeed;
use crate::op::full;
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

use super::offload::Offload;
use super::partition::{Partition, Partitions};

/// `reduction_stream`, the only side stream.
const REDUCTION_STREAM: u8 = 1;

/// What hooks, wrapper and optimizer know of the gradients.
pub(super) struct Gradients {
    pub context: Rc<Context>,
    parameters: Vec<Tensor>,
    pub dtype: DType,
    pub partitions: Partitions,
    options: DeepSpeed,
    /// `offload_optimizer`, made when the optimizer is.
    offload: OnceCell<Offload>,
    pub is_boundary: Cell<bool>,
    /// Whether the end of the pass that runs is asked for.
    is_queued: Cell<bool>,
    bucket: RefCell<Bucket>,
    grads_in_partition: RefCell<Option<Tensor>>,
    /// Of this rank's parameters, summed over passes.
    all_grad_tensors: RefCell<Option<Vec<Tensor>>>,
    /// What the step takes of each group: this rank's parts, then what is padded.
    pub averaged: RefCell<Vec<Averaged>>,
}

/// `IPGBucket` (DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py): gradients that wait for one reduction.
#[derive(Default)]
struct Bucket {
    buffers: Vec<Tensor>,
    index: usize,
    elements: u64,
    params: Vec<usize>,
}

/// `averaged_gradients` of a group: the shards of this rank's partition.
#[derive(Default)]
pub(super) struct Averaged {
    pub parts: Vec<Tensor>,
    pub padding: Option<Tensor>,
}

impl Gradients {
    pub(super) fn new(
        context: &Rc<Context>,
        parameters: Vec<Tensor>,
        dtype: DType,
        partitions: Partitions,
        options: DeepSpeed,
    ) -> Self {
        Self {
            context: Rc::clone(context),
            parameters,
            dtype,
            partitions,
            options,
            offload: OnceCell::new(),
            is_boundary: Cell::new(true),
            is_queued: Cell::new(false),
            bucket: RefCell::default(),
            grads_in_partition: RefCell::default(),
            all_grad_tensors: RefCell::default(),
            averaged: RefCell::default(),
        }
    }

    /// `process_gradients`: stage 2 moves each gradient as it comes, stage 1 in the last pass, at its end unless it overlaps.
    pub(super) fn process(shared: &Rc<Self>, at: usize) {
        shared.setup_buckets();
        let partitions = shared.options.stage == 2;
        if partitions || (shared.options.overlap_comm && shared.is_boundary.get()) {
            shared.put_into_bucket(at);
        }
        if !shared.is_queued.replace(true) {
            let gradients = Rc::clone(shared);
            shared.context.queue_callback(move || gradients.allreduce_gradients());
        }
    }

    /// What lies on the host, if the optimizer is there.
    pub(super) fn offload(&self) -> Option<&Offload> {
        let kind = self.options.offload_optimizer?;
        let sizes = (&self.partitions, self.parameters.as_slice());
        Some(self.offload.get_or_init(|| Offload::new(&self.context, kind, sizes, self.dtype)))
    }

    fn setup_buckets(&self) {
        let mut bucket = self.bucket.borrow_mut();
        if bucket.buffers.is_empty() {
            let _category = self.context.enter_category(Category::Communication);
            let count = if self.options.overlap_comm { 2 } else { 1 };
            let size = self.options.reduce_bucket_size;
            bucket.buffers = (0..count).map(|_| self.empty(size)).collect();
            bucket.index = 0;
        }
    }

    fn empty(&self, elements: u64) -> Tensor {
        full(&self.context, "empty.memory_format", &[elements], self.dtype)
    }

    /// `reduce_independent_p_g_buckets_and_remove_grads`: the gradient becomes a view of the buffer, if it fits one at all.
    fn put_into_bucket(&self, at: usize) {
        let Some(parameter) = self.parameters.get(at).filter(|parameter| parameter.has_grad()) else { return };
        let size = self.options.reduce_bucket_size;
        if self.bucket.borrow().elements + parameter.numel() > size {
            self.reduce_ipg_grads();
            if self.options.overlap_comm {
                let mut bucket = self.bucket.borrow_mut();
                bucket.index = 1 - bucket.index;
            }
        }
        let mut bucket = self.bucket.borrow_mut();
        if parameter.numel() > size && self.options.offload_optimizer.is_some() {
            // It may be reduced on another stream than the one that made it.
            let _category = self.context.enter_category(Category::Gradient);
            let clone = full(&self.context, "clone.default", parameter.sizes(), parameter.dtype());
            parameter.set_grad(Some(clone));
        }
        if parameter.numel() <= size
            && let Some(buffer) = bucket.buffers.get(bucket.index)
        {
            parameter.set_grad(Some(buffer.alias(Layout::contiguous(*parameter.sizes()))));
        }
        bucket.elements += parameter.numel();
        bucket.params.push(at);
    }

    fn reduce_ipg_grads(&self) {
        let params = {
            let mut bucket = self.bucket.borrow_mut();
            bucket.elements = 0;
            std::mem::take(&mut bucket.params)
        };
        let _stream = self.options.overlap_comm.then(|| self.context.enter_stream(REDUCTION_STREAM));
        self.average(&params);
        for at in params {
            if let Some(part) = self.partitions.own_part(at) {
                self.copy_into_partition(at, part);
            } else if self.options.stage == 2
                && let Some(parameter) = self.parameters.get(at)
            {
                parameter.set_grad(None);
            }
        }
    }

    /// `allreduce_and_scatter`: slices of several ranks are put together for one all-reduce.
    fn average(&self, params: &[usize]) {
        let _category = self.context.enter_category(Category::Communication);
        let (mut count, mut elements) = (0, 0);
        for slice in self.partitions.slices(params) {
            count += 1;
            elements += slice;
            if elements > self.options.reduce_bucket_size {
                self.all_reduce(count, elements);
                (count, elements) = (0, 0);
            }
        }
        self.all_reduce(count, elements);
    }

    fn all_reduce(&self, slices: u64, elements: u64) {
        if slices > 1 {
            drop(full(&self.context, "flatten_dense_tensors", &[elements], self.dtype));
        }
    }

    fn copy_into_partition(&self, at: usize, part: u64) {
        let Some(parameter) = self.parameters.get(at) else { return };
        if let Some(offload) = self.offload() {
            return offload.copy_gradient(at, parameter, part, self.is_boundary.get());
        }
        let _category = self.context.enter_category(Category::Gradient);
        let whole = || self.own().map(|(_, parameter, _)| parameter.numel()).sum();
        let mut buffer = self.grads_in_partition.borrow_mut();
        let buffer = buffer.get_or_insert_with(|| self.empty(whole()));
        parameter.set_grad(Some(buffer.alias(Layout::contiguous(*parameter.sizes()))));
    }

    /// This rank's parameters, and how many elements of each it updates.
    fn own(&self) -> impl Iterator<Item = (usize, &Tensor, u64)> {
        let parameters = self.parameters.iter().enumerate();
        parameters.filter_map(|(at, parameter)| Some((at, parameter, self.partitions.own_part(at)?)))
    }

    fn allreduce_gradients(&self) {
        self.is_queued.set(false);
        if self.options.stage == 1 {
            if !self.is_boundary.get() {
                return;
            }
            if !self.options.overlap_comm {
                (0..self.parameters.len()).for_each(|at| self.put_into_bucket(at));
            }
        }
        self.epilogue();
    }

    /// `independent_gradient_partition_epilogue`: what backward left in the bucket is reduced.
    fn epilogue(&self) {
        self.reduce_ipg_grads();
        if self.options.offload_optimizer.is_none() {
            self.sum_up_parts();
        }
        let buffers = std::mem::take(&mut self.bucket.borrow_mut().buffers);
        drop(buffers);
        self.grads_in_partition.replace(None);
        self.parameters.iter().for_each(|parameter| parameter.set_grad(None));
    }

    /// Gradients of this rank's partition are added to those of earlier passes; the last pass hands them over.
    fn sum_up_parts(&self) {
        let latest: Vec<Tensor> = self.own().filter_map(|(_, parameter, _)| parameter.grad()).collect();
        // Later passes are added in place.
        let summed = self.all_grad_tensors.borrow().clone().unwrap_or_else(|| latest.clone());
        let summed = if self.is_boundary.get() {
            self.all_grad_tensors.replace(None);
            self.average_parts(&summed);
            None
        } else {
            Some(summed)
        };
        self.all_grad_tensors.replace(summed);
    }

    /// `get_flat_partition(return_tensor_list=True)`: views of the gradients, cut to the partition.
    fn average_parts(&self, gradients: &[Tensor]) {
        let _category = self.context.enter_category(Category::Gradient);
        let mut own = self.own().zip(gradients).peekable();
        let of_group = |(places, partition): (Range<usize>, &Partition)| {
            let mut parts = Vec::new();
            while let Some(((_, _, part), gradient)) = own.next_if(|((at, ..), _)| places.contains(at)) {
                parts.push(gradient.alias(Layout::contiguous(Shape::new(&[part]))));
            }
            let padding = partition.own_padding();
            let padding = (padding > 0).then(|| full(&self.context, "zeros.default", &[padding], self.dtype));
            Averaged { parts, padding }
        };
        let averaged = self.partitions.groups().map(of_group).collect();
        self.averaged.replace(averaged);
    }
}
