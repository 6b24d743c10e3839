//! What a KV cache keeps, by layer.

use std::cell::{Ref, RefCell};

use crate::tensor::{Tensor, TensorMeta};

/// Keys and values of [batch, kv heads, tokens, head_dim].
#[derive(Clone)]
pub(crate) struct CacheLayer {
    pub keys: Tensor,
    pub values: Tensor,
    pub seen: u64,
    /// The window's size as a tensor, which a layer with a window keeps.
    pub window: Option<Tensor>,
}

/// What can be seen of a layer's keys and values.
pub(super) struct CacheEntry {
    pub keys: TensorMeta,
    pub values: TensorMeta,
    pub seen: u64,
}

impl CacheEntry {
    /// Whether both look the same wherever they lie.
    pub(super) fn resembles(&self, other: &Self) -> bool {
        self.seen == other.seen && self.keys.resembles(&other.keys) && self.values.resembles(&other.values)
    }
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

    /// What a layer has here; `None` where it has nothing, or a window: what such a layer keeps is part of what it made.
    pub(super) fn entry(&self, layer: usize) -> Option<CacheEntry> {
        let layers = self.borrow();
        let CacheLayer { keys, values, seen, window: None } = layers.get(layer)? else { return None };
        Some(CacheEntry { keys: keys.meta(), values: values.meta(), seen: *seen })
    }

    /// Puts keys and values in the place of those whose frees the trace has already.
    pub(super) fn replace(&self, layer: usize, keys: Tensor, values: Tensor, seen: u64) {
        if let Some(old) = self.borrow().get(layer) {
            old.keys.forget_storage();
            old.values.forget_storage();
        }
        self.store(layer, CacheLayer { keys, values, seen, window: None });
    }

    pub(crate) fn store(&self, layer: usize, new: CacheLayer) {
        let mut layers = self.0.borrow_mut();
        match layers.get_mut(layer) {
            Some(slot) => *slot = new,
            None => layers.push(new),
        }
    }
}
