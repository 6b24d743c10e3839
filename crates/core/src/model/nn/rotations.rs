//! Rotary embeddings that turn neighbours in a head, and those that turn a part of each head.

use crate::op::{cat, stack_last};
use crate::tensor::Tensor;

/// `x.repeat_interleave(2, dim=-1)`: every number twice in a row.
pub(crate) fn repeat_interleave(x: &Tensor) -> Tensor {
    let rank = x.sizes().len();
    let (mut twice, mut joined) = (x.sizes().to_vec(), x.sizes().to_vec());
    twice.push(2);
    joined[rank - 1] *= 2;
    x.unsqueeze(rank).expand(&twice).reshape(&joined)
}

/// `x * cos + rotate_half(x) * sin` where neighbours are turned.
pub(crate) fn rotate_pairs(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let kept = x * cos;
    let turned = {
        let rotated = rotate_every_two(x);
        &rotated * sin
    };
    &kept + &turned
}

/// `stack((-x2, x1), dim=-1).flatten(-2)`
fn rotate_every_two(x: &Tensor) -> Tensor {
    let x1 = x.every_other(0);
    let x2 = x.every_other(1);
    let negated = x2.neg();
    stack_last([&negated, &x1]).reshape(x.sizes())
}

/// `cat((first * cos - second * sin, second * cos + first * sin), dim=-1)` of two halves, [batch, heads, tokens, half] each
pub(crate) fn rotate_halves(first: &Tensor, second: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let left = {
        let (kept, turned) = (first * cos, second * sin);
        &kept - &turned
    };
    let right = {
        let (kept, turned) = (second * cos, first * sin);
        &kept + &turned
    };
    cat(&[&left, &right], 3)
}

/// `torch.view_as_real(x * freqs_cis).flatten(3)` of complex numbers
pub(crate) fn rotate_complex(x: &Tensor, freqs_cis: &Tensor) -> Tensor {
    x.mul_complex(freqs_cis).as_real()
}

/// `x[..., :rotary_dim], x[..., rotary_dim:]`
pub(crate) fn split_rotary(x: &Tensor, rotary_dim: u64) -> (Tensor, Tensor) {
    let (last, width) = (x.sizes().len() - 1, x.size(-1));
    let first = if rotary_dim == width { x.alias_all() } else { x.slice(last, 0..rotary_dim) };
    (first, x.slice(last, rotary_dim..width))
}
