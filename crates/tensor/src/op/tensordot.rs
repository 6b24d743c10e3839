//! Products along dimensions of tensors of any order (Linear.cpp, `tensordot`), outside autograd, as optimizers compute them.

use crate::tensor::Tensor;

impl Tensor {
    /// `movedim(at, 0)`: one dimension first, the others as they are.
    #[must_use]
    pub fn moved_first(&self, at: usize) -> Tensor {
        (0..at).rev().fold(self.clone(), |view, before| view.transpose(before, before + 1))
    }

    /// One dimension last, the others as they are.
    #[must_use]
    pub fn moved_last(&self, at: usize) -> Tensor {
        (at + 1..self.sizes().len()).fold(self.clone(), |view, after| view.transpose(after - 1, after))
    }

    /// `tensordot(self, self)` along all dimensions but one: a square matrix.
    #[must_use]
    pub fn gram_along(&self, at: usize) -> Tensor {
        let size = self.sizes()[at];
        let rest = self.numel().checked_div(size).unwrap_or(0);
        let ones = (0..self.sizes().len()).filter(|&other| other != at && self.sizes()[other] == 1).count();
        let left = (0..ones).fold(self.clone(), |left, _| left.sum_of_one());
        left.moved_first(at).reshape(&[size, rest]).mm(&self.moved_last(at).reshape(&[rest, size]))
    }

    /// `tensordot(self, matrix, dims=[[0], [0]])`, or with the matrix's second dimension: its first goes, the other one of the matrix is the last.
    #[must_use]
    pub fn dot_first(&self, matrix: &Tensor, transposes: bool) -> Tensor {
        let size = self.size(0);
        let left = if size == 1 { self.sum_of_one() } else { self.clone() };
        let rest = self.numel().checked_div(size).unwrap_or(0);
        let right = if transposes { matrix.t() } else { matrix.clone() };
        let mut sizes = self.sizes().to_vec();
        sizes.rotate_left(1);
        left.moved_last(0).reshape(&[rest, size]).mm(&right).reshape(&sizes)
    }

    /// The sum along a dimension of one, which is kept: PyTorch sums those up before the product.
    fn sum_of_one(&self) -> Tensor {
        self.unary("sum.dim_IntList", self.dtype())
    }
}
