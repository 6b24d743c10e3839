//! PyTorch's operators that GRPO calls beside those of models.

use tonnage_torch::{Argument, ScalarType, operator};

use crate::tensor::{Tensor, or_stop};

impl Tensor {
    /// `torch.clamp(self, least, most)`
    pub(super) fn clamp_to(&self, least: Option<f64>, most: Option<f64>) -> Self {
        let bound = |bound: Option<f64>| bound.map_or(Argument::None, Argument::from);
        self.run(operator!("clamp"), [bound(least), bound(most)])
    }

    /// `torch.min(self, other)`
    pub(super) fn minimum_of(&self, other: &Self) -> Self {
        self.run(operator!("minimum"), [other.into()])
    }

    /// `self.sum()`
    pub(super) fn sum_all(&self) -> Self {
        self.run(operator!("sum"), [])
    }

    /// `self.sum(-1)`
    pub(super) fn sum_over_last(&self) -> Self {
        self.run(operator!("sum", "dim_IntList"), [[-1].into()])
    }

    /// `self.mean()`
    pub(super) fn mean_all(&self) -> Self {
        self.run(operator!("mean"), [])
    }

    /// `self.detach()`
    pub(super) fn detached(&self) -> Self {
        self.run(operator!("detach"), [])
    }

    /// `torch.log_softmax(self, dim=-1)`
    pub(super) fn log_softmax_last(&self) -> Self {
        self.run(operator!("log_softmax", "int"), [Argument::Int(-1)])
    }

    /// `torch.logsumexp(self, dim=-1)`
    pub(super) fn logsumexp_last(&self) -> Self {
        self.run(operator!("logsumexp"), [[-1].into()])
    }

    /// `torch.gather(self, dim=-1, index=index.unsqueeze(-1)).squeeze(-1)`
    pub(super) fn gather_last(&self, index: &Self) -> Self {
        let last = index.sizes().len();
        self.gather(&index.unsqueeze(last)).squeeze(last)
    }

    /// `self.unbind(0)`: what `for row in tensor` gives.
    pub(super) fn rows(&self) -> Vec<Self> {
        let parts = self.context().torch.call(operator!("unbind", "int"), &[self.into(), Argument::Int(0)]);
        let parts = or_stop(parts).tensors();
        parts.into_iter().map(|part| Self::of(self.context(), part)).collect()
    }

    /// `torch.multinomial(self, num_samples=1)`
    pub(super) fn multinomial_one(&self) -> Self {
        self.run(operator!("multinomial"), [Argument::Int(1)])
    }

    /// `torch.isin(self, others)`
    pub(super) fn is_in(&self, others: &Self) -> Self {
        self.run(operator!("isin", "Tensor_Tensor"), [others.into()])
    }

    /// `self.any()`
    pub(super) fn any_of(&self) -> Self {
        self.run(operator!("any"), [])
    }

    /// `tensor[indices]` along the first dimension.
    pub(super) fn rows_at(&self, indices: &Self) -> Self {
        crate::op::index(self, &[], &[Some(indices)])
    }

    /// Numbers on the host; half precision is widened.
    pub(super) fn numbers_on_host(&self) -> Vec<f32> {
        let single = self.run(operator!("to", "dtype"), [ScalarType::Float32.into()]);
        or_stop(single.inner().to_vec::<f32>())
    }

    /// Its only number on the host.
    pub(super) fn host_value(&self) -> f64 {
        self.numbers_on_host().first().copied().map_or(f64::NAN, f64::from)
    }

    /// Its only truth value on the host.
    pub(super) fn host_truth(&self) -> bool {
        or_stop(self.inner().to_vec::<bool>()).first().copied().unwrap_or_default()
    }
}

/// `torch.stack(tensors)`
pub(super) fn stack(tensors: &[Tensor]) -> Tensor {
    let first = &tensors[0];
    let parts = Argument::tensors(tensors.iter().map(Tensor::inner));
    let made = first.context().torch.call(operator!("stack"), &[parts]);
    Tensor::of(first.context(), or_stop(made.and_then(|made| made.tensor())))
}

/// int64 numbers of the host on the device, [rows, tokens].
pub(super) fn whole_numbers(context: &std::rc::Rc<crate::tensor::Context>, numbers: &[i64], sizes: &[u64]) -> Tensor {
    let sizes: Vec<i64> = sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    let host = or_stop(context.torch.tensor(numbers, &sizes));
    Tensor::of(context, or_stop(host.to_device(context.device)))
}

/// fp32 numbers of the host on the device.
pub(super) fn real_numbers(context: &std::rc::Rc<crate::tensor::Context>, numbers: &[f32], sizes: &[u64]) -> Tensor {
    let sizes: Vec<i64> = sizes.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    let host = or_stop(context.torch.tensor(numbers, &sizes));
    Tensor::of(context, or_stop(host.to_device(context.device)))
}
