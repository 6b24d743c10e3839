//! Mixtures of experts (transformers/integrations/moe.py): a router chooses experts for each token, whose weights are parameters of three
//! dimensions.

use std::rc::Rc;

use crate::building::{Builder, ExpertStack, Init, Module};
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
    pub kind: ExpertsKind,
}

/// What `use_experts_implementation` is told of the class, and its `_apply_gate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ExpertsKind {
    /// Weights [experts, outputs, inputs] without biases, gates before what they gate.
    Gated,
    /// gpt-oss's: weights [experts, inputs, outputs] with biases, gates beside what they gate, both clamped.
    ClampedWithBiases { alpha: f64, limit: f64 },
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
    /// One after another on the tokens that chose it, before they were stacked.
    Loop,
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

/// What chooses experts for tokens.
pub(crate) trait Router: 'static {
    fn forward(&self, hidden_states: &Tensor) -> Routing;
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
    gate_up_proj: Projection,
    down_proj: Projection,
    act_fn: Module,
    config: ExpertsConfig,
}

impl Experts {
    pub(crate) fn new(at: &Builder, config: &ExpertsConfig) -> Self {
        Self::of_pieces(at, config, ["gate_proj", "down_proj"])
    }

    /// The same, where a checkpoint calls the first tensors of an expert that the two stacks are made of so.
    pub(crate) fn of_pieces(at: &Builder, config: &ExpertsConfig, pieces: [&str; 2]) -> Self {
        at.lack_adapters(&["gate_up_proj", "down_proj", "gate_proj", "up_proj", "w1", "w2", "w3"]);
        Self::of_stacks(at, config, Some(pieces))
    }

