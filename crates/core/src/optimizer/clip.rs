//! `clip_grad_norm_` (torch/nn/utils/clip_grad.py), foreach: a norm for each gradient, their norm, the coefficient.

use crate::dtype::DType;
use crate::op::{UNTOLD, foreach_norm, full, group_by_dtype, stack_scalars};
use crate::tensor::Tensor;

/// Clips the gradients of the parameters to a norm; parameters without one are skipped. Returns the norm there was.
pub(crate) fn clip_grad_norm(parameters: &[Tensor]) -> Option<Tensor> {
    clip(parameters, Tensor::norm)
}

/// The same where every rank has a shard of each gradient: the squares of the norms are summed over the ranks, and the
/// sums' roots are what the total norm is taken of (torch/distributed/tensor/_ops/_math_ops.py, `_NormPartial`).
pub(crate) fn clip_sharded_grad_norm(parameters: &[Tensor]) -> Option<Tensor> {
    clip(parameters, |norms| {
        let reduced = {
            let powers = norms.unary("pow.Tensor_Scalar", norms.dtype());
            let sums = powers.unary("clone.default", norms.dtype());
            sums.unary("pow.Tensor_Scalar", norms.dtype())
        };
        reduced.norm()
    })
}

/// `FullyShardedDataParallel.clip_grad_norm_`: norms in fp32, one after the other, whose squares are summed over the ranks; those of
/// parameters that no rank has a shard of are added.
pub(crate) fn clip_flat_grad_norm(sharded: &[Tensor], unmanaged: &[Tensor]) -> Option<Tensor> {
    let gradients = |of: &[Tensor]| -> Vec<Tensor> { of.iter().filter_map(Tensor::grad).collect() };
    let (sharded, unmanaged) = (gradients(sharded), gradients(unmanaged));
    let (local, local_unmanaged) = (norm_of_norms(&sharded), norm_of_norms(&unmanaged));
    let first = local.as_ref().or(local_unmanaged.as_ref())?;
    let power = |norm: &Tensor| norm.unary("pow.Tensor_Scalar", norm.dtype());
    let summed = power(first);
    drop(local_unmanaged.as_ref().map(power));
    let total = power(&summed);
    drop(summed);
    let coefficient = clip_coefficient(&total);
    let _clamped = coefficient.unary("clamp.default", coefficient.dtype());
    [sharded, unmanaged].iter().for_each(|gradients| scale_in_place(gradients));
    Some(total)
}

/// The Trainer's clipping where ranks have parts of some gradients and the whole of others (transformers 5.17, trainer.py,
/// `_mixed_mesh_grad_norm`): squares of the norms of both are added. Without `clips` the norm is taken to be logged.
pub(crate) fn clip_divided_grad_norm(divided: &[Tensor], whole: &[Tensor], clips: bool) -> Option<Tensor> {
    let gradients = |of: &[Tensor]| -> Vec<Tensor> { of.iter().filter_map(Tensor::grad).collect() };
    let (divided, whole) = (gradients(divided), gradients(whole));
    let any = divided.first().or(whole.first())?;
    let of_whole = squared_norm(&whole, any);
    let of_divided = squared_norm(&divided, any);
    let total = {
        let sum = of_whole.add(&of_divided);
        sum.unary("sqrt.default", sum.dtype())
    };
    if clips {
        let _clamped = clip_coefficient(&total).unary("clamp.default", total.dtype());
        [divided, whole].iter().for_each(|gradients| scale_in_place(gradients));
    }
    Some(total)
}

/// The square of the norm of all these gradients, which begins as a zero in fp32.
fn squared_norm(gradients: &[Tensor], any: &Tensor) -> Tensor {
    let zero = full(any.context(), "zeros.default", &[], DType::Float32);
    let norms: Vec<Tensor> = gradients.iter().map(Tensor::norm).collect();
    let Some(stacked) = stack_scalars(&norms) else { return zero };
    drop(norms);
    let norm = stacked.norm();
    drop(stacked);
    norm.unary("pow.Tensor_Scalar", norm.dtype())
}

/// The norm of all gradients on this rank, in fp32 (`_get_grad_norm`, torch/distributed/fsdp).
fn norm_of_norms(gradients: &[Tensor]) -> Option<Tensor> {
    let norms: Vec<Tensor> = gradients.iter().map(|gradient| gradient.norm_as(DType::Float32)).collect();
    let stacked = stack_scalars(&norms)?;
    drop(norms);
    Some(stacked.norm())
}

fn clip(parameters: &[Tensor], norm_of: impl Fn(&Tensor) -> Tensor) -> Option<Tensor> {
    let gradients: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
    let total = total_norm(&gradients, norm_of)?;
    let coefficient = clip_coefficient(&total);
    scale_in_place(&gradients);
    let _clamped = coefficient.unary("clamp.default", coefficient.dtype());
    Some(total)
}

/// `max_norm / (total + 1e-6)`: dividing a number by a tensor is its reciprocal times the number.
fn clip_coefficient(total: &Tensor) -> Tensor {
    let sum = total.add_scalar(1e-6);
    let reciprocal = sum.unary("reciprocal.default", sum.dtype());
    reciprocal.mul_scalar(UNTOLD)
}

fn scale_in_place(gradients: &[Tensor]) {
    gradients.iter().for_each(|gradient| gradient.context().count_bytes(gradient.bytes().saturating_mul(2)));
}

/// The norm of all gradients together; `None` without gradients.
fn total_norm(gradients: &[Tensor], norm_of: impl Fn(&Tensor) -> Tensor) -> Option<Tensor> {
    let mut norms = Vec::with_capacity(gradients.len());
    for group in group_by_dtype(gradients) {
        let group: Vec<&Tensor> = group.iter().filter_map(|&at| gradients.get(at)).collect();
        norms.extend(foreach_norm(&group));
    }
    let stacked = stack_scalars(&norms)?;
    Some(norm_of(&stacked))
}
