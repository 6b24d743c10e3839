//! `torch.nn.utils.clip_grad_norm_` (torch/nn/utils/clip_grad.py of 2.11), foreach, of gradients of one dtype and device.

use tonnage_torch::{Argument, Tensor, Torch, TorchError, operator};

/// Scales all gradients so that their norm together is `max_norm` at most. Returns the norm there was, or `None` without gradients.
///
/// # Errors
/// PyTorch's.
pub fn clip_grad_norm(
    torch: &'static Torch,
    parameters: &[Tensor],
    max_norm: f64,
) -> Result<Option<Tensor>, TorchError> {
    let _no_grad = torch.no_grad();
    let mut gradients = Vec::new();
    for parameter in parameters {
        gradients.extend(parameter.grad()?);
    }
    if gradients.is_empty() {
        return Ok(None);
    }
    let total = total_norm(torch, &gradients)?;
    // max_norm / (total + 1e-6): a number over a tensor is the tensor's reciprocal times the number (Tensor.__rtruediv__).
    let coefficient = {
        let sum = torch.call(operator!("add", "Scalar"), &[(&total).into(), 1e-6.into()])?.tensor()?;
        let reciprocal = torch.call(operator!("reciprocal"), &[(&sum).into()])?.tensor()?;
        torch.call(operator!("mul", "Scalar"), &[(&reciprocal).into(), max_norm.into()])?.tensor()?
    };
    let clamped = torch.call(operator!("clamp"), &[(&coefficient).into(), Argument::None, 1.0.into()])?.tensor()?;
    torch.call(operator!("_foreach_mul_", "Tensor"), &[gradients.as_slice().into(), (&clamped).into()])?;
    Ok(Some(total))
}

fn total_norm(torch: &'static Torch, gradients: &[Tensor]) -> Result<Tensor, TorchError> {
    let norms = torch.call(operator!("_foreach_norm", "Scalar"), &[gradients.into(), 2.0.into()])?.tensors();
    let stacked = torch.call(operator!("stack"), &[norms.as_slice().into()])?.tensor()?;
    torch.call(operator!("linalg_vector_norm"), &[(&stacked).into(), 2.0.into()])?.tensor()
}
