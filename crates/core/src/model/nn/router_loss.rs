//! The loss that balances experts (transformers/models/mixtral/modeling_mixtral.py, `load_balancing_loss_func`), and how the logits of all
//! routers come to it (utils/output_capturing.py).

use std::cell::RefCell;

use crate::dtype::DType;
use crate::job::{FieldError, Fields};
use crate::op::zeros;
use crate::tensor::Tensor;

use super::ExpertsConfig;

/// What a model's routers share.
pub(crate) struct RouterLoss {
    num_experts: u64,
    top_k: u64,
    /// `output_router_logits`: every forward call computes the loss.
    pub is_output: bool,
    /// What its loss is multiplied by before it is added (`router_aux_loss_coef`).
    pub coefficient: f64,
    /// Logits of the running pass, where somebody asked for them.
    collected: RefCell<Option<Vec<Tensor>>>,
}

impl RouterLoss {
    /// With the coefficient that the config class has where a config says nothing.
    pub(crate) fn read(fields: &Fields, experts: &ExpertsConfig, coefficient: f64) -> Result<Self, FieldError> {
        Ok(Self {
            num_experts: experts.num_experts,
            top_k: experts.num_experts_per_tok,
            is_output: fields.flag("output_router_logits", false)?,
            coefficient: fields.number("router_aux_loss_coef", coefficient)?,
            collected: RefCell::default(),
        })
    }

    /// From here on routers leave their logits here. A layer that is recomputed in backward leaves none.
    pub(crate) fn collect(&self) {
        self.collected.replace(Some(Vec::new()));
    }

    /// What was left here since.
    pub(crate) fn take_logits(&self) -> Vec<Tensor> {
        self.collected.take().unwrap_or_default()
    }

    pub(crate) fn note(&self, logits: &Tensor) {
        if let Some(collected) = self.collected.borrow_mut().as_mut() {
            collected.push(logits.clone());
        }
    }

    /// `load_balancing_loss_func`: of every layer, how many tokens chose each expert, and how probable it was.
    pub(crate) fn loss(&self, gate_logits: &[Tensor], attention_mask: Option<&Tensor>) -> Option<Tensor> {
        let context = gate_logits.first()?.context();
        let zeros = || zeros(context, &[self.num_experts], DType::Float32);
        let (mut tokens_per_expert_sum, mut router_prob_sum) = (zeros(), zeros());
        let mut total_rows = TotalRows::Number(0);
        let flat_mask = attention_mask.map(|mask| mask.reshape(&[mask.numel()]).to(DType::Float32));
        // Python's variables of the last layer live until the next one's are there.
        let (mut routing_weights, mut chosen) = (None, None);
        for layer_gate in gate_logits {
            let routing_weights = routing_weights.insert(layer_gate.softmax(None));
            let (_, selected_experts) = chosen.insert(routing_weights.topk(self.top_k));
            tokens_per_expert_sum = {
                let tokens_per_expert = match &flat_mask {
                    None => selected_experts.count_chosen(self.num_experts),
                    Some(mask) => selected_experts.count_chosen_where(mask, self.num_experts),
                };
                &tokens_per_expert_sum + &tokens_per_expert
            };
            router_prob_sum = {
                let router_prob = sum_of_rows(routing_weights, flat_mask.as_ref());
                &router_prob_sum + &router_prob
            };
            total_rows = total_rows.plus(routing_weights, flat_mask.as_ref());
        }
        let tokens_per_expert = total_rows.divide(&tokens_per_expert_sum);
        let router_prob_per_expert = total_rows.divide(&router_prob_sum);
        let overall_loss = {
            let product = &tokens_per_expert * &router_prob_per_expert.unsqueeze(0);
            product.sum()
        };
        let loss = overall_loss.mul_scalar(self.num_experts as f64);
        // Whoever leaves a function of Python's drops its variables in the order in which they were first named.
        drop((tokens_per_expert_sum, router_prob_sum, total_rows, flat_mask, routing_weights, chosen));
        drop((tokens_per_expert, router_prob_per_expert, overall_loss));
        Some(loss)
    }
}

/// `routing_weights.float().sum(dim=0)`, weighed by the mask where there is one.
fn sum_of_rows(routing_weights: &Tensor, flat_mask: Option<&Tensor>) -> Tensor {
    let Some(mask) = flat_mask else { return routing_weights.float().sum_first() };
    let weighed = {
        let routing_weights = routing_weights.float();
        &routing_weights * &mask.unsqueeze(1)
    };
    weighed.sum_first()
}

/// How many rows there were: a number of Python's, or with a mask one of the device.
enum TotalRows {
    Number(u64),
    Tensor(Tensor),
}

impl TotalRows {
    fn plus(self, rows: &Tensor, flat_mask: Option<&Tensor>) -> Self {
        let count = flat_mask.map(Tensor::sum);
        match (self, count) {
            (Self::Number(number), None) => Self::Number(number + rows.size(0)),
            (Self::Number(number), Some(count)) => Self::Tensor(count.add_scalar(number as f64)),
            (Self::Tensor(total), count) => Self::Tensor(count.map_or(total.clone(), |count| &total + &count)),
        }
    }

    fn divide(&self, sum: &Tensor) -> Tensor {
        match self {
            Self::Number(number) => sum.div_scalar(*number as f64),
            Self::Tensor(total) => sum.div_by(total),
        }
    }
}
