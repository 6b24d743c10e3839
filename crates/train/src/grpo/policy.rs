//! A model as `Accelerator.prepare` wraps it: its forward runs under autocast, and half-precision logits become fp32.

use std::rc::Rc;

use tonnage_torch::ScalarType;

use crate::language_model::{LanguageModel, Parts};
use crate::model::family::ForwardCall;
use crate::model::nn::KvCache;
use crate::tensor::{Context, Tensor, or_stop};

/// The policy, its reference, or a judge.
#[derive(Clone, Copy)]
pub(super) struct Policy<'a> {
    parts: Parts<'a>,
    autocast: Option<ScalarType>,
    /// Whether its positions are rows of a table, as GPT-2's: then it matters where a row's first token stands.
    pub has_position_table: bool,
}

/// What goes into a pass.
pub(super) struct Pass<'a> {
    pub input_ids: &'a Tensor,
    pub attention_mask: &'a Tensor,
    pub position_ids: Option<&'a Tensor>,
    pub cache: Option<&'a Rc<KvCache>>,
    pub logits_to_keep: u64,
    /// Whether the mask hides something; told, because asking the device would wait for it.
    pub padded: bool,
}

impl<'a> Policy<'a> {
    /// `None` for a model that keeps no keys: the guide's small GPT.
    pub fn new(model: &'a LanguageModel, autocast: Option<ScalarType>, has_position_table: bool) -> Option<Self> {
        Some(Self { parts: model.parts()?, autocast, has_position_table })
    }

    pub fn context(&self) -> &'a Rc<Context> {
        self.parts.context
    }

    pub fn new_cache(&self) -> Rc<KvCache> {
        self.parts.model.new_cache()
    }

    /// Logits of the last positions.
    pub fn logits(&self, pass: &Pass<'_>) -> Tensor {
        let context = self.parts.context;
        context.take_rows_as(pass.padded, false);
        let autocast = self.autocast.map(|dtype| or_stop(context.torch.autocast(context.device, Some(dtype))));
        let output = self.parts.model.forward(&ForwardCall {
            attention_mask: Some(pass.attention_mask),
            position_ids: pass.position_ids,
            cache: pass.cache.map(Rc::clone),
            logits_to_keep: Some(pass.logits_to_keep),
            ..ForwardCall::new(pass.input_ids)
        });
        drop(autocast);
        let logits = output.logits.unwrap_or_else(|| pass.input_ids.clone());
        if self.autocast.is_some() { logits.float() } else { logits }
    }
}
