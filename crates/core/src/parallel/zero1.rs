//! `ZeroRedundancyOptimizer` (torch/distributed/optim/zero_redundancy_optimizer.py, PyTorch 2.11): every rank steps its
//! share of the parameters, whole tensors, and broadcasts it; broadcasts work in place.

use crate::small_sort::SmallSort;
use std::rc::Rc;

use crate::dtype::DType;
use crate::job::{JobSpec, Strategy};
use crate::model::family::{ForwardCall, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::full;
use crate::optimizer::{self, Optimizer, Traffic};
use crate::tensor::{Context, Layout, Tensor};
use crate::trace::Category;

use super::Wrapper;

/// A wrapped model whose optimizer is a `ZeroRedundancyOptimizer`.
pub(super) struct Zero1 {
    wrapper: Box<dyn Wrapper>,
    context: Rc<Context>,
}

impl Zero1 {
    pub(super) fn new(wrapper: Box<dyn Wrapper>, context: &Rc<Context>) -> Self {
        Self { wrapper, context: Rc::clone(context) }
    }
}

impl Wrapper for Zero1 {
    fn forward(&self, call: &ForwardCall) -> ModelOutput {
        self.wrapper.forward(call)
    }

    fn new_cache(&self) -> Rc<KvCache> {
        self.wrapper.new_cache()
    }

    fn parameters(&self) -> &[Tensor] {
        self.wrapper.parameters()
    }

    fn set_gradient_sync(&self, sync: bool) {
        self.wrapper.set_gradient_sync(sync);
    }

    fn optimizer(&self, job: &JobSpec) -> Box<dyn Optimizer> {
        let shares = partition_parameters(self.parameters(), job.parallel.world_size);
        let local = shares.get(job.parallel.rank as usize).map_or(&[][..], Vec::as_slice);
        let optim = optimizer::build(job, local);
        let as_views = matches!(job.parallel.strategy, Strategy::Zero1 { parameters_as_bucket_view: true, .. });
        let buckets = if as_views { build_param_buckets(&self.context, &shares) } else { Vec::new() };
        Box::new(ZeroRedundancyOptimizer { optim, _buckets: buckets })
    }
}

struct ZeroRedundancyOptimizer {
    optim: Box<dyn Optimizer>,
    _buckets: Vec<Tensor>,
}

impl Optimizer for ZeroRedundancyOptimizer {
    fn step(&mut self) {
        self.optim.step();
    }

    fn traffic(&self) -> Traffic {
        Traffic::COUNTED_ELSEWHERE
    }
}

/// Each parameter, the largest first, goes to the rank that has the fewest elements.
fn partition_parameters(parameters: &[Tensor], world_size: u64) -> Vec<Vec<Tensor>> {
    let mut shares: Vec<(u64, Vec<Tensor>)> = (0..world_size).map(|_| (0, Vec::new())).collect();
    let mut sorted = parameters.to_vec();
    sorted.small_sort_by_key(|parameter| std::cmp::Reverse(parameter.numel()));
    for parameter in sorted {
        if let Some((elements, share)) = shares.iter_mut().min_by_key(|(elements, _)| *elements) {
            *elements += parameter.numel();
            share.push(parameter);
        }
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

/// A flat tensor for each rank's share, in which its parameters lie from then on; a rank without any has a dummy.
fn build_param_buckets(context: &Rc<Context>, shares: &[Vec<Tensor>]) -> Vec<Tensor> {
    let _category = context.enter_category(Category::Parameter);
    let flatten = |share: &Vec<Tensor>| {
        let Some(first) = share.first() else { return full(context, "zeros.default", &[1], DType::Float32) };
        let elements = share.iter().map(Tensor::numel).sum();
        let bucket = full(context, "empty.memory_format", &[elements], first.dtype());
        for parameter in share {
            parameter.set_data(&bucket.alias(Layout::contiguous(*parameter.sizes())));
        }
        bucket
    };
    shares.iter().map(flatten).collect()
}
