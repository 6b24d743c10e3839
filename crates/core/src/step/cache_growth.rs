//! A KV cache as generation that leaps over tokens needs it: what it is so many tokens later.

use crate::model::nn::{CacheLayer, KvCache};
use crate::tensor::{Doubles, Tensor};

/// How many tokens a cache may be moved on by [`doubled_cache`]: a window that is not full yet must not fill.
pub(super) fn cache_room(cache: &KvCache) -> u64 {
    let room = |(at, layer): (&usize, &CacheLayer)| match cache.window(*at) {
        Some(window) if layer.seen < window => (window - 1).saturating_sub(layer.seen),
        _ => u64::MAX,
    };
    cache.layers().iter().map(room).min().unwrap_or(if cache.states().is_empty() { 0 } else { u64::MAX })
}

/// The cache as it is so many tokens later.
pub(super) fn doubled_cache(cache: &KvCache, doubles: &mut Doubles, tokens: u64) -> KvCache {
    let layers = cache.map_layers(|at, layer| {
        let grows = cache.window(at).is_none_or(|window| layer.seen < window);
        let mut longer = |tensor: &Tensor| doubles.double_tensor(tensor, grows.then_some((2, tokens)));
        CacheLayer {
            keys: longer(&layer.keys),
            values: longer(&layer.values),
            seen: layer.seen + tokens,
            window: layer.window.as_ref().map(|size| doubles.double_tensor(size, None)),
        }
    });
    layers.with_states(cache.map_states(&mut |state| doubles.double_tensor(state, None)))
}

/// Every tensor that a cache holds.
pub(super) fn for_each(cache: &KvCache, mut see: impl FnMut(&Tensor)) {
    for layer in cache.layers().values() {
        see(&layer.keys);
        see(&layer.values);
        layer.window.iter().for_each(&mut see);
    }
    for states in cache.states().values() {
        see(&states.conv);
        states.recurrent.iter().for_each(&mut see);
    }
}
