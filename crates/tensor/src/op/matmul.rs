//! Matrix products (Blas.cpp, LinearAlgebra.cpp, Linear.cpp): outputs, workspaces, and how `matmul` folds its
//! operands to two or three dimensions.

use crate::tensor::{NodeBuilder, Product, Saved, Shape, Tensor, cast_arguments, gradients};

/// Whether a matrix is column-major, the transpose of a contiguous one.
fn is_column_major(matrix: &Tensor) -> bool {
    let strides = matrix.strides();
    strides[0] == 1 && strides[1] == matrix.sizes()[0]
}

/// The gradient of the left factor (FunctionsManual.cpp, `mm_mat1_grad`).
fn left_gradient(grad: &Tensor, right: &Tensor, left_is_column_major: bool) -> Tensor {
    if left_is_column_major { right.mm(&grad.t()).t() } else { grad.mm(&right.t()) }
}

/// The gradient of the right factor (`mm_mat2_grad`): in the layout of the factor itself.
fn right_gradient(grad: &Tensor, left: &Tensor, right_is_column_major: bool) -> Tensor {
    if right_is_column_major { grad.t().mm(left).t() } else { left.t().mm(grad) }
}

/// Both saved factors in the order in which they were saved: a node unpacks all it saved before it computes, and holds it to its end.
fn unpack_both(first: &Option<Saved>, second: &Option<Saved>) -> (Option<Tensor>, Option<Tensor>) {
    (first.as_ref().map(Saved::unpack), second.as_ref().map(Saved::unpack))
}

impl Tensor {
    /// `mm(self, other)`
    pub fn mm(&self, other: &Tensor) -> Tensor {
        let [left, right] = cast_arguments([self, other]);
        let node = NodeBuilder::new("MmBackward0", [&left, &right]);
        let saved_right = node.save_for(0, &right);
        let saved_left = node.save_for(1, &left);
        let (left_columns, right_columns) = (is_column_major(&left), is_column_major(&right));
        let out = product("mm.default", &left, &right);
        node.finish(out, move |grad| {
            let (right, left) = unpack_both(&saved_right, &saved_left);
            let right_grad = left.as_ref().map(|left| right_gradient(grad, left, right_columns));
            let left_grad = right.as_ref().map(|right| left_gradient(grad, right, left_columns));
            gradients![left_grad, right_grad]
        })
    }

    /// `dot(self, other)` of two vectors
    pub fn dot(&self, other: &Tensor) -> Tensor {
        let node = NodeBuilder::new("DotBackward0", [self]);
        let saved = node.save(other);
        let out = Tensor::empty(self.context(), "dot.default", Shape::new(&[]), self.dtype());
        self.context().need_cublas_workspace("dot.default");
        node.finish(out, move |grad| gradients![saved.unpack().binary("mul.Tensor", grad, grad.dtype())])
    }

    /// `addmm(self, left, right)` with a bias vector.
    pub fn addmm(&self, left: &Tensor, right: &Tensor) -> Tensor {
        let [bias, left, right] = cast_arguments([self, left, right]);
        let node = NodeBuilder::new("AddmmBackward0", [&bias, &left, &right]);
        let saved_left = node.save_for(2, &left);
        let saved_right = node.save_for(1, &right);
        let needs_bias = node.needs(0);
        let (left_columns, right_columns) = (is_column_major(&left), is_column_major(&right));
        let out = product("addmm.default", &left, &right);
        // The bias goes into cuBLASLt's epilogue only for true matrices (Blas.cpp, `addmm_out_cuda_impl`).
        if right.sizes().iter().all(|&size| size > 1) {
            self.context().need_cublaslt_workspace("addmm.default");
        }
        node.finish(out, move |grad| {
            let (left, right) = unpack_both(&saved_left, &saved_right);
            let left_grad = right.as_ref().map(|right| left_gradient(grad, right, left_columns));
            let right_grad = left.as_ref().map(|left| right_gradient(grad, left, right_columns));
            gradients![needs_bias.then(|| grad.clone()), left_grad, right_grad]
        })
    }

    /// `addmm(self, left, right)` with a matrix of the result's size, outside autograd.
    pub fn add_product(&self, left: &Tensor, right: &Tensor) -> Tensor {
        debug_assert_eq!(self.sizes().len(), 2);
        product("addmm.default", left, right)
    }

    /// `addmm_(left, right)` into a matrix of the result's size, outside autograd.
    pub fn add_product_in_place(&self, left: &Tensor, right: &Tensor) {
        self.context().need_cublas_workspace("addmm_.default");
        count_product(left, right, self);
    }

