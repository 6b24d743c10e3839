//! DeepSpeed's ZeRO stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py, 0.17) with its default buckets: weights in one
//! flat tensor, fp32 master weights and optimizer state for a rank's part of it, gradients reduced from a flat buffer.
//! Written from its source; no recording of DeepSpeed was compared.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::dtype::DType;
use crate::job::JobSpec;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::optimizer::{self, Optimizer, Traffic};
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

use super::{Loaded, Wrapper};

/// `reduce_bucket_size`, in elements.
const REDUCE_BUCKET_SIZE: u64 = 500_000_000;
/// Partitions begin at multiples of so many elements (`nccl_start_alignment_factor`).
const ALIGNMENT: u64 = 2;

pub(super) struct ZeroStage12 {
    model: Box<dyn Model>,
    parameters: Vec<Tensor>,
    shared: Rc<Gradients>,
    _flat: Tensor,
}

/// What the hooks, the wrapper and the optimizer know of the gradients.
struct Gradients {
    context: Rc<Context>,
    parameters: Vec<Tensor>,
    dtype: DType,
    /// Elements of a rank's part.
    partition: u64,
    /// Whether gradients are given back as they are reduced (stage 2).
    partitions: bool,
    is_boundary: Cell<bool>,
    /// Whether the end of the pass that runs is asked for.
    is_queued: Cell<bool>,
    ipg_buffer: RefCell<Option<Tensor>>,
    elements_in_ipg_bucket: Cell<u64>,
    averaged: RefCell<Option<Tensor>>,
}

impl ZeroStage12 {
    pub(super) fn new(job: &JobSpec, context: &Rc<Context>, loaded: Loaded, partitions: bool) -> Self {
        let elements: u64 = loaded.parameters.iter().map(Tensor::numel).sum();
        let partition = elements.div_ceil(ALIGNMENT * job.parallel.world_size) * ALIGNMENT;
        let dtype = job.precision.weight_dtype();
        let padded = Shape::new(&[partition * job.parallel.world_size]);
        let flat = Tensor::nowhere(context, padded, dtype);
        // The weights go to the host before the flat tensor is made.
        for parameter in &loaded.parameters {
            parameter.set_data(&flat.alias(Layout::contiguous(*parameter.sizes())));
        }
        let category = context.enter_category(Category::Parameter);
        flat.materialize("_to_copy.default");
        drop(category);
        let shared = Rc::new(Gradients {
            context: Rc::clone(context),
            parameters: loaded.parameters.clone(),
            dtype,
            partition,
            partitions,
            is_boundary: Cell::new(true),
            is_queued: Cell::new(false),
            ipg_buffer: RefCell::default(),
            elements_in_ipg_bucket: Cell::new(0),
            averaged: RefCell::default(),
        });
        for (at, parameter) in loaded.parameters.iter().enumerate() {
            let shared: Weak<Gradients> = Rc::downgrade(&shared);
            parameter.register_post_accumulate_grad_hook(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.arrived(&shared, at);
                }
            });
        }
        Self { model: loaded.model, parameters: loaded.parameters, shared, _flat: flat }
    }
}

impl Gradients {
    /// Stage 2 puts each gradient into the buffer as it comes, stage 1 all of them when the last pass is done.
    fn arrived(&self, shared: &Rc<Self>, at: usize) {
        let Some(parameter) = self.parameters.get(at) else { return };
        if self.partitions {
            self.put_into_ipg_buffer(parameter);
        }
        if !self.is_queued.replace(true) {
            let shared = Rc::clone(shared);
            self.context.queue_callback(move || shared.epilogue());
        }
    }

    fn put_into_ipg_buffer(&self, parameter: &Tensor) {
        let _category = self.context.enter_category(Category::Communication);
        self.ipg_buffer
            .borrow_mut()
            .get_or_insert_with(|| full(&self.context, "empty.memory_format", &[REDUCE_BUCKET_SIZE], self.dtype));
        let held = self.elements_in_ipg_bucket.get() + parameter.numel();
        if held > REDUCE_BUCKET_SIZE {
            self.reduce_ipg_grads();
        }
        self.elements_in_ipg_bucket.set(if held > REDUCE_BUCKET_SIZE { parameter.numel() } else { held });
        parameter.set_grad(None);
    }

    /// This rank's part of what was reduced stays.
    fn reduce_ipg_grads(&self) {
        let _category = self.context.enter_category(Category::Gradient);
        self.averaged
            .borrow_mut()
            .get_or_insert_with(|| full(&self.context, "empty.memory_format", &[self.partition], self.dtype));
    }

    fn epilogue(&self) {
        self.is_queued.set(false);
        if !self.partitions {
            if !self.is_boundary.get() {
                return;
            }
            self.parameters.iter().for_each(|parameter| self.put_into_ipg_buffer(parameter));
        }
        self.reduce_ipg_grads();
        self.elements_in_ipg_bucket.set(0);
        self.ipg_buffer.replace(None);
    }
}

impl Wrapper for ZeroStage12 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.model.forward(call)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.model.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.shared.is_boundary.set(sync);
    }

    /// The step scales the gradients in place.
    fn clip_grad_norm(&self) {}

    /// `initialize_optimizer_states`: the state is made by a step over zeros.
    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        let (context, partition) = (&self.shared.context, self.shared.partition);
        let master = {
            let _category = context.enter_category(Category::Parameter);
            full(context, "_to_copy.default", &[partition], DType::Float32).into_parameter()
        };
        let mut optimizer = optimizer::build(job.optimizer, std::slice::from_ref(&master));
        master.set_grad(Some(full(context, "zeros.default", &[partition], DType::Float32)));
        optimizer.step();
        master.set_grad(None);
        Box::new(ZeroOptimizer { optimizer, master, shared: Rc::clone(&self.shared) })
    }
}

/// The optimizer over a rank's part of the fp32 weights.
struct ZeroOptimizer {
    optimizer: Box<dyn Optimizer>,
    master: Tensor,
    shared: Rc<Gradients>,
}

impl Optimizer for ZeroOptimizer {
    fn step(&mut self) {
        let gradient = {
            let _category = self.shared.context.enter_category(Category::Gradient);
            full(&self.shared.context, "_to_copy.default", &[self.shared.partition], DType::Float32)
        };
        self.master.set_grad(Some(gradient));
        self.shared.averaged.replace(None);
        self.optimizer.step();
        self.master.set_grad(None);
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}
