//! What a KV cache keeps by layer, and how layers are called: every one runs.

use std::cell::{Ref, RefCell};

use super::module::Module;
use crate::tensor::Tensor;

/// Keys and values of [batch, kv heads, tokens, head_dim].
#[derive(Clone)]
pub(crate) struct CacheLayer {
    pub keys: Tensor,
    pub values: Tensor,
    pub seen: u64,
    /// The window's size as a tensor, which a layer with a window keeps.
    pub window: Option<Tensor>,
}

/// The layers of a cache.
#[derive(Default)]
pub(crate) struct CacheLayers(RefCell<Vec<CacheLayer>>);

impl CacheLayers {
    pub(crate) fn borrow(&self) -> Ref<'_, Vec<CacheLayer>> {
        self.0.borrow()
    }

    /// What `map` makes of each layer, in their order.
    pub(crate) fn map(&self, map: &mut dyn FnMut(&CacheLayer) -> CacheLayer) -> Self {
        Self(RefCell::new(self.borrow().iter().map(map).collect()))
    }

    pub(crate) fn store(&self, layer: usize, new: CacheLayer) {
        let mut layers = self.0.borrow_mut();
        match layers.get_mut(layer) {
            Some(slot) => *slot = new,
            None => layers.push(new),
        }
    }
}

/// No layer stands for another where tensors have numbers.
#[derive(Default)]
pub(crate) struct LayerCopies(());

/// Calls a decoder's layer.
pub(crate) fn call_layer(
    module: &Module,
    _layer: usize,
    hidden_states: &Tensor,
    _shared: &[Option<&Tensor>],
    _cache: Option<(&CacheLayers, &LayerCopies)>,
    forward: impl FnOnce(&Tensor) -> Tensor,
) -> Tensor {
    module.call(hidden_states, forward)
}
