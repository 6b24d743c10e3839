//! The order in which `from_pretrained(device_map=...)` brings a model to the device (transformers 5.17, core_model_loading.py): the
//! checkpoint's weights by their names, then buffers (modeling_utils.py, `_move_missing_keys_from_meta_to_device`).

use super::{Builder, Parts};
use crate::dtype::DType;
use crate::small_sort::SmallSort;
use crate::tensor::Tensor;
use crate::trace::{AllocationId, Category};

impl Builder {
    /// Gives the buffers of a materialized model their memory.
    pub(crate) fn materialize_buffers(&self) {
        self.materialize(&self.built.borrow().buffers);
    }

    /// Gives these buffers of a materialized model their memory.
    pub(crate) fn materialize(&self, buffers: &[Tensor]) {
        let _category = self.context.enter_category(Category::Buffer);
        for buffer in buffers.iter().filter(|_| self.materialized) {
            let dtype = self.loaded_dtype(buffer);
            buffer.alloc_storage("zeros.default", buffer.numel().saturating_mul(dtype.size()));
        }
    }

    /// The same model, which is made in fp32 before its parameters are cast, those of adapters too.
    pub(crate) fn made_in_fp32(self, made_in_fp32: bool) -> Self {
        self.set(|settings| settings.made_in_fp32 = made_in_fp32)
    }

    /// The same model, of whose parameters this rank keeps a part as they are made.
    pub(crate) fn in_parts(self, parts: Option<Parts>) -> Self {
        self.set(|settings| settings.parts = parts)
    }

    /// PyTorch's default dtype while the model is made.
    pub(crate) fn default_dtype(&self) -> DType {
        if self.made_in_fp32 { DType::Float32 } else { self.dtype }
    }

    /// The same model, whose weights come to the device in the order of their names, once [`Self::load_by_name`] says so.
    pub(crate) fn loading_by_name(self, loads_by_name: bool) -> Self {
        self.set(|settings| settings.loads_by_name = loads_by_name)
    }

    /// The tensor, which the checkpoint calls `name` of this module.
    pub(super) fn note_name(&self, name: &str, tensor: Tensor) -> Tensor {
        if self.loads_by_name
            && let Some(id) = tensor.allocation()
        {
            self.built.borrow_mut().named.push((format!("{}.{name}", self.path), id));
        }
        tensor
    }

    /// Loads the weights now, in the order of their names, and the buffers after them.
    pub(crate) fn load_by_name(&self) {
        if !self.loads_by_name || self.quantization.is_some() {
            return;
        }
        let built = self.built.borrow();
        let mut named: Vec<_> = built.named.iter().map(|(name, id)| (natural_key(name), *id)).collect();
        named.small_sort();
        let buffers = built.buffers.iter().filter_map(Tensor::allocation);
        let order: Vec<AllocationId> = named.into_iter().map(|(_, id)| id).chain(buffers).collect();
        self.context.arrange_allocations(&order);
    }

    /// Makes the model one that was put on the device without weights: all parameters first, then all buffers.
    pub(crate) fn load_buffers_last(&self) {
        let built = self.built.borrow();
        let buffers: Vec<AllocationId> = built.buffers.iter().filter_map(Tensor::allocation).collect();
        self.context.move_to_end(&buffers);
    }
}

/// A part of a name between dots: numbers before texts, and texts by the number that they end with.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part<'a> {
    Number(u64),
    Text(&'a str, Option<u64>),
}

/// `dot_natural_key`
pub(super) fn natural_key(name: &str) -> Vec<Part<'_>> {
    name.split('.').map(natural_part).collect()
}

fn natural_part(part: &str) -> Part<'_> {
    let text = part.trim_end_matches(|sign: char| sign.is_ascii_digit());
    let number = part.get(text.len()..).and_then(|digits| digits.parse().ok());
    match (text, number) {
        ("", Some(number)) => Part::Number(number),
        _ => Part::Text(text, number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_by_their_numbers() {
        let names = ["a.10.w", "a.9.w", "a.b2.w", "a.b10.w", "a.b.w", "a.9.bias"];
        let mut sorted = names;
        sorted.sort_by_key(|name| natural_key(name));
        // What `sorted(names, key=dot_natural_key)` of transformers 5.17 gives.
        assert_eq!(sorted, ["a.9.bias", "a.9.w", "a.10.w", "a.b.w", "a.b2.w", "a.b10.w"]);
    }
}
