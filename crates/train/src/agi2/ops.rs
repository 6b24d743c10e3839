//! Operators by PyTorch's names, as the model calls them.

use tonnage_torch::{Tensor, TorchError, operator};

pub(super) fn add(a: &Tensor, b: &Tensor) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("add", "Tensor"), &[a.into(), b.into()])?.tensor()
}

pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("matmul"), &[a.into(), b.into()])?.tensor()
}

pub(super) fn transposed(a: &Tensor, first: i64, second: i64) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("transpose", "int"), &[a.into(), first.into(), second.into()])?.tensor()
}

pub(super) fn unsqueezed(a: &Tensor, at: i64) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("unsqueeze"), &[a.into(), at.into()])?.tensor()
}

pub(super) fn narrowed(a: &Tensor, dimension: i64, from: i64, to: i64) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("slice", "Tensor"), &[a.into(), dimension.into(), from.into(), to.into()])?.tensor()
}

pub(super) fn dropout(a: &Tensor, share: f64, trains: bool) -> Result<Tensor, TorchError> {
    a.torch().call(operator!("dropout"), &[a.into(), share.into(), trains.into()])?.tensor()
}
