//! The KV cache (transformers `DynamicCache`): every update concatenates.

use std::cell::RefCell;

use crate::op::cat;
use crate::tensor::Tensor;
use crate::trace::Category;

/// Keys and values by layer, [batch, kv heads, tokens, head_dim] each.
#[derive(Default)]
pub(crate) struct KvCache {
    layers: RefCell<Vec<(Tensor, Tensor)>>,
}

impl KvCache {
    /// Tokens seen so far.
    pub(crate) fn seq_length(&self) -> u64 {
        self.layers.borrow().first().map_or(0, |(keys, _)| keys.size(2))
    }

    /// Appends to a layer and returns all its keys and values; the first update copies too (`cat` with an empty
    /// tensor).
    pub(crate) fn update(&self, layer: usize, keys: &Tensor, values: &Tensor) -> (Tensor, Tensor) {
        let _category = keys.context().enter_category(Category::KvCache);
        let old = self.layers.borrow().get(layer).cloned();
        let new_keys = match &old {
            Some((old_keys, _)) => cat(&[old_keys, keys], 2),
            None => cat(&[keys], 2),
        };
        // The cache drops its old keys before it joins the values.
        self.store(layer, new_keys.clone(), old.as_ref().map_or_else(|| new_keys.clone(), |(_, v)| v.clone()));
        let old_values = old.map(|(_, old_values)| old_values);
        let new_values = match &old_values {
            Some(old_values) => cat(&[old_values, values], 2),
            None => cat(&[values], 2),
        };
        self.store(layer, new_keys.clone(), new_values.clone());
        (new_keys, new_values)
    }

    fn store(&self, layer: usize, keys: Tensor, values: Tensor) {
        let mut layers = self.layers.borrow_mut();
        match layers.get_mut(layer) {
            Some(slot) => *slot = (keys, values),
            None => layers.push((keys, values)),
        }
    }
}