    /// `bmm(self, other)` of two stacks of matrices
    pub fn bmm(&self, other: &Tensor) -> Tensor {
        let [left, right] = cast_arguments([self, other]);
        let node = NodeBuilder::new("BmmBackward0", [&left, &right]);
        let saved_right = node.save_for(0, &right);
        let saved_left = node.save_for(1, &left);
        let sizes = [left.size(0), left.size(1), right.size(2)];
        let out = Tensor::empty(left.context(), "bmm.default", Shape::new(&sizes), left.dtype());
        left.context().need_cublas_workspace("bmm.default");
        count_product(&left, &right, &out);
        node.finish(out, move |grad| {
            let (right, left) = unpack_both(&saved_right, &saved_left);
            let right_grad = left.as_ref().map(|left| left.transpose(1, 2).bmm(grad));
            let left_grad = right.as_ref().map(|right| grad.bmm(&right.transpose(1, 2)));
            gradients![left_grad, right_grad]
        })
    }

    /// `baddbmm(self, left, right, beta=0, alpha)`: what it is added to is not read, and needs no gradient.
    pub fn baddbmm(&self, left: &Tensor, right: &Tensor, alpha: f64) -> Tensor {
        let node = NodeBuilder::new("BaddbmmBackward0", [left, right]);
        let saved_left = node.save_for(1, left);
        let saved_right = node.save_for(0, right);
        let sizes = [left.size(0), left.size(1), right.size(2)];
        let out = Tensor::empty(self.context(), "baddbmm.default", Shape::new(&sizes), left.dtype());
        self.context().need_cublas_workspace("baddbmm.default");
        count_product(left, right, &out);
        // `maybe_multiply` (FunctionsManual.cpp) leaves a factor of 1 out.
        let is_scaled = alpha.to_bits() != 1_f64.to_bits();
        let scale = move |grad: Tensor| if is_scaled { grad.mul_scalar(alpha) } else { grad };
        node.finish(out, move |grad| {
            let (left, right) = unpack_both(&saved_left, &saved_right);
            let left_grad = right.as_ref().map(|right| scale(grad.bmm(&right.transpose(1, 2))));
            let right_grad = left.as_ref().map(|left| scale(left.transpose(1, 2).bmm(grad)));
            gradients![left_grad, right_grad]
        })
    }

    /// `matmul(self, other)`: folded to `mm` when the right side is a matrix, else batched.
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let [left, right] = cast_arguments([self, other]);
        match (left.sizes().len(), right.sizes().len()) {
            (2, 2) => left.mm(&right),
            (_, 2) if left.folds_before(&right) => left.matmul_folded(&right),
            _ => left.matmul_batched(&right),
        }
    }

    /// Whether a product with a matrix is one of matrices (LinearAlgebra.cpp, `should_fold`): where the matrix is trained, or its rows
    /// lie as those of a matrix.
    fn folds_before(&self, matrix: &Tensor) -> bool {
        let (sizes, strides) = (*self.sizes(), self.strides());
        let lies_as_rows = |at: usize| strides[at] == strides[at + 1].saturating_mul(sizes[at + 1]);
        matrix.requires_grad() || (0..sizes.len().saturating_sub(2)).all(lies_as_rows)
    }

    fn matmul_folded(&self, matrix: &Tensor) -> Tensor {
        let rows = self.numel() / self.size(-1).max(1);
        let folded = self.reshape(&[rows, self.size(-1)]);
        let out_sizes = self.sizes().with(self.sizes().len() - 1, matrix.size(1));
        folded.mm(matrix).unsafe_view(out_sizes)
    }

    fn matmul_batched(&self, other: &Tensor) -> Tensor {
        let rank = self.sizes().len().max(other.sizes().len());
        let batch: Vec<u64> = self.sizes()[..rank - 2].to_vec();
        let count: u64 = batch.iter().product();
        let fold = |side: &Tensor| {
            let (rows, columns) = (side.size(-2), side.size(-1));
            let expanded = side.expand(&[&batch[..], &[rows, columns]].concat());
            expanded.reshape(&[count, rows, columns])
        };
        let (left, right) = (fold(self), fold(other));
        let out_sizes = Shape::new(&[&batch[..], &[self.size(-2), other.size(-1)]].concat());
        left.bmm(&right).unsafe_view(out_sizes)
    }
}

fn product(op: &'static str, left: &Tensor, right: &Tensor) -> Tensor {
    let sizes = Shape::new(&[left.size(0), right.size(1)]);
    let out = Tensor::empty(left.context(), op, sizes, left.dtype());
    left.context().need_cublas_workspace(op);
    count_product(left, right, &out);
    out
}

/// Counts a product of two matrices, or of two stacks of them, that writes `out`: as torch.utils.flop_counter does for
/// mm, addmm, bmm and baddbmm, whose biases it leaves out.
pub(super) fn count_product(left: &Tensor, right: &Tensor, out: &Tensor) {
    count_sums(left.size(-1), [left, right], out);
}

/// The same of a product each of whose elements is a sum of `terms`, however the operands are laid out.
pub(super) fn count_sums(terms: u64, [left, right]: [&Tensor; 2], out: &Tensor) {
    out.context().count_product(&Product {
        dtype: left.dtype(),
        flops: out.numel().saturating_mul(terms).saturating_mul(2),
        skipped: 0,
        read: left.bytes().saturating_add(right.bytes()),
        written: out.bytes(),
    });
}
