//! DeepSeek-V3's router (transformers/models/deepseek_v3/modeling_deepseek_v3.py, `DeepseekV3TopkRouter`), which GLM-4.5 shares: sigmoids
//! in fp32, a bias that only chooses, groups of experts of which the best are looked at; and Mistral 4's, with a softmax and no bias.

use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::op::zeros;
use crate::tensor::Tensor;

use super::{ExpertsConfig, Router, Routing};

/// What it reads beside the sizes of experts.
#[derive(Clone, Copy)]
pub(crate) struct GroupScores {
    pub n_group: u64,
    pub topk_group: u64,
    pub norm_topk_prob: bool,
    pub routed_scaling_factor: f64,
}

impl GroupScores {
    /// Refuses groups that PyTorch cannot make of the experts, or of which it cannot take the `best` ones.
    pub(crate) fn check(&self, experts: &ExpertsConfig, best: u64) -> Result<(), FieldError> {
        let (groups, count) = (self.n_group, experts.num_experts);
        if !count.is_multiple_of(groups) || count / groups < best {
            let problem = format!("is {groups}: {count} experts are not so many groups of {best} or more");
            return Err(FieldError::new("n_group", problem));
        }
        if self.topk_group > groups {
            return Err(FieldError::new("topk_group", format!("is {}, of {groups} groups", self.topk_group)));
        }
        Ok(())
    }

    /// Reads them, with what the config class has where a config says nothing.
    pub(crate) fn read(fields: &Fields, otherwise: Self) -> Result<Self, FieldError> {
        Ok(Self {
            n_group: fields.size("n_group", otherwise.n_group)?,
            topk_group: fields.size("topk_group", otherwise.topk_group)?,
            norm_topk_prob: fields.flag("norm_topk_prob", otherwise.norm_topk_prob)?,
            routed_scaling_factor: fields.number("routed_scaling_factor", otherwise.routed_scaling_factor)?,
        })
    }
}

pub(crate) struct GroupRouter {
    module: Module,
    weight: Tensor,
    /// With sigmoids; a router without it has a softmax.
    e_score_correction_bias: Option<Tensor>,
    config: ExpertsConfig,
    scores: GroupScores,
}

impl GroupRouter {
    /// With a bias in this dtype, if any.
    pub(crate) fn new(at: &Builder, config: &ExpertsConfig, scores: GroupScores, bias: Option<DType>) -> Self {
        at.lack_adapters(&["gate", "gate.weight"]);
        let experts = config.num_experts;
        Self {
            module: at.module(),
            weight: at.parameter("weight", &[experts, config.hidden_size], Init::Normal),
            e_score_correction_bias: bias
                .map(|dtype| at.saved_buffer("e_score_correction_bias", &[experts], dtype, Init::Zeros)),
            config: config.clone(),
            scores,
        }
    }

    /// `scores_for_choice.view(-1, num_group, num_experts // num_group).topk(2, dim=-1)[0].sum(dim=-1)`
    fn best_two_of_groups(&self, scores_for_choice: &Tensor) -> Tensor {
        let (tokens, groups) = (scores_for_choice.size(0), self.scores.n_group);
        let grouped = scores_for_choice.view(&[tokens, groups, self.config.num_experts / groups]);
        let best = grouped.topk(2).0;
        best.sum_each()
    }

    /// The logits, what they are as scores, and the scores by which experts are chosen.
    fn score(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        let Some(bias) = &self.e_score_correction_bias else {
            let logits = hidden_states.linear(&self.weight, None);
            let scores = logits.softmax(None);
            return [logits, scores.clone(), scores];
        };
        let logits = float_linear(hidden_states, &self.weight);
        let scores = logits.sigmoid();
        let scores_for_choice = &scores + bias;
        [logits, scores, scores_for_choice]
    }
}

impl Router for GroupRouter {
    fn forward(&self, x: &Tensor) -> Routing {
        let _module = self.module.enter();
        let hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let [logits, scores, mut scores_for_choice] = self.score(&hidden_states);
        let group_scores = self.best_two_of_groups(&scores_for_choice);
        let group_idx = group_scores.topk(self.scores.topk_group).1;
        let group_mask = zeros(group_scores.context(), group_scores.sizes(), group_scores.dtype());
        group_mask.set_ones_at(&group_idx);
        let score_mask = of_experts(&group_mask, self.config.num_experts);
        scores_for_choice = {
            let hidden = score_mask.to(DType::Bool).bitwise_not();
            scores_for_choice
                .masked_fill(&hidden, if self.e_score_correction_bias.is_some() { f64::NEG_INFINITY } else { 0.0 })
        };
        let chosen = scores_for_choice.topk(self.config.num_experts_per_tok).1;
        let mut weights = scores.gather(&chosen);
        let denominator = self.scores.norm_topk_prob.then(|| weights.sum_last().add_scalar(1e-20));
        if let Some(denominator) = &denominator {
            weights = weights.div_in_place(denominator);
        }
        weights = weights.mul_scalar(self.scores.routed_scaling_factor);
        Routing { logits, weights, chosen }
    }
}

/// `F.linear(hidden_states.type(torch.float32), self.weight.type(torch.float32))`
pub(crate) fn float_linear(hidden_states: &Tensor, weight: &Tensor) -> Tensor {
    let (input, weight) = (hidden_states.to(DType::Float32), weight.to(DType::Float32));
    input.linear(&weight, None)
}

/// `group_mask.unsqueeze(-1).expand(-1, num_group, num_experts // num_group).reshape(-1, num_experts)`
pub(crate) fn of_experts(group_mask: &Tensor, experts: u64) -> Tensor {
    let (tokens, groups) = (group_mask.size(0), group_mask.size(1));
    group_mask.unsqueeze(2).expand(&[tokens, groups, experts / groups]).reshape(&[tokens, experts])
}
