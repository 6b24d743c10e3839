//! The KV cache (transformers `DynamicCache`): every update concatenates; layers with a window forget what left it.

use crate::dtype::DType;
use crate::op::{cat, full};
use crate::tensor::{Doubles, Tensor};
use crate::trace::Category;

use super::cache_layers::{CacheLayer, CacheLayers};
use super::layer_copies::LayerCopies;

/// Keys and values by layer.
#[derive(Default)]
pub(crate) struct KvCache {
    windows: Vec<Option<u64>>,
    pub(super) layers: CacheLayers,
    /// Which layers do the same, found out while they use the cache.
    pub(super) copies: LayerCopies,
}

impl KvCache {
    /// A cache for layers with these windows; layers beyond the list have none.
    pub(crate) fn new(windows: Vec<Option<u64>>) -> Self {
        Self { windows, layers: CacheLayers::default(), copies: LayerCopies::default() }
    }

    /// A cache of what `map` makes of each tensor in it.
    pub(crate) fn map(&self, map: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        let mut map_layer = |layer: &CacheLayer| CacheLayer {
            keys: map(&layer.keys),
            values: map(&layer.values),
            seen: layer.seen,
            window: layer.window.as_ref().map(&mut *map),
        };
        let layers = self.layers.map(&mut map_layer);
        Self { windows: self.windows.clone(), layers, copies: LayerCopies::default() }
    }

    /// How many tokens this cache may be moved on by [`doubled`](Self::doubled): a window that is not full yet must not fill.
    pub(crate) fn room(&self) -> u64 {
        let layers = self.layers.borrow();
        let room = |(at, layer): (usize, &CacheLayer)| match self.windows.get(at).copied().flatten() {
            Some(window) if layer.seen < window => (window - 1).saturating_sub(layer.seen),
            _ => u64::MAX,
        };
        layers.iter().enumerate().map(room).min().unwrap_or(0)
    }

    /// The cache as it is so many tokens later.
    pub(crate) fn doubled(&self, doubles: &mut Doubles, tokens: u64) -> Self {
        let mut double = |(at, layer): (usize, &CacheLayer)| {
            let window = self.windows.get(at).copied().flatten();
            let grows = window.is_none_or(|window| layer.seen < window);
            let mut longer = |tensor: &Tensor| doubles.of(tensor, grows.then_some((2, tokens)));
            CacheLayer {
                keys: longer(&layer.keys),
                values: longer(&layer.values),
                seen: layer.seen + tokens,
                window: layer.window.as_ref().map(|size| doubles.of(size, None)),
            }
        };
        let mut at = 0..;
        let layers = self.layers.map(&mut |layer| double((at.next().unwrap_or_default(), layer)));
        Self { windows: self.windows.clone(), layers, copies: self.copies.inherited() }
    }

    /// Every tensor that it holds.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&Tensor)) {
        for layer in self.layers.borrow().iter() {
            see(&layer.keys);
            see(&layer.values);
            layer.window.iter().for_each(&mut see);
        }
    }

    /// Tokens seen so far.
    pub(crate) fn seq_length(&self) -> u64 {
        self.layers.borrow().first().map_or(0, |layer| layer.seen)
    }

    /// The first layer's window when every layer has one.
    pub(crate) fn first_window_if_all_have_one(&self) -> Option<u64> {
        if self.windows.iter().all(Option::is_some) { self.windows.first().copied().flatten() } else { None }
    }

    /// Appends to a layer and returns all keys and values to attend to; the first update copies too (`cat` with an
    /// empty tensor).
    pub(crate) fn update(&self, layer: usize, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        let _category = keys.context().enter_category(Category::KvCache);
        match self.windows.get(layer).copied().flatten() {
            Some(window) => self.update_window(layer, keys, values, window),
            None => self.update_all(layer, keys, values),
        }
    }

    /// `DynamicLayer.update`: the cache drops its old keys before it joins the values.
    fn update_all(&self, layer: usize, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        let old = self.layers.borrow().get(layer).cloned();
        if old.is_none() && !keys.context().transformers().copies_first_keys() {
            let seen = keys.size(2);
            self.layers.store(layer, CacheLayer { keys: keys.clone(), values: values.clone(), seen, window: None });
            return (keys.clone(), values.clone());
        }
        let seen = old.as_ref().map_or(0, |old| old.seen) + keys.size(2);
        let new_keys = join(old.as_ref().map(|old| &old.keys), keys, keys.dtype());
        let old_values = old.map(|old| old.values);
        let held = old_values.clone().unwrap_or_else(|| new_keys.clone());
        self.layers.store(layer, CacheLayer { keys: new_keys.clone(), values: held, seen, window: None });
        let new_values = join(old_values.as_ref(), values, keys.dtype());
        self.layers.store(layer, CacheLayer { keys: new_keys.clone(), values: new_values.clone(), seen, window: None });
        (new_keys, new_values)
    }

    /// `DynamicSlidingWindowLayer.update`: hands out all, keeps the last `window - 1`.
    fn update_window(&self, layer: usize, keys: &Tensor, values: &Tensor, window: u64) -> (Tensor, Tensor) {
        let old = self.layers.borrow().get(layer).cloned();
        let size = old.as_ref().and_then(|old| old.window.clone());
        let size = size.unwrap_or_else(|| full(keys.context(), "_to_copy.default", &[], DType::Int64));
        let seen = old.as_ref().map_or(0, |old| old.seen) + keys.size(2);
        let full_keys = join(old.as_ref().map(|old| &old.keys), keys, keys.dtype());
        let full_values = join(old.as_ref().map(|old| &old.values), values, keys.dtype());
        let last = |joined: &Tensor| joined.narrow(2, joined.size(2).min(window.saturating_sub(1).max(1)));
        let kept = CacheLayer { keys: last(&full_keys), values: last(&full_values), seen, window: Some(size) };
        self.layers.store(layer, kept);
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
