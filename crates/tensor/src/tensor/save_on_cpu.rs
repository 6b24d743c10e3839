//! `torch.autograd.graph.save_on_cpu` (PyTorch 2.11): all that nodes save lies on the host until its node runs.

use std::rc::Rc;

use super::context::Context;
use super::handle::Tensor;
use super::layout::Layout;
use super::meta::TensorMeta;
use super::saved::{EnteredHooks, Hooks, Keeper, Packed, Saved};
use crate::host::HostKind;
use tonnage_alloc::trace::Category;

/// The hooks, whose host memory is pinned or not.
#[derive(Clone, Copy)]
pub struct SaveOnCpu(pub HostKind);

impl SaveOnCpu {
    /// `with save_on_cpu():`
    pub fn enter(self, context: &Rc<Context>) -> EnteredHooks {
        EnteredHooks::enter(context, Rc::new(self))
    }
}

/// A tensor on the host, and how it lies there.
struct OnHost {
    held: Tensor,
    meta: TensorMeta,
    of: Rc<Context>,
}

impl Hooks for SaveOnCpu {
    fn pack(self: Rc<Self>, tensor: &Tensor) -> Saved {
        if tensor.allocation().is_none() {
            return Saved::Tensor(tensor.detached());
        }
        // Pageable memory is made by `tensor.cpu()`, which keeps strides, page-locked by `torch.empty`, which does not.
        let layout = match self.0 {
            HostKind::Pageable => tensor.dense_layout(),
            HostKind::Pinned => Layout::contiguous(*tensor.sizes()),
        };
        let held = tensor.to_host((self.0, Category::Activation));
        if layout != *tensor.layout() {
            // A copy between devices that are strided differently goes through one that is not.
            drop(Tensor::from(tensor.detached()).clone_contiguous());
        }
        let meta = TensorMeta { layout, dtype: tensor.dtype() };
        Packed::by(Rc::new(OnHost { held, meta, of: Rc::clone(tensor.context()) }), 0)
    }

    fn copies(&self) -> bool {
        true
    }
}

impl Keeper for OnHost {
    fn unpack(self: Rc<Self>, _at: u64) -> Tensor {
        self.of.count_link(self.held.bytes());
        Tensor::empty_strided(&self.of, "_to_copy.default", self.meta.layout.clone(), self.meta.dtype)
    }
}
