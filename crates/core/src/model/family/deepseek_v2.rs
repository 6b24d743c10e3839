//! DeepSeek-V2 (transformers/models/deepseek_v2/modeling_deepseek_v2.py): DeepSeek-V3's latent attention, turned as complex numbers, and
//! its experts, of which a softmax chooses the best, of all or of the best groups.

use crate::building::{BuildError, Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, ModelSpec, ModelingFile};
use crate::model::nn::{ExpertsConfig, GroupScores, RotaryTables, Router, Routing, float_linear, of_experts};
use crate::op::zeros;
use crate::tensor::Tensor;

use super::bounds::check_divides;
use super::decoder::DecoderDefaults;
use super::deepseek_v3::{Config, Latents, Turns, build_latent, read_latent};
use super::glm4_moe::{MoeConfig, MoeDefaults, first_dense};
use super::{Family, Model, RunOptions};

pub(crate) const FAMILY: Family = Family { model_types: &["deepseek_v2"], build };

/// What `DeepseekV2Config` has where a config says nothing (transformers 5.17).
const DEFAULTS: DecoderDefaults =
    DecoderDefaults { vocab_size: 102_400, file: ModelingFile::Later, ..DecoderDefaults::LLAMA };

/// The same class's latents.
const LATENTS: Latents = Latents {
    q_lora_rank: Some(1536),
    kv_lora_rank: 512,
    qk_nope_head_dim: 128,
    qk_rope_head_dim: 64,
    v_head_dim: 128,
    turns: Turns::Complex,
    query_scale: None,
};

fn build(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let is_grouped = is_grouped(&model.config)?;
    let config = read_config(&model.config, is_grouped, at.dtype())?;
    Ok(build_latent(&config, at, options, |at| Box::new(DeepseekV2Router::new(at, &config.moe, is_grouped))))
}

fn read_config(fields: &Fields, is_grouped: bool, dtype: DType) -> Result<Config, FieldError> {
    let (mut decoder, latents) = read_latent(fields, &DEFAULTS, &LATENTS)?;
    decoder.tables = RotaryTables::Complex;
    check_divides("num_attention_heads", decoder.num_attention_heads, "hidden_size", decoder.hidden_size)?;
    let per_token = fields.size("num_experts_per_tok", 0)?;
    if per_token == 0 {
        return Err(FieldError::new(
            "num_experts_per_tok",
            "is missing: the class has no default, and cannot run without",
        ));
    }
    let scores = GroupScores { n_group: 1, topk_group: 1, norm_topk_prob: false, routed_scaling_factor: 1.0 };
    let best_of_group = u64::from(is_grouped);
    let defaults = MoeDefaults { inner: 1407, experts: 64, per_token, shared: 2, scores, best_of_group };
    let moe = MoeConfig::read(fields, &decoder, dtype, &defaults)?;
    let dense = first_dense(fields, 0, &decoder)?;
    Ok(Config { decoder, latents, moe: moe.in_layers(dense) })
}

/// `topk_method`
fn is_grouped(fields: &Fields) -> Result<bool, FieldError> {
    let key = "topk_method";
    match fields.text(key, "greedy")? {
        "greedy" => Ok(false),
        "group_limited_greedy" => Ok(true),
        other => Err(FieldError::new(key, format!("`{other}` is not greedy or group_limited_greedy"))),
    }
}

/// `DeepseekV2TopkRouter`
struct DeepseekV2Router {
    module: Module,
    weight: Tensor,
    config: ExpertsConfig,
    scores: GroupScores,
    is_grouped: bool,
}

impl DeepseekV2Router {
    fn new(at: &Builder, moe: &MoeConfig, is_grouped: bool) -> Self {
        at.lack_adapters(&["gate", "gate.weight"]);
        let weight = at.parameter("weight", &[moe.experts.num_experts, moe.experts.hidden_size], Init::Normal);
        Self { module: at.module(), weight, config: moe.experts.clone(), scores: moe.scores, is_grouped }
    }

    /// `group_limited_greedy`: which experts are of the groups with the best one, of each token.
    fn best_groups(&self, scores: &Tensor) -> [Tensor; 4] {
        let (tokens, groups) = (scores.size(0), self.scores.n_group);
        let group_scores = scores.view(&[tokens, groups, self.config.num_experts / groups]).max_last().squeeze(2);
        let group_idx = group_scores.topk(self.scores.topk_group).1;
        let group_mask = zeros(group_scores.context(), group_scores.sizes(), group_scores.dtype());
        group_mask.set_ones_at(&group_idx);
        let score_mask = of_experts(&group_mask, self.config.num_experts);
        [group_scores, group_idx, group_mask, score_mask]
    }
}

impl Router for DeepseekV2Router {
    fn forward(&self, x: &Tensor) -> Routing {
        let _module = self.module.enter();
        let hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let logits = float_linear(&hidden_states, &self.weight);
        let mut scores = logits.softmax(Some(DType::Float32));
        let groups = self.is_grouped.then(|| self.best_groups(&scores));
        if let Some([.., score_mask]) = &groups {
            scores = {
                let hidden = score_mask.to(DType::Bool).bitwise_not();
                scores.masked_fill(&hidden, 0.0)
            };
        }
        let (mut weights, chosen) = scores.topk(self.config.num_experts_per_tok);
        weights = weights.mul_scalar(self.scores.routed_scaling_factor);
        Routing { logits, weights, chosen }
    }
}
