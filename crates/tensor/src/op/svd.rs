//! Singular values (BatchLinearAlgebra.cpp, BatchLinearAlgebraLib.cpp): cuSOLVER's Jacobi method, PyTorch's default on the GPU.

use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};

/// The operator's name.
pub const SVD: &str = "_linalg_svd.default";

/// Elements that a block of cuSOLVER's workspace begins at a multiple of.
const ALIGNED: u64 = 32;

/// Elements of the workspace of a rows x columns matrix (`cusolverDnSgesvdj_bufferSize` of cuSOLVER 12.0, asked on the host for 3,000 sizes):
/// a matrix that is not square is factored first, and what is left is square.
pub fn jacobi_workspace(rows: u64, columns: u64) -> u64 {
    let (least, most) = (rows.min(columns), rows.max(columns));
    if least == most {
        return jacobi_workspace_of_square(least);
    }
    let factor = least.saturating_mul(least).next_multiple_of(ALIGNED);
    let whole = rows.saturating_mul(columns).next_multiple_of(ALIGNED);
    factor.saturating_add(whole.max(jacobi_workspace_of_square(least)))
}

/// The same of a square one: exact where its size is a multiple of 32, else within 128 bytes.
fn jacobi_workspace_of_square(size: u64) -> u64 {
    let (elements, blocks) = (size.saturating_mul(size), size.div_ceil(32));
    let pairs = elements.saturating_add(size + blocks + 4 * blocks * blocks);
    let of_blocks = 1024 * (2 * blocks + 1);
    elements.next_multiple_of(ALIGNED).saturating_add(pairs.next_multiple_of(ALIGNED)).saturating_add(of_blocks)
}

/// The largest square matrix of which cuSOLVER can count the workspace, in 32 bits: of larger ones it says that they need none, and fails.
pub fn largest_of_svd() -> u64 {
    let fits = |size: &u64| i32::try_from(jacobi_workspace_of_square(*size)).is_ok();
    (0..=32_768).rev().find(fits).unwrap_or(0)
}

impl Tensor {
    /// `torch.linalg.svd(self, full_matrices=False)` of a matrix in fp32, outside autograd: U, S and Vh.
    pub fn svd(&self) -> [Self; 3] {
        let (rows, columns) = (self.size(0), self.size(1));
        let least = rows.min(columns);
        let make = |sizes: &[u64]| Self::empty(self.context(), SVD, Shape::new(sizes), self.dtype());
        let [left, right, values] = [make(&[rows, least]), make(&[least, columns]), make(&[least])];
        let info = Self::empty(self.context(), SVD, Shape::new(&[]), DType::Int32);
        let copy = make(&[rows, columns]);
        let workspace = match rows.max(columns) {
            // Small ones go to a kernel for squares.
            most @ ..=32 if rows != columns => most * most,
            0..=32 => 0,
            _ => jacobi_workspace(rows, columns),
        };
        if workspace > 0 {
            drop(Self::scratch(self.context(), SVD, workspace.saturating_mul(self.dtype().size())));
        }
        drop(copy);
        // Whether it came to its end is looked up on the device: `info.any().item()`.
        let _failed = [info.map("ne.Scalar", DType::Bool), info.map("any.default", DType::Bool)];
        [left, values, right]
    }
}

#[cfg(test)]
mod tests {
    use super::{jacobi_workspace, largest_of_svd};

    /// Asked on the host as well: of 32,719 rows 2,147,381,952 elements, of 32,720 none.
    #[test]
    fn larger_squares_are_beyond_cusolvers_count() {
        assert_eq!(largest_of_svd(), 32_719);
    }

    #[test]
    fn workspaces_are_as_cusolver_answers() {
        for (rows, columns, elements) in [
            (32, 32, 5184),
            (1024, 1024, 2_168_864),
            (4096, 4096, 33_887_360),
            (300, 700, 300_032),
            (700, 300, 300_032),
            (1024, 512, 821_792),
            (128, 32, 6208),
            (11008, 4096, 61_865_984),
        ] {
            assert_eq!(jacobi_workspace(rows, columns), elements, "{rows} x {columns}");
        }
    }
}
