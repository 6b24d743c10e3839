//! Families of language models, a file each; a file reads like the modeling file of transformers 5.17 that it mirrors.
//!
//! One more family is one file here with one line in `LANGUAGE_MODELS`.

pub(crate) mod agi2;
pub(crate) mod attention;
pub(crate) mod bamba;
pub(crate) mod bert;
pub(crate) mod bounds;
pub(crate) mod causal_conv;
pub(crate) mod cohere;
pub(crate) mod cohere2;
pub(crate) mod deberta_v2;
pub(crate) mod decoder;
pub(crate) mod deepseek_v2;
pub(crate) mod deepseek_v3;
pub(crate) mod dinov2;
pub(crate) mod distilbert;
pub(crate) mod electra;
pub(crate) mod encoder;
pub(crate) mod expert_loop;
pub(crate) mod falcon_h1;
pub(crate) mod gated_delta;
pub(crate) mod gated_mlp;
pub(crate) mod gemma2;
pub(crate) mod gemma3;
pub(crate) mod gemma3n;
pub(crate) mod gemma4;
pub(crate) mod gemma_causal_lm;
pub(crate) mod gemma_config;
pub(crate) mod gemma_tower;
pub(crate) mod glm;
pub(crate) mod glm4;
pub(crate) mod glm4_moe;
pub(crate) mod glm4_moe_lite;
pub(crate) mod gpt2;
pub(crate) mod gpt_bigcode;
pub(crate) mod gpt_neox;
pub(crate) mod gpt_oss;
pub(crate) mod granite;
pub(crate) mod granitemoehybrid;
pub(crate) mod heads;
pub(crate) mod hunyuan_v1_dense;
pub(crate) mod hybrid;
pub(crate) mod image_mlp;
mod jamba;
pub(crate) mod layer;
pub(crate) mod lfm2;
pub(crate) mod lfm2_moe;
pub(crate) mod llama;
pub(crate) mod llama4;
pub(crate) mod llama_layer;
pub(crate) mod mamba;
pub(crate) mod mamba2;
pub(crate) mod mamba2_mixer;
pub(crate) mod mamba_causal_lm;
pub(crate) mod minimax_m2;
pub(crate) mod mistral;
pub(crate) mod mistral4;
pub(crate) mod mixtral;
pub(crate) mod modernbert;
pub(crate) mod nemotron;
pub(crate) mod nemotron_h;
pub(crate) mod olmo;
pub(crate) mod olmo2;
pub(crate) mod olmo3;
pub(crate) mod olmoe;
pub(crate) mod opt;
pub(crate) mod phi;
pub(crate) mod phi3;
pub(crate) mod qwen2;
pub(crate) mod qwen2_moe;
pub(crate) mod qwen3_5;
pub(crate) mod qwen3_moe;
pub(crate) mod qwen3_next;
pub(crate) mod roberta;
pub(crate) mod smollm3;
pub(crate) mod stablelm;
pub(crate) mod starcoder2;
mod tower;
pub(crate) mod vit;
pub(crate) mod zamba2;

use std::rc::Rc;

use super::nn::{HeadCall, KvCache, Linear, MaskInputs, RouterLoss, position_ids};
use crate::building::{BuildError, Builder, Mode};
use crate::job::{Attention, ModelSpec, ModelingFile};
use crate::tensor::Tensor;

pub(crate) use tower::{Embedded, Front, Images, Tower, TowerConfig};

/// Builds a language model on the device.
pub(crate) type BuildLanguageModel = fn(&ModelSpec, &Builder, &RunOptions) -> Result<Box<dyn Model>, BuildError>;

/// A family: the `model_type`s it accepts and how it is built.
pub(crate) struct Family {
    /// Hugging Face's `model_type`s.
    pub model_types: &'static [&'static str],
    pub build: BuildLanguageModel,
}

/// All families of language models.
pub(crate) const LANGUAGE_MODELS: &[Family] = &[
    bamba::FAMILY,
    bert::FAMILY,
    cohere::FAMILY,
    cohere2::FAMILY,
    deberta_v2::FAMILY,
    deepseek_v2::FAMILY,
    deepseek_v3::FAMILY,
    dinov2::FAMILY,
    distilbert::FAMILY,
    electra::FAMILY,
    falcon_h1::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    gemma3n::FAMILY,
    gemma4::FAMILY,
    glm::FAMILY,
    glm4::FAMILY,
    glm4_moe::FAMILY,
    glm4_moe_lite::FAMILY,
    gpt2::FAMILY,
    gpt_bigcode::FAMILY,
    gpt_neox::FAMILY,
    gpt_oss::FAMILY,
    granite::FAMILY,
    granitemoehybrid::FAMILY,
    hunyuan_v1_dense::FAMILY,
    jamba::FAMILY,
    lfm2::FAMILY,
    lfm2_moe::FAMILY,
    llama::FAMILY,
    llama4::FAMILY,
    mamba::FAMILY,
    mamba2::FAMILY,
    minimax_m2::FAMILY,
    mistral::FAMILY,
    mistral4::FAMILY,
    mixtral::FAMILY,
    modernbert::FAMILY,
    nemotron::FAMILY,
    nemotron_h::FAMILY,
    olmo::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    olmoe::FAMILY,
    opt::FAMILY,
    phi::FAMILY,
    phi3::FAMILY,
    qwen2::FAMILY,
    qwen2_moe::FAMILY,
    qwen3_5::FAMILY,
    qwen3_moe::FAMILY,
    qwen3_next::FAMILY,
    roberta::FAMILY,
    smollm3::FAMILY,
    stablelm::FAMILY,
    starcoder2::FAMILY,
    vit::FAMILY,
    zamba2::FAMILY,
];

