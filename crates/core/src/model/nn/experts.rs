//! Mixtures of experts (transformers/integrations/moe.py): a router chooses experts for each token, whose weights are parameters of three
//! dimensions.

use std::rc::Rc;

use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::tensor::Tensor;

use super::{Activation, RouterLoss};

/// What mixtures of experts have beside a decoder's config.
#[derive(Clone)]
pub(crate) struct ExpertsConfig {
    pub hidden_size: u64,
    /// Of one expert.
    pub intermediate_size: u64,
    pub num_experts: u64,
    pub num_experts_per_tok: u64,
    pub activation: Activation,
    pub scores: Scores,
    pub form: ExpertsForm,
}

/// How a router makes weights of its logits.
#[derive(Clone, Copy)]
pub(crate) struct Scores {
    /// The softmax is told fp32, rather than given logits in fp32.
    pub softmax_casts: bool,
    /// The weights of a token add up to 1.
    pub normalized: bool,
    /// The weights go back to the dtype of the logits.
    pub cast_back: bool,
}

/// `experts_implementation`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertsForm {
    /// Tokens sorted by expert, a grouped product: transformers' own choice.
    GroupedMm,
    /// The weights of each token's experts copied beside each other.
    BatchedMm,
}

impl ExpertsForm {
    pub(crate) fn read(fields: &Fields) -> Result<Self, FieldError> {
        let key = "experts_implementation";
        match fields.text(key, "grouped_mm")? {
            "grouped_mm" => Ok(Self::GroupedMm),
            "batched_mm" => Ok(Self::BatchedMm),
            other => Err(FieldError::unsimulated(
                key,
                format!("`{other}` is not simulated; `grouped_mm` and `batched_mm` are"),
            )),
        }
    }
}

/// What rows of a grouped product's operands begin at multiples of, in bytes.
const ALIGNMENT: u64 = 16;

impl ExpertsConfig {
    /// Refuses what the grouped product of `dtype` refuses.
    pub(crate) fn check(&self, inner_key: &'static str, dtype: DType) -> Result<(), FieldError> {
        if self.num_experts_per_tok > self.num_experts {
            let problem = format!("is {}, of {} experts", self.num_experts_per_tok, self.num_experts);
            return Err(FieldError::new("num_experts_per_tok", problem));
        }
        for (key, width) in [("hidden_size", self.hidden_size), (inner_key, self.intermediate_size)] {
            if self.form == ExpertsForm::GroupedMm && !(width * dtype.size()).is_multiple_of(ALIGNMENT) {
                let step = ALIGNMENT / dtype.size();
                let problem = format!("is {width}: grouped products of {} need a multiple of {step}", dtype.name());
                return Err(FieldError::new(key, problem));
            }
        }
        Ok(())
    }
}

/// What a router says.
pub(crate) struct Routing {
    /// The block holds them to its end, as a variable of Python's that nobody reads.
    #[expect(dead_code, reason = "whoever holds it holds the logits")]
    pub logits: Tensor,
    pub weights: Tensor,
    /// The experts of each token.
    pub chosen: Tensor,
}

/// `MixtralTopKRouter` and its relatives.
pub(crate) struct TopKRouter {
    module: Module,
    weight: Tensor,
    config: ExpertsConfig,
    router_loss: Rc<RouterLoss>,
}

impl TopKRouter {
    pub(crate) fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>) -> Self {
        at.lack_adapters(&["gate", "gate.weight"]);
        let weight = at.parameter("weight", &[config.num_experts, config.hidden_size], Init::Normal);
        Self { module: at.module(), weight, config: config.clone(), router_loss: Rc::clone(router_loss) }
    }

    pub(crate) fn forward(&self, hidden_states: &Tensor) -> Routing {
        let _module = self.module.enter();
        let scores = self.config.scores;
        let logits = hidden_states.linear(&self.weight, None);
        let router_probs =
            if scores.softmax_casts { logits.softmax(Some(DType::Float32)) } else { logits.float().softmax(None) };
        let (mut weights, chosen) = router_probs.topk(self.config.num_experts_per_tok);
        if scores.normalized {
            weights = weights.div_in_place(&weights.sum_last());
        }
        if scores.cast_back {
            weights = weights.to(logits.dtype());
        }
        self.router_loss.note(&logits);
        Routing { logits, weights, chosen }
    }
}

/// `MixtralExperts` and its relatives.
pub(crate) struct Experts {
    module: Module,
    gate_up_proj: Tensor,
    down_proj: Tensor,
    act_fn: Module,
    config: ExpertsConfig,
}

