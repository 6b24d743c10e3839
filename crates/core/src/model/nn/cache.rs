//! The KV cache (transformers `DynamicCache`): every update concatenates; layers with a window forget what left it. Layers that keep a
//! state have one of a size that stays.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::op::{cat, number_from_host, zeros};
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

/// What a layer keeps in the place of keys and values (`LinearAttentionLayer`).
#[derive(Clone)]
pub(crate) struct LayerStates {
    /// The last inputs of its convolution, [batch, channels, width].
    pub conv: Tensor,
    /// What stands for all tokens before, if the layer has it.
    pub recurrent: Option<Tensor>,
}

/// Keys and values by layer, or states.
#[derive(Default)]
pub(crate) struct KvCache {
    windows: Vec<Option<u64>>,
    layers: RefCell<BTreeMap<usize, CacheLayer>>,
    states: RefCell<BTreeMap<usize, LayerStates>>,
    /// Whether no layer has keys: then nobody counts tokens, and the model takes no positions.
    states_alone: bool,
}

impl KvCache {
    /// A cache for layers with these windows; layers beyond the list have none.
    pub(crate) fn new(windows: Vec<Option<u64>>) -> Self {
        Self { windows, ..Self::default() }
    }

    /// A cache for layers that keep states, all of them.
    pub(crate) fn of_states() -> Self {
        Self { states_alone: true, ..Self::default() }
    }

    /// Whether it knows how many tokens it has seen.
    pub(crate) fn counts_tokens(&self) -> bool {
        !self.states_alone
    }

    /// A cache of what `map` makes of each tensor in it.
    pub(crate) fn map(&self, map: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        let layers = self.map_layers(|_, layer| CacheLayer {
            keys: map(&layer.keys),
            values: map(&layer.values),
            seen: layer.seen,
            window: layer.window.as_ref().map(&mut *map),
        });
        let states = self.map_states(map);
        Self { states, ..layers }
    }

    /// Its layers with keys and values, by their places.
    pub(crate) fn layers(&self) -> Ref<'_, BTreeMap<usize, CacheLayer>> {
        self.layers.borrow()
    }

    /// Its layers with states, by their places.
    pub(crate) fn states(&self) -> Ref<'_, BTreeMap<usize, LayerStates>> {
        self.states.borrow()
    }

    /// A cache with the same windows, of what `map` makes of each layer and its place, without states.
    pub(crate) fn map_layers(&self, mut map: impl FnMut(usize, &CacheLayer) -> CacheLayer) -> Self {
        let layers = self.layers().iter().map(|(at, layer)| (*at, map(*at, layer))).collect();
        Self {
            windows: self.windows.clone(),
            layers: RefCell::new(layers),
            states: RefCell::default(),
            states_alone: self.states_alone,
        }
    }

    /// What `map` makes of its states.
    pub(crate) fn map_states(&self, map: &mut dyn FnMut(&Tensor) -> Tensor) -> RefCell<BTreeMap<usize, LayerStates>> {
        let mut mapped = |state: &LayerStates| LayerStates {
            conv: map(&state.conv),
            recurrent: state.recurrent.as_ref().map(&mut *map),
        };
        RefCell::new(self.states().iter().map(|(at, state)| (*at, mapped(state))).collect())
    }

    /// The same layers with these states.
    pub(crate) fn with_states(self, states: RefCell<BTreeMap<usize, LayerStates>>) -> Self {
        Self { states, ..self }
    }

    fn store(&self, layer: usize, new: CacheLayer) {
        self.layers.borrow_mut().insert(layer, new);
    }

    /// The last inputs of a layer's convolution, if it has seen any.
    pub(crate) fn conv_state(&self, layer: usize) -> Option<Tensor> {
        self.states().get(&layer).map(|states| states.conv.clone())
    }

    /// What stands for all tokens that a layer has seen.
    pub(crate) fn recurrent_state(&self, layer: usize) -> Option<Tensor> {
        self.states().get(&layer).and_then(|states| states.recurrent.clone())
    }

    /// `update_conv_state`: all inputs that the convolution is to see; the last `width` of them are kept.
    pub(crate) fn update_conv_state(&self, layer: usize, inputs: &Tensor, width: u64) -> Tensor {
        let kept = self.conv_state(layer);
        let conv = kept.clone().unwrap_or_else(|| {
            let _category = inputs.context().enter_category(Category::KvCache);
            zeros(inputs.context(), &inputs.sizes().with(2, width), inputs.dtype())
        });
        self.states.borrow_mut().entry(layer).or_insert_with(|| LayerStates { conv: conv.clone(), recurrent: None });
        let tokens = inputs.size(2);
        let full = match &kept {
            Some(kept) => cat(&[kept, inputs], 2),
            None if tokens < width => inputs.pad_before(width - tokens),
            None => inputs.clone(),
        };
        conv.copy_from(&full.narrow(2, full.size(2) - width..full.size(2)));
        full
    }

    pub(crate) fn update_recurrent_state(&self, layer: usize, state: &Tensor) {
        let _category = state.context().enter_category(Category::KvCache);
        let kept = self.recurrent_state(layer).unwrap_or_else(|| state.zeros_like());
        kept.copy_from(state);
        if let Some(states) = self.states.borrow_mut().get_mut(&layer) {
            states.recurrent = Some(kept);
        }
    }

    /// The window of a layer.
    pub(crate) fn window(&self, layer: usize) -> Option<u64> {
        self.windows.get(layer).copied().flatten()
    }

    /// Tokens seen so far.
    pub(crate) fn seq_length(&self) -> u64 {
        self.layers().values().next().map_or(0, |layer| layer.seen)
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
        let old = self.layers().get(&layer).cloned();
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
        let old = self.layers().get(&layer).cloned();
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