/// How the model is run, beside its config.
#[derive(Clone, Debug)]
pub(crate) struct RunOptions {
    pub attention: Attention,
    pub mode: Rc<Mode>,
    /// Only adapters are trained.
    pub frozen_base: bool,
    /// What stands in front of the language model.
    pub tower: Option<Rc<dyn TowerConfig>>,
}

impl RunOptions {
    /// A dropout probability as it acts: 0 outside training.
    pub(crate) fn active(&self, probability: f64) -> f64 {
        if self.drops_out() { probability } else { 0.0 }
    }

    /// The same of a dropout that is no module but a call with the config's probability, which TRL's `disable_dropout` leaves alone.
    pub(crate) fn active_call(&self, probability: f64) -> f64 {
        if self.mode.is_training() { probability } else { 0.0 }
    }

    /// What `enable_input_require_grads` does to the input embeddings: checkpointed layers of a frozen model need an
    /// input that requires grad.
    pub(crate) fn require_input_grads(&self, inputs_embeds: Tensor) -> Tensor {
        if self.frozen_base && self.checkpoints_layers() { inputs_embeds.require_grad_in_hook() } else { inputs_embeds }
    }

    /// Whether layers are recomputed in backward.
    pub(crate) fn checkpoints_layers(&self) -> bool {
        self.mode.checkpoints_layers()
    }

    /// Whether dropout modules do anything.
    pub(crate) fn drops_out(&self) -> bool {
        self.mode.drops_out()
    }
}

/// The arguments of a forward call.
pub(crate) struct ForwardCall<'a> {
    /// The model's main input: of one of images the pixels.
    pub input_ids: &'a Tensor,
    pub attention_mask: Option<&'a Tensor>,
    pub position_ids: Option<&'a Tensor>,
    pub labels: Option<&'a Tensor>,
    /// Labels that were shifted before.
    pub shift_labels: Option<&'a Tensor>,
    pub num_items_in_batch: Option<&'a Tensor>,
    pub cache: Option<Rc<KvCache>>,
    pub logits_to_keep: Option<u64>,
    /// Liger's loss in place of full logits.
    pub fused_loss: bool,
    pub images: Option<&'a Images>,
    /// What the decoder of an encoder-decoder reads; without it, it is made of the labels.
    pub decoder_input_ids: Option<&'a Tensor>,
    /// Of which text each token is; without them BERT takes the first.
    pub token_type_ids: Option<&'a Tensor>,
}

impl<'a> ForwardCall<'a> {
    /// `model(input_ids)`, to which others add what they hand on.
    pub(crate) const fn new(input_ids: &'a Tensor) -> Self {
        Self {
            input_ids,
            attention_mask: None,
            position_ids: None,
            labels: None,
            shift_labels: None,
            num_items_in_batch: None,
            cache: None,
            logits_to_keep: None,
            fused_loss: false,
            images: None,
            decoder_input_ids: None,
            token_type_ids: None,
        }
    }
}

impl ForwardCall<'_> {
    /// What of it the head reads.
    pub(crate) fn head(&self) -> HeadCall<'_> {
        HeadCall {
            labels: self.labels,
            shift_labels: self.shift_labels,
            num_items_in_batch: self.num_items_in_batch,
            logits_to_keep: self.logits_to_keep,
            fused_loss: self.fused_loss,
        }
    }

    /// Whether tokens come after those of a cache, as in `generate` behind the prompt.
    pub(crate) fn decodes(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.seq_length() > 0)
    }

    /// The position ids it was given, or new ones after those in the cache for these embeddings.
    pub(crate) fn position_ids_for(&self, inputs_embeds: &Tensor) -> Tensor {
        match self.position_ids {
            Some(position_ids) => position_ids.clone(),
            None => {
                let seen = self.cache.as_ref().map_or(0, |cache| cache.seq_length());
                position_ids(inputs_embeds.context(), inputs_embeds.size(1), seen)
            }
        }
    }

    /// What a decoder's masks are made from.
    pub(crate) fn mask_inputs<'a>(
        &'a self,
        attention: Attention,
        inputs_embeds: &'a Tensor,
        position_ids: &'a Tensor,
    ) -> MaskInputs<'a> {
        MaskInputs {
            attention,
            file: ModelingFile::Llama,
            inputs_embeds,
            attention_mask: self.attention_mask,
            cache: self.cache.as_deref(),
            position_ids: Some(position_ids),
        }
    }
}

