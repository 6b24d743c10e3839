//! How `from_pretrained` brings a quantized model to the device, and how peft prepares it
//! (transformers 5.17, core_model_loading.py; peft 0.21, utils/other.py).

use std::ops::Range;

use crate::dtype::DType;
use crate::tensor::{Shape, Tensor};
use crate::trace::Category;

use super::checkpoint::natural_key;
use super::{Builder, Quantization};

/// A tensor that begins to come to the device here.
pub(super) struct Load {
    kind: LoadKind,
    /// Of a weight, in the checkpoint.
    name: String,
    is_quantized: bool,
    /// The first of its events.
    at: usize,
}

/// A tensor and its events.
type LoadPart<'a> = (&'a Load, Range<usize>);

/// What decides when a tensor is loaded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LoadKind {
    /// Weights in the order of their names.
    Weight,
    /// Buffers of no checkpoint, behind them.
    Buffer,
    /// What layers make of their weights when all are there.
    MadeLater,
    /// Adapters, when the model is there.
    Adapter,
}

/// What names of embeddings and heads have in them, as TRL tells them (trl 1.16, experimental/utils.py).
const HEADS: [&str; 4] = ["lm_head", "embed_tokens", "wte", "wpe"];

impl Builder {
    /// The same model with its linear layers quantized, or not.
    pub(crate) fn quantized(self, quantization: Option<Quantization>) -> Self {
        self.set(|settings| settings.quantization = quantization)
    }

    /// How linear layers are stored, where they are quantized.
    pub(in crate::building) fn quantization(&self) -> Option<Quantization> {
        self.quantization
    }

    /// The place of a layer that checkpoints of GPTQ leave whole.
    pub(crate) fn whole_in_gptq(self) -> Self {
        let quantization = self.quantization.filter(|quantization| !matches!(quantization, Quantization::Gptq { .. }));
        self.set(|settings| settings.quantization = quantization)
    }

    /// The same model, whose stacks of experts are quantized as its linear layers are, or not.
    pub(crate) fn quantizing_experts(self, quantizes_experts: bool) -> Self {
        self.set(|settings| settings.quantizes_experts = quantizes_experts)
    }

    /// How stacks of experts are stored, where they are quantized.
    pub(in crate::building) fn expert_quantization(&self) -> Option<Quantization> {
        self.quantization.filter(|_| self.quantizes_experts)
    }

    /// A frozen weight that stands for so many parameters.
    pub(in crate::building) fn count_quantized(&self, weight: &Tensor, parameters: u64) {
        self.built.borrow_mut().parameter_count += parameters;
        self.list(weight.clone());
    }

    /// A tensor of the checkpoint beside a frozen weight.
    pub(in crate::building) fn list_beside(&self, tensor: &Tensor) {
        self.list(tensor.clone());
    }

    /// Says that the weight `name` of this module is loaded now.
    pub(in crate::building) fn begin_load(&self, name: &str) {
        self.note_load(LoadKind::Weight, name, false);
    }

    /// The same of a weight that is quantized when it is there.
    pub(in crate::building) fn begin_quantized_load(&self, name: &str) {
        self.note_load(LoadKind::Weight, name, true);
    }

    /// Says that something is made now that comes when all weights are there.
    pub(in crate::building) fn begin_made_later(&self) {
        self.note_load(LoadKind::MadeLater, "", false);
    }

    pub(super) fn begin_buffer(&self) {
        self.note_load(LoadKind::Buffer, "", false);
    }

    pub(super) fn begin_adapter(&self) {
        self.note_load(LoadKind::Adapter, "", false);
    }

    fn note_load(&self, kind: LoadKind, name: &str, is_quantized: bool) {
        if self.quantization.is_none() {
            return;
        }
        let name = if kind == LoadKind::Weight { format!("{}.{name}", self.path) } else { String::new() };
        let at = self.context.events();
        self.built.borrow_mut().loads.push(Load { kind, name, is_quantized, at });
    }

    /// The same model, whose embeddings and head end in `dtype`.
    pub(crate) fn heads_in(self, dtype: Option<DType>) -> Self {
        self.set(|settings| settings.heads_dtype = dtype)
    }

