//! Eigenvectors and orthogonal factors of square matrices (BatchLinearAlgebra.cpp, BatchLinearAlgebraLib.cpp), outside autograd. cuSOLVER
//! computes them, and says what workspaces it takes where there is a GPU alone: those here are LAPACK's of the same decompositions.

use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};

/// The operators' names.
pub const EIGH: &str = "_linalg_eigh.default";
const QR: &str = "linalg_qr.default";

/// Columns that LAPACK factors at a time.
const BLOCK: u64 = 64;

/// Elements of the workspace of a symmetric matrix's eigenvectors: LAPACK's xSYEVD.
pub fn eigenvector_workspace(size: u64) -> u64 {
    size.saturating_mul(size).saturating_mul(2).saturating_add(6 * size + 1)
}

impl Tensor {
    /// A matrix by columns, as LAPACK keeps it.
    fn by_columns(&self, op: &'static str) -> Tensor {
        let [rows, columns] = [self.size(0), self.size(1)];
        Self::empty(self.context(), op, Shape::new(&[columns, rows]), self.dtype()).t()
    }

    /// A workspace of so many elements, and gone again.
    fn touch(&self, op: &'static str, elements: u64) {
        drop(Self::scratch(self.context(), op, elements.saturating_mul(self.dtype().size())));
    }

    /// `torch.linalg.eigh(self)`: eigenvalues and eigenvectors. No kernel takes 16 bits: PyTorch raises when the results have their places,
    /// which go.
    pub fn eigh(&self) -> Option<[Self; 2]> {
        let vectors = self.by_columns(EIGH);
        let values = Self::empty(self.context(), EIGH, Shape::new(&[self.size(0)]), self.dtype());
        let info = Self::empty(self.context(), EIGH, Shape::new(&[]), DType::Int32);
        if self.dtype().is_half() {
            return None;
        }
        self.touch(EIGH, eigenvector_workspace(self.size(0)));
        // Whether it came to its end is looked up on the device: `info.any().item()`.
        let _failed = [info.map("ne.Scalar", DType::Bool), info.map("any.default", DType::Bool)];
        Some([values, vectors])
    }

    /// `torch.linalg.qr(self)` of a square matrix: the orthogonal factor and the triangular one.
    pub fn qr(&self) -> [Self; 2] {
        let size = self.size(0);
        let [orthogonal, triangular] = [self.by_columns(QR), self.by_columns(QR)];
        let _scales = Self::empty(self.context(), QR, Shape::new(&[size]), self.dtype());
        // geqrf, then orgqr.
        for _ in 0..2 {
            let _info = Self::empty(self.context(), QR, Shape::new(&[]), DType::Int32);
            self.touch(QR, size.saturating_mul(BLOCK));
        }
        [orthogonal, triangular]
    }
}
