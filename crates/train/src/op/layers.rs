//! Matrix products, norms, embeddings and losses.

use tonnage_torch::{Argument, operator};

use crate::tensor::{Tensor, ints};

/// What labels that no loss counts hold (`ignore_index`).
const IGNORED: i64 = -100;

/// What a loss makes of its rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// A value for each.
    None = 0,
    /// `reduction="mean"`, by its number in PyTorch, as the others are.
    Mean = 1,
    /// `reduction="sum"`
    Sum = 2,
}

impl Tensor {
    /// `matmul(self, other)`
    pub(crate) fn matmul(&self, other: &Tensor) -> Tensor {
        self.run(operator!("matmul"), [other.into()])
    }

    /// `linear(self, weight, bias)`
    pub(crate) fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        self.run(operator!("linear"), [weight.into(), bias.map_or(Argument::None, Argument::from)])
    }

    /// Hugging Face's `Conv1D`: `addmm(bias, self, weight)` of rows.
    pub(crate) fn conv1d(&self, weight: &Tensor, bias: &Tensor) -> Tensor {
        let product = {
            let rows = self.view(&[self.numel() / self.size(-1).max(1), self.size(-1)]);
            bias.run(operator!("addmm"), [(&rows).into(), weight.into()])
        };
        product.view(&self.sizes().with(self.sizes().len() - 1, weight.size(1)))
    }

    /// `baddbmm(self, left, right, beta=0, alpha)`
    pub(crate) fn baddbmm(&self, left: &Tensor, right: &Tensor, alpha: f64) -> Tensor {
        self.run(operator!("baddbmm"), [left.into(), right.into(), Argument::Int(0), alpha.into()])
    }

    /// `layer_norm(self, weight, bias, eps)` over the last dimension
    pub(crate) fn layer_norm(&self, weight: &Tensor, bias: &Tensor, eps: f64) -> Tensor {
        self.run(operator!("layer_norm"), [ints(weight.sizes()), weight.into(), bias.into(), eps.into()])
    }

    /// The same without a bias.
    pub(crate) fn layer_norm_unbiased(&self, weight: &Tensor, eps: f64) -> Tensor {
        self.run(operator!("layer_norm"), [ints(weight.sizes()), weight.into(), Argument::None, eps.into()])
    }

    /// The same without weight and bias.
    pub(crate) fn layer_norm_unweighted(&self, eps: f64) -> Tensor {
        let sizes = ints(&self.sizes()[self.sizes().len().saturating_sub(1)..]);
        self.run(operator!("layer_norm"), [sizes, Argument::None, Argument::None, eps.into()])
    }

    /// `gather(self, 0, indices.expand(...))`
    pub(crate) fn gather_rows(&self, indices: &Tensor) -> Tensor {
        let mut sizes = self.sizes().to_vec();
        sizes[0] = indices.size(0);
        self.run(operator!("gather"), [Argument::Int(0), (&indices.expand(&sizes)).into()])
    }

    /// `conv2d(self, weight, bias, stride)`
    pub(crate) fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, stride: [u64; 2]) -> Tensor {
        let bias = bias.map_or(Argument::None, Argument::from);
        self.run(operator!("conv2d"), [weight.into(), bias, ints(&stride)])
    }

    /// `embedding(self as the weight, ids, padding_idx)`
    pub(crate) fn embedding(&self, ids: &Tensor, padding_idx: Option<u64>) -> Tensor {
        let padding_idx = padding_idx.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1);
        self.run(operator!("embedding"), [ids.into(), padding_idx.into()])
    }

    /// `gather(self, -1, indices)`
    pub(crate) fn gather(&self, indices: &Tensor) -> Tensor {
        self.run(operator!("gather"), [Argument::Int(-1), indices.into()])
    }

    /// `pad(labels, (0, 1), value=ignore_index)`: one more position, ignored by the loss.
    pub(crate) fn pad_labels(&self) -> Tensor {
        self.run(operator!("constant_pad_nd"), [[0, 1].into(), IGNORED.into()])
    }

    /// `pad(self, (0, size - self.size(-1)))`
    pub(crate) fn pad_last(&self, size: u64) -> Tensor {
        let more = i64::try_from(size.saturating_sub(self.size(-1))).unwrap_or(i64::MAX);
        self.run(operator!("constant_pad_nd"), [[0, more].into()])
    }

    /// `pad(self, (count, 0))`
    pub(crate) fn pad_before(&self, count: u64) -> Tensor {
        self.run(operator!("constant_pad_nd"), [[i64::try_from(count).unwrap_or(i64::MAX), 0].into()])
    }

    /// `binary_cross_entropy_with_logits(self, target, reduction="sum")`
    pub(crate) fn binary_cross_entropy_with_logits(&self, target: &Tensor) -> Tensor {
        let sum = Argument::Int(2);
        self.run(operator!("binary_cross_entropy_with_logits"), [target.into(), Argument::None, Argument::None, sum])
    }

    /// `cross_entropy(self, target)` of [rows, classes]
    pub(crate) fn cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Tensor {
        let arguments = [target.into(), Argument::None, Argument::Int(reduction as i64), IGNORED.into(), 0.0.into()];
        self.run(operator!("cross_entropy_loss"), arguments)
    }
}
