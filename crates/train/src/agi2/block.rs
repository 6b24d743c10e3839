//! A block: attention whose scores are tensors of their own, and a feed-forward.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tonnage_torch::{Argument, ScalarType, Tensor, TorchError, operator};

use super::ops::{add, dropout, matmul, transposed};

/// `nn.LayerNorm`'s.
const EPS: f64 = 1e-5;
/// What a masked score becomes, in half precision and otherwise.
const HIDDEN: (f64, f64) = (-1e4, -1e9);

/// A weight and a bias.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub weight: Tensor,
    pub bias: Tensor,
}

impl Affine {
    fn linear(&self, x: &Tensor) -> Result<Tensor, TorchError> {
        x.torch().call(operator!("linear"), &[x.into(), (&self.weight).into(), (&self.bias).into()])?.tensor()
    }

    pub fn norm(&self, x: &Tensor) -> Result<Tensor, TorchError> {
        let width = [self.weight.numel()];
        let arguments = [x.into(), width.into(), (&self.weight).into(), (&self.bias).into(), EPS.into()];
        x.torch().call(operator!("layer_norm"), &arguments)?.tensor()
    }
}

/// `TransformerBlock`
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub query: Affine,
    pub key: Affine,
    pub value: Affine,
    pub out: Affine,
    pub up: Affine,
    pub down: Affine,
    pub before_attention: Affine,
    pub before_feed_forward: Affine,
    pub heads: i64,
    /// `attn_pdrop`, which this trainer takes for all dropouts of a block.
    pub dropout: f64,
    pub trains: Arc<AtomicBool>,
}

impl Block {
    fn dropped(&self, x: &Tensor) -> Result<Tensor, TorchError> {
        dropout(x, self.dropout, self.trains.load(Ordering::Relaxed))
    }

    fn split(&self, projected: &Tensor) -> Result<Tensor, TorchError> {
        let torch = projected.torch();
        let sizes = projected.sizes();
        let split = [sizes[0], sizes[1], self.heads, sizes[2] / self.heads];
        let view = torch.call(operator!("view"), &[projected.into(), split.into()])?.tensor()?;
        transposed(&view, 1, 2)
    }

    /// Blocks and assignments are Python's: temporaries go with their expression, an old value after the new one.
    fn attend(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor, TorchError> {
        let torch = x.torch();
        let query = self.split(&self.query.linear(x)?)?;
        let key = self.split(&self.key.linear(x)?)?;
        let value = self.split(&self.value.linear(x)?)?;
        let mut scores = {
            let product = matmul(&query, &transposed(&key, -2, -1)?)?;
            let width = query.sizes().last().copied().unwrap_or(1) as f64;
            torch.call(operator!("div", "Scalar"), &[(&product).into(), width.sqrt().into()])?.tensor()?
        };
        let hidden = if scores.scalar_type()? == ScalarType::Float16 { HIDDEN.0 } else { HIDDEN.1 };
        scores = {
            let hides = torch.call(operator!("eq", "Scalar"), &[mask.into(), 0_i64.into()])?.tensor()?;
            let arguments = [(&scores).into(), (&hides).into(), hidden.into()];
            torch.call(operator!("masked_fill", "Scalar"), &arguments)?.tensor()?
        };
        let mut weights = torch.call(operator!("softmax", "int"), &[(&scores).into(), (-1_i64).into()])?.tensor()?;
        weights = self.dropped(&weights)?;
        let mut context = matmul(&weights, &value)?;
        context = {
            let turned = transposed(&context, 1, 2)?;
            let whole = torch.call(operator!("contiguous"), &[(&turned).into()])?.tensor()?;
            torch.call(operator!("view"), &[(&whole).into(), Argument::ints(&x.sizes())])?.tensor()?
        };
        self.out.linear(&context)
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor, TorchError> {
        let mut x = self.up.linear(x)?;
        x = x.torch().call(operator!("gelu"), &[(&x).into()])?.tensor()?;
        x = self.dropped(&x)?;
        x = self.down.linear(&x)?;
        self.dropped(&x)
    }

    pub fn forward(&self, residual: &Tensor, mask: &Tensor) -> Result<Tensor, TorchError> {
        let mut x = self.before_attention.norm(residual)?;
        x = self.attend(&x, mask)?;
        x = self.dropped(&x)?;
        x = add(residual, &x)?;
        let residual = x.clone();
        x = self.before_feed_forward.norm(&x)?;
        x = self.feed_forward(&x)?;
        add(&residual, &x)
    }
}
