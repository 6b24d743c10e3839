//! DDP's reducer (torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.11): flat buckets that gradients are copied into, or
//! lie in, as they arrive.
//!
//! What a reduction itself does to the buckets happens in place and holds no memory of this process's allocator.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::dtype::DType;
use crate::job::Ddp;
use crate::op::full;
use crate::tensor::{Context, Layout, Tensor};
use crate::trace::Category;
use crate::units::MIB;

use super::buckets::{BucketOrder, assign_buckets};

/// `bucket_cap_mb` when it is left to DDP, and the size of the first bucket then (`_DEFAULT_FIRST_BUCKET_BYTES`).
const DEFAULT_BUCKET_CAP_MB: u64 = 25;
const DEFAULT_FIRST_BUCKET_BYTES: u64 = MIB;

pub(super) struct Reducer {
    context: Rc<Context>,
    parameters: Vec<Tensor>,
    options: Ddp,
    /// `bucket_views_in`, by parameter; they hold the buckets' memory.
    views: RefCell<Vec<Tensor>>,
    /// Positions of parameters in the order their gradients arrived, until the buckets are rebuilt by it.
    rebuilt_parameters: RefCell<Vec<usize>>,
    /// Never, where a pass may leave parameters out.
    has_rebuilt_buckets: Cell<bool>,
    expects_autograd_hooks: Cell<bool>,
    /// Parameters that get gradients; a static graph's are counted in its first pass.
    used: Cell<usize>,
    /// Gradients that the pass which is reduced still waits for.
    pending: Cell<usize>,
    /// With a static graph, the first backward pass is reduced at its end.
    is_delayed: Cell<bool>,
    /// `local_used_map_dev_`, where which parameters a pass uses must be found out.
    _local_used_map: Option<Tensor>,
}

impl Reducer {
    /// One bucket for all parameters of a dtype, and a hook behind each parameter's `AccumulateGrad`.
    pub(super) fn new(context: &Rc<Context>, parameters: Vec<Tensor>, options: Ddp) -> Rc<Self> {
        let rebuilds = !options.find_unused_parameters || options.static_graph;
        let first = if rebuilds { [u64::MAX; 2] } else { bucket_limits(options) };
        let mut buckets = assign_buckets(&parameters, &first, BucketOrder::ByPosition);
        buckets.reverse();
        let views = bucket_views(&parameters, &buckets);
        let local_used_map = (options.static_graph || options.find_unused_parameters).then(|| {
            let _category = context.enter_category(Category::Communication);
            full(context, "empty.memory_format", &[parameters.len() as u64], DType::Int32)
        });
        let reducer = Rc::new(Self {
            context: Rc::clone(context),
            used: Cell::new(if options.static_graph { 0 } else { parameters.len() }),
            pending: Cell::new(0),
            parameters,
            options,
            views: RefCell::new(views),
            rebuilt_parameters: RefCell::default(),
            has_rebuilt_buckets: Cell::new(!rebuilds),
            expects_autograd_hooks: Cell::new(false),
            is_delayed: Cell::new(options.static_graph),
            _local_used_map: local_used_map,
        });
        for (at, parameter) in reducer.parameters.iter().enumerate() {
            let reducer: Weak<Self> = Rc::downgrade(&reducer);
            parameter.register_post_accumulate_grad_hook(move || {
                if let Some(reducer) = reducer.upgrade() {
                    reducer.autograd_hook(at);
                }
            });
        }
        reducer
    }

    /// `prepare_for_backward`: the gradients of the pass that comes are reduced.
    pub(super) fn prepare_for_backward(&self) {
        self.expects_autograd_hooks.set(true);
        self.pending.set(self.used.get());
    }

    /// Whether the reduction of a static graph's first pass has not been asked for yet.
    pub(super) fn is_delayed(&self) -> bool {
        self.is_delayed.get()
    }

    fn autograd_hook(&self, at: usize) {
        if self.is_delayed.get() {
            self.used.set(self.used.get() + 1);
            return;
        }
        if !self.expects_autograd_hooks.get() {
            return;
        }
        if !self.has_rebuilt_buckets.get() {
            self.rebuilt_parameters.borrow_mut().push(at);
        }
        self.mark_variable_ready(at);
        self.pending.set(self.pending.get().saturating_sub(1));
        // `finalize_backward`, which PyTorch puts off to the end of the pass; no hook comes between.
        self.expects_autograd_hooks.set(self.pending.get() > 0);
    }

