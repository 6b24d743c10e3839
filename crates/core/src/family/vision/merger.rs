//! What makes one token of the patches of a square (`PatchMerger`).

use super::qwen2_5_vl::Config;
use crate::building::{Builder, Module};
use crate::model::nn::{Activation, Linear, Norm};
use crate::op::Gelu;
use crate::tensor::Tensor;

pub(super) struct Merger<N> {
    module: Module,
    ln_q: N,
    mlp: Module,
    first: Linear,
    gelu: Module,
    last: Linear,
    width: u64,
}

impl<N: Norm> Merger<N> {
    pub(super) fn new<M>(at: &Builder, config: &Config<N, M>) -> Self {
        let width = config.embed_dim * config.patches.unit();
        let mlp = at.at("mlp");
        Self {
            module: at.module(),
            ln_q: N::new(&at.at("ln_q"), config.embed_dim, 1e-6),
            mlp: mlp.module(),
            first: Linear::new(&mlp.at("0"), width, width, true),
            gelu: mlp.at("1").module(),
            last: Linear::new(&mlp.at("2"), width, config.out_hidden_size, true),
            width,
        }
    }

    pub(super) fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let normed = self.ln_q.forward(x);
        let rows = normed.numel() / self.width;
        // An argument of the call, it lives as long as that.
        let input = normed.view(&[rows, self.width]);
        drop(normed);
        let _mlp = self.mlp.enter();
        let mut states = self.first.forward(&input);
        states = {
            let _gelu = self.gelu.enter();
            Activation::Gelu(Gelu::Exact).forward(&states)
        };
        self.last.forward(&states)
    }
}
