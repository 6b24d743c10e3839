//! Building one rank's part of a model whose layers several ranks share, or whose parameters DeepSpeed divides as they load.

use super::super::split::Split;
use super::Builder;
use crate::host::HostKind;
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

/// How parameters are divided as they load.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    /// Ranks that have a part of each.
    pub ranks: u64,
    /// `offload_param`
    pub offloaded: Option<HostKind>,
}

impl Builder {
    /// The same model, of whose layers so many ranks have a part each; the sizes of its config are a part's already.
    pub(crate) fn over_ranks(self, ranks_of_layers: Option<u64>) -> Self {
        self.set(|settings| settings.ranks_of_layers = ranks_of_layers)
    }

    /// What ranks send each other round this module.
    pub(super) fn split(&self) -> Option<Split> {
        let ranks = self.ranks_of_layers?;
        if self.is_tied { Some(Split::of_rows(ranks)) } else { Split::of_layer(&self.path, ranks) }
    }

    /// The same place, an embedding that a head is tied to if `is_tied`: ranks have the head's rows of it.
    pub(crate) fn tied_to_head(&self, is_tied: bool) -> Self {
        self.clone().set(|settings| settings.is_tied = is_tied)
    }

    /// The sizes of this rank's part of a parameter: of a head's weight the config says all rows.
    pub(super) fn own_sizes(&self, sizes: &[u64]) -> Shape {
        let whole = Shape::new(sizes);
        match (self.split(), self.ranks_of_layers, sizes.first()) {
            (Some(split), Some(ranks), Some(rows)) if split.divides_rows() => whole.with(0, rows / ranks),
            _ => whole,
        }
    }

    /// Notes a parameter of a layer that ranks share.
    pub(super) fn note_divided(&self, parameter: &Tensor) {
        if self.split().is_some_and(Split::divides_weight) {
            self.built.borrow_mut().divided.push(parameter.clone());
        }
    }

    /// The parameters that are divided over ranks.
    pub(crate) fn divided(&self) -> Vec<Tensor> {
        self.built.borrow().divided.clone()
    }

    /// `deepspeed.zero.Init`: this rank's part is copied out of the parameter, which goes.
    pub(super) fn keep_part(&self, parameter: Tensor) -> Tensor {
        if let Some(Parts { ranks, offloaded }) = self.parts {
            let sizes = Shape::new(&[parameter.numel().div_ceil(ranks)]);
            let part = match offloaded {
                Some(kind) => {
                    let _module = self.context.host().enter_module(self.module_id());
                    Tensor::on_host(&self.context, sizes, parameter.dtype(), (kind, Category::Parameter))
                }
                None => {
                    let _module = self.context.enter_module(self.module_id());
                    let _category = self.context.enter_category(Category::Parameter);
                    Tensor::empty(&self.context, "empty.memory_format", sizes, parameter.dtype())
                }
            };
            parameter.clear_data();
            self.built.borrow_mut().parts.push((parameter.clone(), part));
        }
        parameter
    }

    /// The parts of parameters that were loaded so.
    pub(crate) fn take_parts(&self) -> Vec<(Tensor, Tensor)> {
        std::mem::take(&mut self.built.borrow_mut().parts)
    }
}
