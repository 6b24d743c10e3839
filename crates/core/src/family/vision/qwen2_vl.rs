//! Qwen2-VL (transformers/models/qwen2_vl/modeling_qwen2_vl.py): Qwen2.5-VL's tower with layer norms, two layers in the MLP, and whole
//! images in sight of every layer.

use std::marker::PhantomData;
use std::rc::Rc;

use super::grids::Patches;
use super::qwen2_5_vl::{Config, TowerMlp};
use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, Vision};
use crate::model::family::TowerConfig;
use crate::model::nn::{Activation, LayerNorm, Linear};
use crate::tensor::Tensor;

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let embed_dim = tower.size("embed_dim", 1280)?;
    let config = Config::<LayerNorm, VisionMlp> {
        patches: Patches::read(vision, &tower)?,
        depth: tower.layers("depth", 32)?,
        embed_dim,
        intermediate_size: inner_width(&tower, embed_dim)?,
        num_heads: tower.size("num_heads", 16)?,
        activation: Activation::from_name("hidden_act", tower.text("hidden_act", "quick_gelu")?)?,
        out_hidden_size: tower.size("hidden_size", 3584)?,
        window_size: None,
        fullatt_block_indexes: Vec::new(),
        mlp_names: ["fc1", "act", "fc2"],
        vision: vision.clone(),
        parts: PhantomData,
    };
    config.check()?;
    Ok(Rc::new(config))
}

/// `int(embed_dim * mlp_ratio)`
fn inner_width(tower: &Fields, embed_dim: u64) -> Result<u64, FieldError> {
    Ok((embed_dim as f64 * tower.positive("mlp_ratio", 4.0)?) as u64)
}

pub(super) struct VisionMlp {
    module: Module,
    fc1: Linear,
    act: Module,
    fc2: Linear,
    activation: Activation,
}

impl<N> TowerMlp<N> for VisionMlp {
    fn new(at: &Builder, config: &Config<N, Self>) -> Self {
        let (hidden, inner) = (config.embed_dim, config.intermediate_size);
        let [first, act, last] = config.mlp_names;
        Self {
            module: at.module(),
            fc1: Linear::new(&at.at(first), hidden, inner, true),
            act: at.at(act).module(),
            fc2: Linear::new(&at.at(last), inner, hidden, true),
            activation: config.activation,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let activated = {
            let inner = self.fc1.forward(x);
            let _act = self.act.enter();
            self.activation.forward(&inner)
        };
        self.fc2.forward(&activated)
    }
}