    /// A weight as it is loaded. What is cast later has the memory of the model's dtype until then.
    pub(super) fn load_weight(&self, sizes: &[u64]) -> Tensor {
        let loaded = self.load(sizes, self.dtype, Category::Parameter);
        let is_head = || HEADS.iter().any(|name| self.path.contains(name));
        if let Some(dtype) = self.heads_dtype.filter(|_| is_head()) {
            let head = Tensor::nowhere(&self.context, Shape::new(sizes), dtype);
            head.set_data(&loaded);
            self.built.borrow_mut().heads.push(head.clone());
            return head;
        }
        if !self.is_prepared || self.dtype == DType::Float32 {
            return loaded;
        }
        let parameter = Tensor::nowhere(&self.context, Shape::new(sizes), DType::Float32);
        parameter.set_data(&loaded);
        parameter
    }

    /// The table that the first tensor of a process needs, and all keep.
    pub(in crate::building) fn keep_table(&self, load: impl FnOnce() -> Tensor) {
        if self.built.borrow().table.is_none() {
            let at = self.context.events();
            let table = load();
            self.built.borrow_mut().table = Some((table, at));
        }
    }

    /// The same model, which peft's `prepare_model_for_kbit_training` prepares.
    pub(crate) fn prepared(self, is_prepared: bool) -> Self {
        self.set(|settings| settings.is_prepared = is_prepared)
    }

    /// The same model, whose adapters end in `dtype`.
    pub(crate) fn adapters_in(self, dtype: Option<DType>) -> Self {
        self.set(|settings| settings.adapter_dtype = dtype)
    }

    /// Puts what was loaded in the order of the checkpoint: one weight after the other, as each is quantized before the next comes.
    pub(crate) fn load_in_checkpoint_order(&self) {
        let loads = std::mem::take(&mut self.built.borrow_mut().loads);
        let ends = loads.iter().skip(1).map(|load| load.at).chain([self.context.events()]);
        let mut parts: Vec<LoadPart<'_>> = loads.iter().zip(ends).map(|(load, end)| (load, load.at..end)).collect();
        let maker = parts.iter().find(|(load, _)| load.is_quantized).map(|(load, _)| load.at);
        let begin = parts.first().map_or(0, |(load, _)| load.at);
        parts.sort_by_cached_key(|(load, _)| (load.kind, natural_key(&load.name)));
        let first: usize = parts.iter().take_while(|(load, _)| !load.is_quantized).map(|(_, part)| part.len()).sum();
        self.context.reorder_events(parts.into_iter().map(|(_, part)| part));
        // All quantized weights come with the same events: the table with the first of them, as far into it as it was made.
        let table = self.built.borrow().table.as_ref().and_then(|(table, at)| Some((table.allocation()?, *at)));
        if let Some(((table, at), maker)) = table.zip(maker) {
            self.context.move_allocation(table, begin + first + (at - maker));
        }
    }

    /// `prepare_model_for_kbit_training`: what is not quantized is cast to fp32, and the cache is emptied.
    pub(crate) fn prepare_for_kbit_training(&self) {
        let _category = self.context.enter_category(Category::Parameter);
        let built = self.built.borrow();
        let is_head = |parameter: &Tensor| built.heads.iter().any(|head| head.is_same(parameter));
        let is_cast = |parameter: &&Tensor| {
            (parameter.dtype() == DType::Float32 && !parameter.requires_grad()) || is_head(parameter)
        };
        for parameter in built.parameters.iter().filter(is_cast).filter(|_| self.dtype != DType::Float32) {
            let cast = Tensor::empty(&self.context, "_to_copy.default", *parameter.sizes(), DType::Float32);
            parameter.set_data(&cast);
        }
        self.context.empty_cache();
    }

    /// Casts embeddings and head, which are in fp32 then, to the dtype that they end in.
    pub(crate) fn cast_heads(&self) {
        let _category = self.context.enter_category(Category::Parameter);
        for head in &self.built.borrow().heads {
            let cast = Tensor::empty(&self.context, "_to_copy.default", *head.sizes(), head.dtype());
            head.set_data(&cast);
        }
    }
}
