//! [`Cache`]: keys and values of the tokens that a model has seen.

use std::rc::Rc;

use tonnage_torch::{Argument, Tensor, operator};

use crate::error::TrainError;
use crate::model::nn::{CacheLayer, KvCache};
use crate::tensor::{self, Context, caught};

/// transformers' `DynamicCache`. A clone is another name of it.
#[derive(Clone)]
pub struct Cache {
    context: Rc<Context>,
    layers: Rc<KvCache>,
}

impl Cache {
    pub(crate) fn new(context: &Rc<Context>, layers: Rc<KvCache>) -> Self {
        Self { context: Rc::clone(context), layers }
    }

    pub(crate) fn shared(&self) -> Rc<KvCache> {
        Rc::clone(&self.layers)
    }

    /// Tokens that it has seen.
    pub fn tokens(&self) -> u64 {
        self.layers.seq_length()
    }

    /// A cache of these rows, as beams go on from some: int64, on the device.
    ///
    /// # Errors
    /// When a row is not there, or the device has no room.
    pub fn select_rows(&self, rows: &Tensor) -> Result<Self, TrainError> {
        let rows = tensor::Tensor::of(&self.context, rows.clone());
        let of_rows =
            |tensor: &tensor::Tensor| tensor.run(operator!("index_select"), [Argument::Int(0), Argument::from(&rows)]);
        let layers = caught(|| {
            let layers = self.layers.map_layers(|_, layer| CacheLayer {
                keys: of_rows(&layer.keys),
                values: of_rows(&layer.values),
                seen: layer.seen,
                window: layer.window.clone(),
            });
            layers.with_states(self.layers.map_states(&mut |tensor| of_rows(tensor)))
        })?;
        Ok(Self::new(&self.context, Rc::new(layers)))
    }
}
