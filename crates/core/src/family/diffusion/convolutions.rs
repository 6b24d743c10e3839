//! Residual blocks of images and what they are made of (models/resnet.py).

use crate::building::{Builder, Init, Module};
use crate::model::nn::Linear;
use crate::tensor::Tensor;

/// `nn.Conv2d` with a bias, and margins that keep the size at a stride of 1.
pub(super) struct Conv2d {
    module: Module,
    weight: Tensor,
    bias: Tensor,
    stride: u64,
}

impl Conv2d {
    pub(super) fn new(at: &Builder, [inputs, outputs]: [u64; 2], kernel: u64, stride: u64) -> Self {
        let weight = at.parameter("weight", &[outputs, inputs, kernel, kernel], Init::Normal);
        Self { module: at.module(), weight, bias: at.parameter("bias", &[outputs], Init::Zeros), stride }
    }

    pub(super) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        input.conv2d_padded(&self.weight, &self.bias, self.stride, self.weight.size(2) / 2)
    }

    /// On an input whose margins are there already.
    pub(super) fn forward_unpadded(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        input.conv2d(&self.weight, Some(&self.bias), [self.stride; 2])
    }
}

pub(super) struct GroupNorm {
    module: Module,
    weight: Tensor,
    bias: Tensor,
    groups: u64,
}

impl GroupNorm {
    pub(super) fn new(at: &Builder, channels: u64, groups: u64) -> Self {
        let weight = at.parameter("weight", &[channels], Init::Ones);
        Self { module: at.module(), weight, bias: at.parameter("bias", &[channels], Init::Zeros), groups }
    }

    pub(super) fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        input.group_norm(self.groups, &self.weight, &self.bias)
    }
}

pub(super) struct ResnetBlock {
    module: Module,
    norm1: GroupNorm,
    conv1: Conv2d,
    time_emb_proj: Option<Linear>,
    norm2: GroupNorm,
    conv2: Conv2d,
    conv_shortcut: Option<Conv2d>,
}

impl ResnetBlock {
    pub(super) fn new(at: &Builder, [inputs, outputs]: [u64; 2], time: Option<u64>, groups: u64) -> Self {
        Self {
            module: at.module(),
            norm1: GroupNorm::new(&at.at("norm1"), inputs, groups),
            conv1: Conv2d::new(&at.at("conv1"), [inputs, outputs], 3, 1),
            time_emb_proj: time.map(|time| Linear::new(&at.at("time_emb_proj"), time, outputs, true)),
            norm2: GroupNorm::new(&at.at("norm2"), outputs, groups),
            conv2: Conv2d::new(&at.at("conv2"), [outputs; 2], 3, 1),
            conv_shortcut: (inputs != outputs).then(|| Conv2d::new(&at.at("conv_shortcut"), [inputs, outputs], 1, 1)),
        }
    }

    pub(super) fn forward(&self, input_tensor: &Tensor, temb: Option<&Tensor>) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.norm1.forward(input_tensor);
        hidden_states = hidden_states.silu();
        hidden_states = self.conv1.forward(&hidden_states);
        let mut projected = None;
        if let Some((project, temb)) = self.time_emb_proj.as_ref().zip(temb) {
            let activated = temb.silu();
            let temb = project.forward(&activated).unsqueeze(2).unsqueeze(3);
            drop(activated);
            hidden_states = &hidden_states + &*projected.insert(temb);
        }
        hidden_states = self.norm2.forward(&hidden_states);
        hidden_states = hidden_states.silu();
        hidden_states = self.conv2.forward(&hidden_states);
        let shortcut = self.conv_shortcut.as_ref().map(|conv| conv.forward(&input_tensor.contiguous()));
        let sum = shortcut.as_ref().unwrap_or(input_tensor) + &hidden_states;
        sum.div_scalar(1.0)
    }
}