impl Experts {
    pub(crate) fn new(at: &Builder, config: &ExpertsConfig) -> Self {
        let (experts, hidden, inner) = (config.num_experts, config.hidden_size, config.intermediate_size);
        at.lack_adapters(&["gate_up_proj", "down_proj", "gate_proj", "up_proj", "w1", "w2", "w3"]);
        Self {
            module: at.module(),
            gate_up_proj: at.parameter("gate_up_proj", &[experts, 2 * inner, hidden], Init::Normal),
            down_proj: at.parameter("down_proj", &[experts, hidden, inner], Init::Normal),
            act_fn: at.at("act_fn").module(),
            config: config.clone(),
        }
    }

    /// `generate` decodes with the batched form (transformers, generation/utils.py, `_optimize_model_for_decode`).
    pub(crate) fn forward(&self, hidden_states: &Tensor, routing: &Routing, decodes: bool) -> Tensor {
        let _module = self.module.enter();
        match self.config.form {
            ExpertsForm::GroupedMm if !decodes => self.grouped_mm(hidden_states, &routing.chosen, &routing.weights),
            _ => self.batched_mm(hidden_states, &routing.chosen, &routing.weights),
        }
    }

    /// `grouped_mm_experts_forward`
    fn grouped_mm(&self, hidden_states: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        let (tokens, hidden_dim, top_k) = (hidden_states.size(0), hidden_states.size(1), chosen.size(1));
        let sample_weights = weights.reshape(&[tokens * top_k]);
        let (expert_ids_g, perm) = chosen.reshape(&[tokens * top_k]).sort_places();
        let selected_hidden_states_g = hidden_states.select_rows(&perm.floor_divide(top_k));
        let sample_weights_g = sample_weights.select_rows(&perm);
        let [_histc_input, tokens_per_expert] = expert_ids_g.count_each(self.config.num_experts);
        let offsets = tokens_per_expert.running_sum();
        let sentinel_mask = expert_ids_g.ge_number(self.config.num_experts as f64).unsqueeze(1);
        let selected_hidden_states_g = selected_hidden_states_g.zero_where_in_place(&sentinel_mask);
        let mut proj_out = grouped_linear(&selected_hidden_states_g, &self.gate_up_proj, &offsets);
        proj_out = proj_out.zero_where(&sentinel_mask);
        proj_out = self.apply_gate(&proj_out);
        proj_out = grouped_linear(&proj_out, &self.down_proj, &offsets);
        proj_out = proj_out.zero_where(&sentinel_mask);
        let mut weighted_out = &proj_out * &sample_weights_g.unsqueeze(1);
        let inv_perm = perm.inverse_permutation();
        weighted_out = weighted_out.select_rows(&inv_perm);
        let final_hidden_states = weighted_out.view(&[tokens, top_k, hidden_dim]).sum_middle();
        final_hidden_states.to(hidden_states.dtype())
    }

    /// `batched_mm_experts_forward`
    fn batched_mm(&self, hidden_states: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        let (tokens, hidden_dim, top_k) = (hidden_states.size(0), hidden_states.size(1), chosen.size(1));
        let selected_hidden_states = hidden_states.unsqueeze(1).expand(&[tokens, top_k, hidden_dim]);
        let selected_hidden_states = selected_hidden_states.reshape(&[tokens * top_k, hidden_dim]);
        let sample_weights = weights.reshape(&[tokens * top_k]);
        let expert_ids = chosen.reshape(&[tokens * top_k]).clamp_places(self.config.num_experts);
        let mut selected_weights = self.gate_up_proj.select_rows(&expert_ids);
        let mut proj_out = batched_linear(&selected_hidden_states, &selected_weights);
        proj_out = self.apply_gate(&proj_out);
        selected_weights = self.down_proj.select_rows(&expert_ids);
        proj_out = batched_linear(&proj_out, &selected_weights);
        let weighted_out = &proj_out * &sample_weights.unsqueeze(1);
        let final_hidden_states = weighted_out.view(&[tokens, top_k, hidden_dim]).sum_middle();
        final_hidden_states.to(hidden_states.dtype())
    }

    /// `_default_apply_gate`
    fn apply_gate(&self, gate_up_out: &Tensor) -> Tensor {
        let [gate, up] = gate_up_out.split_last();
        let activated = {
            let _act_fn = self.act_fn.enter();
            self.config.activation.forward(&gate)
        };
        &activated * &up
    }
}

/// `_grouped_linear` of weights [experts, outputs, inputs]
fn grouped_linear(input: &Tensor, weight: &Tensor, offsets: &Tensor) -> Tensor {
    input.to(weight.dtype()).grouped_mm(&weight.transpose(1, 2), offsets)
}

/// `_batched_linear`
fn batched_linear(input: &Tensor, weight: &Tensor) -> Tensor {
    weight.matmul(&input.unsqueeze(2)).squeeze(2)
}