    /// The same, where a checkpoint has the two stacks themselves if there are no `pieces`, which peft knows nothing of either.
    pub(crate) fn of_stacks(at: &Builder, config: &ExpertsConfig, pieces: Option<[&str; 2]>) -> Self {
        let (experts, hidden, inner) = (config.num_experts, config.hidden_size, config.intermediate_size);
        let [of_gate_up, of_down] = [0, 1].map(|at| pieces.map(|pieces| (pieces[at], 2 - at as u64)));
        Self {
            module: at.module(),
            gate_up_proj: Projection::new(at, "gate_up_proj", of_gate_up, [experts, hidden, 2 * inner], config.kind),
            down_proj: Projection::new(at, "down_proj", of_down, [experts, inner, hidden], config.kind),
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
        let gate_up_proj = self.gate_up_proj.weight.access();
        let mut selected_biases = self.gate_up_proj.select_biases(&expert_ids_g);
        let selected_hidden_states_g = selected_hidden_states_g.zero_where_in_place(&sentinel_mask);
        let mut proj_out =
            self.gate_up_proj.grouped(&selected_hidden_states_g, (&gate_up_proj, &offsets), selected_biases.as_ref());
        proj_out = proj_out.zero_where(&sentinel_mask);
        proj_out = self.apply_gate(&proj_out);
        let down_proj = self.down_proj.weight.access();
        selected_biases = self.down_proj.select_biases(&expert_ids_g);
        proj_out = self.down_proj.grouped(&proj_out, (&down_proj, &offsets), selected_biases.as_ref());
        proj_out = proj_out.zero_where(&sentinel_mask);
        let mut weighted_out = &proj_out * &sample_weights_g.unsqueeze(1);
        let inv_perm = perm.inverse_permutation();
        weighted_out = weighted_out.select_rows(&inv_perm);
        let final_hidden_states = weighted_out.view(&[tokens, top_k, hidden_dim]).sum_middle();
        let output = final_hidden_states.to(hidden_states.dtype());
        self.gate_up_proj.weight.leave(gate_up_proj);
        self.down_proj.weight.leave(down_proj);
        output
    }

    /// `batched_mm_experts_forward`
    fn batched_mm(&self, hidden_states: &Tensor, chosen: &Tensor, weights: &Tensor) -> Tensor {
        let (tokens, hidden_dim, top_k) = (hidden_states.size(0), hidden_states.size(1), chosen.size(1));
        let selected_hidden_states = hidden_states.unsqueeze(1).expand(&[tokens, top_k, hidden_dim]);
        // `repeat_interleave`, which copies what it repeats once too.
        let selected_hidden_states = selected_hidden_states.clone_contiguous().view(&[tokens * top_k, hidden_dim]);
        let sample_weights = weights.reshape(&[tokens * top_k]);
        let expert_ids = chosen.reshape(&[tokens * top_k]).clamp_places(self.config.num_experts);
        let gate_up_proj = self.gate_up_proj.weight.access();
        let mut selected_weights = gate_up_proj.select_rows(&expert_ids);
        let mut selected_biases = self.gate_up_proj.select_biases(&expert_ids);
        let selected = (&selected_weights, selected_biases.as_ref());
        let mut proj_out = self.gate_up_proj.batched(&selected_hidden_states, selected);
        proj_out = self.apply_gate(&proj_out);
        let down_proj = self.down_proj.weight.access();
        selected_weights = down_proj.select_rows(&expert_ids);
        selected_biases = self.down_proj.select_biases(&expert_ids);
        proj_out = self.down_proj.batched(&proj_out, (&selected_weights, selected_biases.as_ref()));
        let weighted_out = &proj_out * &sample_weights.unsqueeze(1);
        let final_hidden_states = weighted_out.view(&[tokens, top_k, hidden_dim]).sum_middle();
        let output = final_hidden_states.to(hidden_states.dtype());
        self.gate_up_proj.weight.leave(gate_up_proj);
        self.down_proj.weight.leave(down_proj);
        output
    }

    /// `_apply_gate` of the class.
    fn apply_gate(&self, gate_up_out: &Tensor) -> Tensor {
        match self.config.kind {
            ExpertsKind::Gated => self.apply_default_gate(gate_up_out),
            ExpertsKind::ClampedWithBiases { alpha, limit } => apply_clamped_gate(gate_up_out, alpha, limit),
        }
    }

    /// `_default_apply_gate`: gates stand before what they gate.
    fn apply_default_gate(&self, gate_up_out: &Tensor) -> Tensor {
        let [gate, up] = gate_up_out.split_last();
        let activated = {
            let _act_fn = self.act_fn.enter();
            self.config.activation.forward(&gate)
        };
        &activated * &up
    }
}

/// `GptOssExperts._apply_gate`: gates alternate with what they gate, both clamped to `limit`.
fn apply_clamped_gate(gate_up: &Tensor, alpha: f64, limit: f64) -> Tensor {
    let (mut gate, mut up) = (gate_up.every_other(0), gate_up.every_other(1));
    gate = gate.clamp_max(limit);
    up = up.clamp_both(limit);
    let glu = {
        let opened = gate.mul_scalar(alpha).sigmoid();
        &gate * &opened
    };
    &up.add_scalar(1.0) * &glu
}

/// The weights of all experts, and their biases.
struct Projection {
    weight: ExpertStack,
    bias: Option<Tensor>,
    is_transposed: bool,
}

impl Projection {
    /// `pieces`: the first of the tensors that a checkpoint has of each expert, and of how many.
    fn new(
        at: &Builder,
        name: &str,
        pieces: Option<(&str, u64)>,
        [experts, inputs, outputs]: [u64; 3],
        kind: ExpertsKind,
    ) -> Self {
        let is_transposed = kind != ExpertsKind::Gated;
        let sizes = if is_transposed { [experts, inputs, outputs] } else { [experts, outputs, inputs] };
        let weight = ExpertStack::load(at, name, sizes, pieces.filter(|_| !is_transposed), Init::Normal);
        let new_bias = || at.parameter(&format!("{name}_bias"), &[experts, outputs], Init::Zeros);
        Self { weight, bias: is_transposed.then(new_bias), is_transposed }
    }

    fn select_biases(&self, expert_ids: &Tensor) -> Option<Tensor> {
        self.bias.as_ref().map(|bias| bias.select_rows(expert_ids))
    }

    /// `_grouped_linear`: `offsets` are where each expert's rows of `input` end.
    fn grouped(&self, input: &Tensor, (weight, offsets): (&Tensor, &Tensor), bias: Option<&Tensor>) -> Tensor {
        let input = input.to(weight.dtype());
        let out = if self.is_transposed {
            input.grouped_mm(weight, offsets)
        } else {
            input.grouped_mm(&weight.transpose(1, 2), offsets)
        };
        add_biases(out, bias)
    }

    /// `_batched_linear` by the weights of each row's expert
    fn batched(&self, input: &Tensor, (weight, bias): (&Tensor, Option<&Tensor>)) -> Tensor {
        let out = if self.is_transposed {
            input.unsqueeze(1).matmul(weight).squeeze(1)
        } else {
            weight.matmul(&input.unsqueeze(2)).squeeze(2)
        };
        add_biases(out, bias)
    }
}

/// `out.add_(bias)`, where there are biases.
fn add_biases(out: Tensor, bias: Option<&Tensor>) -> Tensor {
    bias.map_or_else(|| out.clone(), |bias| out.add_in_place(bias))
}
