//! The KV cache (transformers `DynamicCache`): every update concatenates; layers with a window forget what left it.

use std::cell::{Ref, RefCell};

use crate::dtype::DType;
use crate::op::{cat, number_from_host};
use crate::tensor::Tensor;
use crate::trace::Category;

/// Keys and values of [batch, kv heads, tokens, head_dim].
#[derive(Clone)]
pub(crate) struct CacheLayer {
    pub keys: Tensor,
    pub values: Tensor,
    pub seen: u64,
    /// The window's size as a tensor, which a layer with a window keeps.
    pub window: Option<Tensor>,
}

/// Keys and values by layer.
#[derive(Default)]
pub(crate) struct KvCache {
    windows: Vec<Option<u64>>,
    layers: RefCell<Vec<CacheLayer>>,
}

impl KvCache {
    /// A cache for layers with these windows; layers beyond the list have none.
    pub(crate) fn new(windows: Vec<Option<u64>>) -> Self {
        Self { windows, layers: RefCell::default() }
    }

    /// A cache of what `map` makes of each tensor in it.
    pub(crate) fn map(&self, map: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        self.map_layers(|_, layer| CacheLayer {
            keys: map(&layer.keys),
            values: map(&layer.values),
            seen: layer.seen,
            window: layer.window.as_ref().map(&mut *map),
        })
    }

    /// Its layers in their order.
    pub(crate) fn layers(&self) -> Ref<'_, Vec<CacheLayer>> {
        self.layers.borrow()
    }

    /// A cache with the same windows, of what `map` makes of each layer and its place.
    pub(crate) fn map_layers(&self, mut map: impl FnMut(usize, &CacheLayer) -> CacheLayer) -> Self {
        let layers = self.layers().iter().enumerate().map(|(at, layer)| map(at, layer)).collect();
        Self { windows: self.windows.clone(), layers: RefCell::new(layers) }
    }

    fn store(&self, layer: usize, new: CacheLayer) {
        let mut layers = self.layers.borrow_mut();
        match layers.get_mut(layer) {
            Some(slot) => *slot = new,
            None => layers.push(new),
        }
    }

    /// The window of a layer.
    pub(crate) fn window(&self, layer: usize) -> Option<u64> {
        self.windows.get(layer).copied().flatten()
    }

    /// Tokens seen so far.
    pub(crate) fn seq_length(&self) -> u64 {
        self.layers().first().map_or(0, |layer| layer.seen)
    }

    /// The first layer's window when every layer has one.
    pub(crate) fn first_window_if_all_have_one(&self) -> Option<u64> {
        if self.windows.iter().all(Option::is_some) { self.windows.first().copied().flatten() } else { None }
    }

    /// Whether any layer has a window.
    pub(crate) fn has_windows(&self) -> bool {
        self.windows.iter().any(Option::is_some)
    }

    /// Appends to a layer and returns all keys and values to attend to; the first update copies too (`cat` with an
    /// empty tensor).
    pub(crate) fn update(&self, layer: usize, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        let _category = keys.context().enter_category(Category::KvCache);
        match self.window(layer) {
            Some(window) => self.update_window(layer, keys, values, window),
            None => self.update_all(layer, keys, values),
        }
    }

    /// `DynamicLayer.update`: the cache drops its old keys before it joins the values.
    fn update_all(&self, layer: usize, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        let old = self.layers().get(layer).cloned();
        if old.is_none() && !keys.context().transformers().copies_first_keys() {
            let seen = keys.size(2);
            self.store(layer, CacheLayer { keys: keys.clone(), values: values.clone(), seen, window: None });
            return (keys.clone(), values.clone());
        }
        let seen = old.as_ref().map_or(0, |old| old.seen) + keys.size(2);
        let new_keys = join(old.as_ref().map(|old| &old.keys), keys, keys.dtype());
        let old_values = old.map(|old| old.values);
        let held = old_values.clone().unwrap_or_else(|| new_keys.clone());
        self.store(layer, CacheLayer { keys: new_keys.clone(), values: held, seen, window: None });
        let new_values = join(old_values.as_ref(), values, keys.dtype());
        self.store(layer, CacheLayer { keys: new_keys.clone(), values: new_values.clone(), seen, window: None });
        (new_keys, new_values)
    }

    /// `DynamicSlidingWindowLayer.update`: hands out all, keeps the last `window - 1`.
    fn update_window(&self, layer: usize, keys: &Tensor, values: &Tensor, window: u64) -> (Tensor, Tensor) {
        let old = self.layers().get(layer).cloned();
        let size = old.as_ref().and_then(|old| old.window.clone());
        let size =
            size.unwrap_or_else(|| number_from_host(keys.context(), "_to_copy.default", window as f64, DType::Int64));
        let seen = old.as_ref().map_or(0, |old| old.seen) + keys.size(2);
        let full_keys = join(old.as_ref().map(|old| &old.keys), keys, keys.dtype());
        let full_values = join(old.as_ref().map(|old| &old.values), values, keys.dtype());
        let last = |joined: &Tensor| {
            let tokens = joined.size(2);
            joined.narrow(2, tokens - tokens.min(window.saturating_sub(1).max(1))..tokens)
        };
        let kept = CacheLayer { keys: last(&full_keys), values: last(&full_values), seen, window: Some(size) };
        self.store(layer, kept);
        (full_keys, full_values)
    }
}

/// Joins along the tokens. A new layer starts from an empty tensor of the keys' dtype, for the values too.
fn join(old: Option<&Tensor>, new: &Tensor, keys_dtype: DType) -> Tensor {
    match old {
        Some(old) => cat(&[old, new], 2),
        None => cat(&[&Tensor::nowhere(new.context(), new.sizes().with(2, 0), keys_dtype), new], 2),
    }
}