    /// `delay_all_reduce`: all gradients at once, at the end of a static graph's first backward pass.
    pub(super) fn delay_all_reduce(&self) {
        if !self.expects_autograd_hooks.get() {
            let problem = "DistributedDataParallel: the first pass of a static graph cannot be one without reduction";
            self.context.fail(&[], || problem.to_owned());
        }
        (0..self.parameters.len()).for_each(|at| self.mark_variable_ready(at));
        self.is_delayed.set(false);
        self.expects_autograd_hooks.set(false);
    }

    /// Copies a gradient into its bucket, unless it lies there, and lets it lie there if it shall.
    fn mark_variable_ready(&self, at: usize) {
        let (Some(parameter), Some(view)) = (self.parameters.get(at), self.views.borrow().get(at).cloned()) else {
            return;
        };
        let moves = |gradient: Tensor| self.options.gradient_as_bucket_view && !gradient.is_alias_of(&view);
        if parameter.grad().is_some_and(moves) {
            parameter.set_grad(Some(view));
        }
    }

    /// `rebuild_buckets`, before the forward pass that follows the first reduction: buckets of the given sizes, in the
    /// order the gradients arrived.
    pub(super) fn rebuild_buckets(&self) {
        if self.pending.get() > 0 && self.finds_unused() {
            self.expects_autograd_hooks.set(false);
        } else if self.pending.get() > 0 {
            self.context
                .fail(&[], || "DistributedDataParallel: no loss depends on some of the model's parameters".to_owned());
        }
        let mut order = self.rebuilt_parameters.take();
        if order.is_empty() {
            return;
        }
        let unused: Vec<usize> = (0..self.parameters.len()).filter(|at| !order.contains(at)).collect();
        order.extend(unused);
        self.has_rebuilt_buckets.set(true);
        let arrived: Vec<Tensor> = order.iter().filter_map(|&at| self.parameters.get(at)).cloned().collect();
        let buckets = assign_buckets(&arrived, &bucket_limits(self.options), BucketOrder::AsFilled);
        self.sync_bucket_indices(buckets.len());
        let old_views = self.views.take();
        drop(old_views);
        let views = bucket_views(&arrived, &buckets);
        let mut by_parameter = self.parameters.clone();
        for (at, view) in order.into_iter().zip(views) {
            by_parameter[at] = view;
        }
        self.views.replace(by_parameter);
        if self.options.gradient_as_bucket_view {
            (0..self.parameters.len()).for_each(|at| self.mark_variable_ready(at));
        }
    }

    /// Whether parameters that no loss depends on are marked ready when backward begins (`search_unused_parameters`): they keep what
    /// gradient they have.
    fn finds_unused(&self) -> bool {
        self.options.find_unused_parameters && !self.options.static_graph
    }

    /// Rank 0's buckets are broadcast: the parameters' positions with the number of buckets, and the buckets' lengths.
    fn sync_bucket_indices(&self, buckets: usize) {
        let _category = self.context.enter_category(Category::Communication);
        let integers = |count: u64| full(&self.context, "empty.memory_format", &[count], DType::Int32);
        let _indices = integers(self.parameters.len() as u64 + 1);
        let _sizes = integers(buckets as u64);
    }
}

/// Limits of the first bucket and of the others.
fn bucket_limits(options: Ddp) -> [u64; 2] {
    match options.bucket_cap_mb {
        Some(megabytes) => [megabytes * MIB; 2],
        None => [DEFAULT_FIRST_BUCKET_BYTES, DEFAULT_BUCKET_CAP_MB * MIB],
    }
}

/// Allocates the buckets one after the other: a view for each parameter.
fn bucket_views(parameters: &[Tensor], buckets: &[Vec<usize>]) -> Vec<Tensor> {
    let mut views = parameters.to_vec();
    for bucket in buckets {
        let members: Vec<&Tensor> = bucket.iter().filter_map(|&at| parameters.get(at)).collect();
        let Some(first) = members.first() else { continue };
        let _category = first.context().enter_category(Category::Communication);
        let elements = members.iter().map(|parameter| parameter.numel()).sum();
        let gradients = full(first.context(), "empty.memory_format", &[elements], first.dtype());
        for (&at, parameter) in bucket.iter().zip(&members) {
            views[at] = gradients.alias(Layout::contiguous(*parameter.sizes()));
        }
    }
    views
}
