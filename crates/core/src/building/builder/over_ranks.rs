//! Building one rank's part of a model whose layers several ranks share.

use super::super::module::Module;
use super::super::split::Split;
use super::{Builder, Init};
use crate::tensor::{Shape, Tensor};

impl Builder {
    /// The same model, of whose layers so many ranks have a part each; the sizes of its config are a part's already.
    pub(crate) fn over_ranks(self, ranks_of_layers: Option<u64>) -> Self {
        Self { ranks_of_layers, ..self }
    }

    /// What ranks send each other round this module.
    pub(super) fn split(&self) -> Option<Split> {
        self.ranks_of_layers.and_then(|ranks| Split::of_layer(&self.path, ranks))
    }

    /// This module, an embedding that a head is tied to.
    pub(crate) fn tied_module(&self) -> Module {
        let split = self.ranks_of_layers.map(Split::of_rows);
        if split.is_some() { self.module().over_ranks(split) } else { self.module() }
    }

    /// This rank's rows of the head's weight, of which the config says all.
    pub(super) fn part_of_head(&self, name: &str, sizes: &[u64], init: Init) -> Tensor {
        let whole = Shape::new(sizes);
        let rows = sizes.first().map_or(0, |rows| rows / self.ranks_of_layers.unwrap_or(1));
        let part = self.parameter(name, &whole.with(0, rows), init);
        self.built.borrow_mut().divided.push(part.clone());
        part
    }

    /// Notes a parameter of a layer that ranks share.
    pub(super) fn note_divided(&self, parameter: &Tensor) {
        if self.split().is_some_and(Split::divides_sizes) {
            self.built.borrow_mut().divided.push(parameter.clone());
        }
    }

    /// The parameters that are divided over ranks.
    pub(crate) fn divided(&self) -> Vec<Tensor> {
        self.built.borrow().divided.clone()
    }
}
