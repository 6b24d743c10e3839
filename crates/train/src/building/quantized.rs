//! No layer is quantized here: such jobs are refused.

use super::builder::Builder;
use super::init::Init;
use crate::dtype::DType;
use crate::tensor::Tensor;

/// A quantized weight, of which there is none.
pub(crate) enum Quantized {}

impl Quantized {
    pub(crate) fn load(_at: &Builder, _sizes: [u64; 2], _transposed: bool) -> Option<Self> {
        None
    }

    pub(crate) fn weight(&self) -> &Tensor {
        match *self {}
    }

    pub(crate) fn forward(&self, _x: &Tensor, _bias: Option<&Tensor>) -> Tensor {
        match *self {}
    }

    pub(crate) const fn is_adapted_as_whole(&self) -> bool {
        match *self {}
    }

    pub(crate) fn add_adapter(
        &self,
        _result: Tensor,
        _x: &Tensor,
        _dtype_and_scaling: (DType, f64),
        _project: impl FnOnce(&Tensor) -> Tensor,
    ) -> Tensor {
        match *self {}
    }
}

/// A quantized layer and its adapter, of which there are none.
#[expect(dead_code, reason = "nothing is computed of it here")]
pub(crate) struct Adapted<'a> {
    pub base: &'a Quantized,
    pub bias: Option<&'a Tensor>,
    pub down: &'a Tensor,
    pub up: &'a Tensor,
    pub scaling: f64,
    pub dropout: f64,
}

pub(crate) fn multiply_fused<const N: usize>(_layers: &[Adapted<'_>; N], _x: &Tensor) -> Option<[Tensor; N]> {
    None
}

/// The weights of all experts.
pub(crate) struct ExpertStack(Tensor);

impl ExpertStack {
    pub(crate) fn load(at: &Builder, name: &str, sizes: [u64; 3], _pieces: Option<(&str, u64)>, init: Init) -> Self {
        Self(at.parameter(name, &sizes, init))
    }

    /// What an access returns.
    pub(crate) fn access(&self) -> Tensor {
        self.0.clone()
    }

    /// The module's call returns.
    pub(crate) fn leave(&self, _value: Tensor) {}
}
