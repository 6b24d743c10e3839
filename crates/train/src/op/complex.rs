//! Complex numbers, which are pairs of fp32 in a last dimension of two between these.

use tonnage_torch::operator;

use crate::tensor::{Tensor, ints};

/// The sizes with the last of them in pairs, or with the pairs joined.
fn sizes_of(tensor: &Tensor, in_pairs: bool) -> Vec<u64> {
    let mut sizes = tensor.sizes().to_vec();
    let last = sizes.pop().unwrap_or(1);
    if in_pairs {
        sizes.extend([last / 2, 2]);
    } else if let Some(pairs) = sizes.last_mut() {
        *pairs *= last;
    }
    sizes
}

impl Tensor {
    /// `torch.view_as_real(torch.polar(torch.ones_like(self), self))`
    pub(crate) fn polar(&self) -> Tensor {
        let ones = self.run(operator!("ones_like"), []);
        ones.run(operator!("polar"), [self.into()]).run(operator!("view_as_real"), [])
    }

    /// `self.float().reshape(*self.shape[:-1], -1, 2)`
    pub(crate) fn as_complex(&self) -> Tensor {
        self.float().run(operator!("reshape"), [ints(&sizes_of(self, true))])
    }

    /// `self.flatten(-2)`
    pub(crate) fn as_real(&self) -> Tensor {
        self.run(operator!("reshape"), [ints(&sizes_of(self, false))])
    }

    /// `torch.view_as_real(torch.view_as_complex(self) * torch.view_as_complex(other))`
    pub(crate) fn mul_complex(&self, other: &Tensor) -> Tensor {
        let [this, other] = [self, other].map(|pairs| pairs.run(operator!("view_as_complex"), []));
        this.run(operator!("mul", "Tensor"), [(&other).into()]).run(operator!("view_as_real"), [])
    }
}
