//! The mixture of experts beside the MLP of Gemma 4's layers: `Gemma4TextRouter`, `Gemma4TextExperts` and their norms.

use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::model::nn::{Experts, ExpertsConfig, Linear, Routing};
use crate::tensor::Tensor;

use super::super::decoder::DecoderConfig;
use super::GemmaPowNorm;

struct Gemma4TextRouter {
    module: Module,
    norm: GemmaPowNorm,
    proj: Linear,
    scale: Tensor,
    per_expert_scale: Tensor,
    top_k: u64,
}

impl Gemma4TextRouter {
    fn new(at: &Builder, decoder: &DecoderConfig, config: &ExpertsConfig) -> Self {
        let (hidden, experts) = (decoder.hidden_size, config.num_experts);
        // A module's own parameters are listed before those of modules in it, and moved to the device after them.
        let own = at.next_slot();
        Self {
            module: at.module(),
            norm: GemmaPowNorm::without_scale(&at.at("norm"), decoder.norm_eps),
            proj: Linear::new(&at.at("proj"), hidden, experts, false),
            scale: at.parameter_listed_at(own, "scale", &[hidden], Init::Ones),
            per_expert_scale: at.parameter_listed_at(own + 1, "per_expert_scale", &[experts], Init::Ones),
            top_k: config.num_experts_per_tok,
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Routing {
        let _module = self.module.enter();
        let mut hidden_states = self.norm.forward(hidden_states);
        hidden_states = {
            let scaled = &hidden_states * &self.scale;
            scaled.mul_scalar((scaled.size(-1) as f64).powf(-0.5))
        };
        let expert_scores = self.proj.forward(&hidden_states);
        let router_probabilities = expert_scores.softmax(Some(DType::Float32));
        let (mut weights, chosen) = router_probabilities.topk(self.top_k);
        weights = weights.div_in_place(&weights.sum_last());
        weights = {
            let scales = self.per_expert_scale.select_rows(&chosen.reshape(&[chosen.numel()]));
            &weights * &scales.reshape(chosen.sizes())
        };
        Routing { logits: router_probabilities, weights, chosen }
    }
}

/// What a layer has beside its MLP where `enable_moe_block` is set.
pub(super) struct ExpertsBlock {
    router: Gemma4TextRouter,
    experts: Experts,
    post_feedforward_layernorm_1: GemmaPowNorm,
    post_feedforward_layernorm_2: GemmaPowNorm,
    pre_feedforward_layernorm_2: GemmaPowNorm,
}

impl ExpertsBlock {
    pub(super) fn new(at: &Builder, decoder: &DecoderConfig, config: &ExpertsConfig) -> Self {
        let norm = |name| GemmaPowNorm::new(&at.at(name), decoder.hidden_size, decoder.norm_eps);
        Self {
            router: Gemma4TextRouter::new(&at.at("router"), decoder, config),
            experts: Experts::of_stacks(&at.at("experts"), config, None),
            post_feedforward_layernorm_1: norm("post_feedforward_layernorm_1"),
            post_feedforward_layernorm_2: norm("post_feedforward_layernorm_2"),
            pre_feedforward_layernorm_2: norm("pre_feedforward_layernorm_2"),
        }
    }

    /// What MLP and experts come to together, and what the layer's variables hold to its end.
    pub(super) fn forward(
        &self,
        hidden_states: &Tensor,
        residual: &Tensor,
        attn_weights: Option<Tensor>,
        decodes: bool,
    ) -> (Tensor, (Routing, [Tensor; 2])) {
        let hidden_states_1 = self.post_feedforward_layernorm_1.forward(hidden_states);
        let hidden_states_flat = residual.reshape(&[residual.numel() / residual.size(-1), residual.size(-1)]);
        let routing = self.router.forward(&hidden_states_flat);
        drop(attn_weights);
        let mut hidden_states_2 = self.pre_feedforward_layernorm_2.forward(&hidden_states_flat);
        hidden_states_2 = self.experts.forward(&hidden_states_2, &routing, decodes);
        hidden_states_2 = hidden_states_2.reshape(residual.sizes());
        hidden_states_2 = self.post_feedforward_layernorm_2.forward(&hidden_states_2);
        (&hidden_states_1 + &hidden_states_2, (routing, [hidden_states_1, hidden_states_2]))
    }
}
