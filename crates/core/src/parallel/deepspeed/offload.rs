//! `offload_optimizer` of stages 1 and 2: fp32 weights, their gradient and the optimizer's states lie on the host, where the step is
//! taken; each reduced gradient goes there as it comes, and the new 16-bit weights come back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::dtype::DType;
use crate::host::HostKind;
use crate::op::{ReduceKind, full};
use crate::tensor::{Context, Layout, Shape, Tensor};
use crate::trace::Category;

use super::partition::Partitions;

/// What offloading holds beside the fp32 weights.
pub(super) struct Offload {
    context: Rc<Context>,
    kind: HostKind,
    /// `param_buffer_of_bit16_for_cpu_offload_groups`: the new weights on their way back.
    bit16: Vec<Tensor>,
    /// `temp_grad_buffer_for_cpu_offload` and `temp_grad_buffer_for_gpu_offload`: as large as the largest gradient.
    _grad_buffers: [Tensor; 2],
    /// `accumulated_grads_in_cpu`, whole gradients of earlier passes by the parameter's place.
    accumulated: RefCell<BTreeMap<usize, Tensor>>,
    /// `norm_for_param_grads` of this step.
    norms: RefCell<Vec<Tensor>>,
}

impl Offload {
    pub(super) fn new(context: &Rc<Context>, kind: HostKind, sizes: (&Partitions, &[Tensor]), dtype: DType) -> Self {
        let (partitions, parameters) = sizes;
        let largest = Shape::new(&[parameters.iter().map(Tensor::numel).max().unwrap_or(0)]);
        let bit16 = |elements| Tensor::on_host(context, Shape::new(&[elements]), dtype, (kind, Category::Parameter));
        let bit16 = partitions.groups().map(|(_, partition)| bit16(partition.elements)).collect();
        let on_host = Tensor::on_host(context, largest, dtype, (kind, Category::Gradient));
        let _category = context.enter_category(Category::Communication);
        let on_device = full(context, "zeros.default", &largest, dtype);
        let context = Rc::clone(context);
        let _grad_buffers = [on_host, on_device];
        Self { context, kind, bit16, _grad_buffers, accumulated: RefCell::default(), norms: RefCell::default() }
    }

    /// This rank's fp32 weights with a gradient: its partition of the flat tensor is cloned, then cast on the host.
    pub(super) fn master(&self, flat: &Tensor, elements: u64) -> Tensor {
        let clone = {
            let _category = self.context.enter_category(Category::Parameter);
            full(&self.context, "clone.default", &[elements], flat.dtype())
        };
        self.context.count_link(clone.bytes());
        drop(clone);
        let on_host =
            |category| Tensor::on_host(&self.context, Shape::new(&[elements]), DType::Float32, (self.kind, category));
        let master = on_host(Category::Parameter).into_parameter();
        master.set_grad(Some(on_host(Category::Gradient)));
        master
    }

    /// `copy_grads_in_partition`: a gradient of which this rank updates `part` elements is summed up on the host; at the end of a step it
    /// becomes part of the fp32 gradient.
    pub(super) fn copy_gradient(&self, at: usize, parameter: &Tensor, part: u64, is_boundary: bool) {
        let Some(gradient) = parameter.grad() else { return };
        self.accumulate(at, &gradient, is_boundary);
        if !is_boundary {
            return;
        }
        let own = gradient.alias(Layout::contiguous(Shape::new(&[part])));
        let norm = own.to(DType::Float64).norm();
        self.norms.borrow_mut().push(norm);
        check_finite(&gradient);
        let _category = self.context.enter_category(Category::Gradient);
        let source = own.to(DType::Float32);
        self.context.count_link(source.bytes());
        parameter.set_grad(None);
    }

    /// `async_accumulate_grad_in_cpu_via_gpu`, which a step of one pass does without.
    fn accumulate(&self, at: usize, gradient: &Tensor, is_boundary: bool) {
        let mut accumulated = self.accumulated.borrow_mut();
        let is_later = accumulated.contains_key(&at);
        if is_boundary && !is_later {
            return;
        }
        accumulated.entry(at).or_insert_with(|| {
            let flat = Shape::new(&[gradient.numel()]);
            Tensor::on_host(&self.context, flat, gradient.dtype(), (self.kind, Category::Gradient))
        });
        // What was summed up comes back before it goes there again.
        self.context.count_link(gradient.bytes().saturating_mul(if is_later { 2 } else { 1 }));
    }

    /// What the engine asks the ranks before a step: whether a gradient overflowed, where 16 bits could, and the norm.
    pub(super) fn agree_on_step(&self, dtype: DType) {
        if dtype != DType::Float32 {
            drop(full(&self.context, "_to_copy.default", &[1], DType::Uint8));
        }
        drop(full(&self.context, "_to_copy.default", &[1], DType::Float32));
    }

    /// The new weights come back, and the norms are forgotten.
    pub(super) fn end_step(&self) {
        self.context.count_link(self.bit16.iter().map(Tensor::bytes).sum());
        self.norms.borrow_mut().clear();
    }
}

/// `has_inf_or_nan`
fn check_finite(gradient: &Tensor) {
    let is_finite = |op| {
        let extreme = gradient.reduce_all(op, ReduceKind::Max, gradient.dtype());
        extreme.map("isfinite.default", DType::Bool)
    };
    let (above, below) = (is_finite("amax.default"), is_finite("amin.default"));
    let both = above.map("logical_and.default", DType::Bool);
    drop((above, below));
    drop(both.map("logical_not.default", DType::Bool));
}
