//! Llama 4's experts, of which each computes all tokens, and the router that scales what they are given.

use crate::building::{Builder, ExpertStack, Init, Module};
use crate::model::family::decoder::DecoderConfig;
use crate::model::family::gated_mlp::DecoderMlp;
use crate::model::nn::{Activation, Linear};
use crate::op::filled;
use crate::tensor::Tensor;

#[derive(Clone, Copy)]
pub(super) struct ExpertSizes {
    pub count: u64,
    pub per_token: u64,
}

/// `Llama4TextExperts`: each computes what it is given, [experts, tokens, hidden].
struct Llama4TextExperts {
    module: Module,
    gate_up_proj: ExpertStack,
    down_proj: ExpertStack,
    act_fn: Module,
    activation: Activation,
    count: u64,
}

impl Llama4TextExperts {
    fn new(at: &Builder, config: &DecoderConfig, count: u64) -> Self {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        at.lack_adapters(&["gate_up_proj", "down_proj"]);
        let load = |name, sizes| ExpertStack::load(at, name, sizes, None, Init::Normal);
        Self {
            module: at.module(),
            gate_up_proj: load("gate_up_proj", [count, hidden, 2 * inner]),
            down_proj: load("down_proj", [count, inner, hidden]),
            act_fn: at.at("act_fn").module(),
            activation: config.activation,
            count,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let width = x.size(-1);
        let hidden_states = x.view(&[self.count, x.numel() / width / self.count, width]);
        let gate_up_proj = self.gate_up_proj.access();
        let gate_up = hidden_states.bmm(&gate_up_proj);
        let [gate, up] = gate_up.split_last();
        let product = {
            let activated = {
                let _act_fn = self.act_fn.enter();
                self.activation.forward(&gate)
            };
            &up * &activated
        };
        let down_proj = self.down_proj.access();
        let next_states = product.bmm(&down_proj);
        drop(product);
        self.gate_up_proj.leave(gate_up_proj);
        self.down_proj.leave(down_proj);
        next_states.view(&[x.numel() / width, width])
    }
}

pub(super) struct Llama4TextMoe {
    module: Module,
    experts: Llama4TextExperts,
    router: Linear,
    shared_expert: DecoderMlp,
    per_token: u64,
}

impl Llama4TextMoe {
    pub(super) fn new(at: &Builder, decoder: &DecoderConfig, ExpertSizes { count, per_token }: ExpertSizes) -> Self {
        Self {
            module: at.module(),
            experts: Llama4TextExperts::new(&at.at("experts"), decoder, count),
            router: Linear::whole(&at.at("router"), decoder.hidden_size, count),
            shared_expert: DecoderMlp::new(&at.at("shared_expert"), decoder),
            per_token,
        }
    }

    /// `Llama4Router.forward`: scores, which are 0 where an expert is not chosen, and logits.
    fn route(&self, hidden_states: &Tensor) -> (Tensor, Tensor) {
        let logits = self.router.forward(hidden_states);
        let (values, places) = logits.topk(self.per_token);
        let mut scores = filled(logits.context(), logits.sizes(), f64::NEG_INFINITY, logits.dtype());
        scores = scores.scatter_in_place(&places, &values);
        scores = {
            let opened = scores.float().sigmoid();
            opened.to(scores.dtype())
        };
        (scores, logits)
    }

    /// What the layer adds, and the router's logits.
    pub(super) fn forward(&self, x: &Tensor) -> (Tensor, Tensor) {
        let _module = self.module.enter();
        let width = x.size(-1);
        let hidden_states = x.reshape(&[x.numel() / width, width]);
        let (router_scores, router_logits) = self.route(&hidden_states);
        let count = router_scores.size(1);
        let mut routed_in = hidden_states.repeat_rows(count);
        routed_in = {
            let scores = router_scores.transpose(0, 1).reshape(&[router_scores.numel(), 1]);
            &routed_in * &scores
        };
        let routed_out = self.experts.forward(&routed_in);
        let out = self.shared_expert.forward(&hidden_states);
        let summed = routed_out.reshape(&[count, routed_out.size(0) / count, width]).sum_first();
        (out.add_in_place(&summed), router_logits)
    }
}
