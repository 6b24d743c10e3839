//! Experts as a list of MLPs, each run on the tokens that chose it, whose results are added up (transformers 4.48,
//! models/mixtral/modeling_mixtral.py, `MixtralSparseMoeBlock`); transformers 5 stacks them.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::dtype::DType;
use crate::model::nn::{ExpertsConfig, Linear, RouterLoss};
use crate::op::zeros;
use crate::tensor::Tensor;

use super::gated_mlp::DecoderMlp;
use super::layer::{FeedForward, LayerCall};

pub(crate) struct ExpertLoop {
    module: Module,
    gate: Linear,
    experts: Vec<DecoderMlp>,
    config: ExpertsConfig,
    router_loss: Rc<RouterLoss>,
}

impl ExpertLoop {
    /// With these names for what gates, the projection back and what is gated, in the order in which they are registered.
    pub(crate) fn new(at: &Builder, config: &ExpertsConfig, router_loss: &Rc<RouterLoss>, names: [&str; 3]) -> Self {
        let [hidden, inner] = [config.hidden_size, config.intermediate_size];
        let experts = at.at("experts");
        Self {
            module: at.module(),
            // Checkpoints of GPTQ have routers as they were.
            gate: Linear::new(&at.at("gate").whole_in_gptq(), hidden, config.num_experts, false),
            experts: (0..config.num_experts)
                .map(|expert| {
                    DecoderMlp::registered_gate_down_up(
                        &experts.element(expert),
                        names,
                        [hidden, inner],
                        config.activation,
                    )
                })
                .collect(),
            config: config.clone(),
            router_loss: Rc::clone(router_loss),
        }
    }

    /// The weights of each token's experts, which experts those are, and the router's logits.
    fn route(&self, hidden_states: &Tensor) -> [Tensor; 3] {
        let router_logits = self.gate.forward(hidden_states);
        self.router_loss.note(&router_logits);
        let probabilities = router_logits.softmax(Some(DType::Float32));
        let (mut weights, chosen) = probabilities.topk(self.config.num_experts_per_tok);
        drop(probabilities);
        weights = weights.div_in_place(&weights.sum_last());
        [weights.to(hidden_states.dtype()), chosen, router_logits]
    }

    /// How many of so many choices fall on an expert under an even load.
    fn count_share(&self, expert: u64, choices: u64) -> u64 {
        let until = |expert: u64| choices.saturating_mul(expert) / self.config.num_experts.max(1);
        until(expert + 1) - until(expert)
    }
}

impl FeedForward for ExpertLoop {
    fn forward(&self, x: &Tensor, call: &LayerCall) -> Tensor {
        self.forward_routed(x, call).0
    }

    fn forward_routed(&self, x: &Tensor, _call: &LayerCall) -> (Tensor, Option<Tensor>) {
        let _module = self.module.enter();
        let hidden_states = x.view(&[x.numel() / x.size(-1), x.size(-1)]);
        let (tokens, choices) = (hidden_states.size(0), hidden_states.size(0) * self.config.num_experts_per_tok);
        let [routing_weights, selected_experts, router_logits] = self.route(&hidden_states);
        let mut final_hidden_states = zeros(x.context(), &[tokens, x.size(-1)], x.dtype());
        let expert_mask = selected_experts.one_hot(self.config.num_experts);
        // What Python's variables hold of an expert until the next one's is there.
        let mut last: [Option<Tensor>; 3] = Default::default();
        for (expert, layer) in (0..).zip(&self.experts) {
            let of_expert = expert_mask.select(2, expert).t();
            let places = last[0].insert(of_expert.places(self.count_share(expert, choices))).clone();
            let [idx, top_x] = [places.select(1, 0), places.select(1, 1)];
            let chosen = hidden_states.unsqueeze(0).select_along(1, &top_x);
            let current_state = last[1].insert(chosen.view(&[top_x.size(0), x.size(-1)])).clone();
            drop(chosen);
            let current_hidden_states = {
                let made = layer.forward(&current_state);
                let weights = routing_weights.unsqueeze(2).at_places(&[&top_x, &idx]);
                &made * &weights
            };
            let current_hidden_states = last[2].insert(current_hidden_states);
            final_hidden_states =
                final_hidden_states.add_rows_in_place(&top_x, &current_hidden_states.to(hidden_states.dtype()));
        }
        (final_hidden_states.reshape(x.sizes()), Some(router_logits))
    }
}