/// What a forward call returns.
pub(crate) struct ModelOutput {
    pub loss: Option<Tensor>,
    /// `None` where a fused loss makes no logits.
    pub logits: Option<Tensor>,
    pub cache: Option<Rc<KvCache>>,
    /// Of a mixture of experts that is asked for it.
    pub router: Option<RouterOutput>,
    /// What else: what a tower made of the images, or the encoder of the rows.
    pub more: Vec<Tensor>,
}

/// What a mixture of experts returns beside.
pub(crate) struct RouterOutput {
    /// What balances the experts, before its coefficient.
    pub aux_loss: Tensor,
    /// One of each layer with experts.
    pub logits: Vec<Tensor>,
}

impl ModelOutput {
    /// Where nothing else lives on.
    pub(crate) fn of_loss(loss: Option<Tensor>) -> Self {
        Self { loss, logits: None, cache: None, router: None, more: Vec::new() }
    }

    /// What `map` makes of each tensor in it, in an order that is always the same.
    pub(crate) fn map(&self, map: &mut dyn FnMut(&Tensor) -> Tensor) -> Self {
        Self {
            loss: self.loss.as_ref().map(&mut *map),
            logits: self.logits.as_ref().map(&mut *map),
            cache: self.cache.as_ref().map(|cache| Rc::new(cache.map(map))),
            router: self.router.as_ref().map(|router| router.map(&mut *map)),
            more: self.more.iter().map(map).collect(),
        }
    }
}

impl ModelOutput {
    /// With what balances the experts of these routers, if any, which is added to its own loss.
    pub(crate) fn with_router_loss(mut self, router: Option<&Rc<RouterLoss>>, call: &ForwardCall) -> Self {
        let Some(router) = router else { return self };
        let logits = router.take_logits();
        let aux_loss = router.loss(&logits, call.attention_mask);
        if let (Some(loss), Some(aux_loss)) = (&self.loss, &aux_loss) {
            self.loss = Some(loss.add_in_place(&aux_loss.mul_scalar(router.coefficient)));
        }
        self.router = aux_loss.map(|aux_loss| RouterOutput { aux_loss, logits });
        self
    }

    /// What in it DDP hands on: all but the cache.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let router = self.router.iter().flat_map(|router| [&router.aux_loss].into_iter().chain(&router.logits));
        let own = [&self.loss, &self.logits].into_iter().flatten();
        own.chain(router).chain(&self.more).cloned().collect()
    }

    /// The same output with these in their place.
    pub(crate) fn with_tensors(&self, tensors: Vec<Tensor>) -> Self {
        let mut tensors = tensors.into_iter();
        let mut next = |given: &Tensor| tensors.next().unwrap_or_else(|| given.clone());
        Self {
            loss: self.loss.as_ref().map(&mut next),
            logits: self.logits.as_ref().map(&mut next),
            cache: self.cache.clone(),
            router: self.router.as_ref().map(|router| router.map(&mut next)),
            more: self.more.iter().map(&mut next).collect(),
        }
    }
}

impl RouterOutput {
    /// What `map` makes of each tensor in it.
    pub(crate) fn map(&self, mut map: impl FnMut(&Tensor) -> Tensor) -> Self {
        Self { aux_loss: map(&self.aux_loss), logits: self.logits.iter().map(map).collect() }
    }
}

/// A model on the device.
pub(crate) trait Model {
    fn forward(&self, call: &ForwardCall) -> ModelOutput;

    /// `model.base_model(...).last_hidden_state`: the forward pass without the head.
    fn hidden_states(&self, call: &ForwardCall) -> Tensor;

    /// The same with what the base model returns beside: what a tower made of images.
    fn base_outputs(&self, call: &ForwardCall) -> (Tensor, Option<Tensor>) {
        (self.hidden_states(call), None)
    }

    /// What a stage of a pipeline makes of `received` from the stage before, or of the ids of the call: logits where it has the head, else
    /// what it hands on. `None` where the family has no stages.
    fn run_stage(&self, _call: &ForwardCall, _received: Option<&Tensor>) -> Option<Tensor> {
        None
    }

    /// `model.get_output_embeddings()`
    fn output_embeddings(&self) -> Rc<Linear>;

    /// Where its routers leave their logits.
    fn router(&self) -> Option<Rc<RouterLoss>> {
        None
    }

    /// The cache that `DynamicCache(config)` is for this model.
    fn new_cache(&self) -> Rc<KvCache> {
        Rc::default()
    }
}
