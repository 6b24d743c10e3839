//! The VAE of published pipelines (models/autoencoders/autoencoder_kl.py, vae.py): its encoder makes latents of images, its decoder is
//! on the device and never runs.

use crate::building::{Builder, Module};
use crate::job::Attention;
use crate::model::nn::Linear;
use crate::tensor::Tensor;

use super::attend;
use super::convolutions::{Conv2d, GroupNorm, ResnetBlock};

/// `block_out_channels` of the VAEs of Stable Diffusion 1 to 3.5 and of Flux, and residual blocks of each.
const CHANNELS: [u64; 4] = [128, 256, 512, 512];
const LAYERS: u64 = 2;
const GROUPS: u64 = 32;

fn resnet(at: &Builder, inputs: u64, outputs: u64) -> ResnetBlock {
    ResnetBlock::new(at, [inputs, outputs], None, GROUPS)
}

/// `Attention` of one head as wide as its channels, with a norm and a residual.
struct PixelAttention {
    module: Module,
    group_norm: GroupNorm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
    attention: Attention,
}

impl PixelAttention {
    fn new(at: &Builder, width: u64, attention: Attention) -> Self {
        let linear = |at: Builder| Linear::new(&at, width, width, true);
        Self {
            module: at.module(),
            group_norm: GroupNorm::new(&at.at("group_norm"), width, GROUPS),
            to_q: linear(at.at("to_q")),
            to_k: linear(at.at("to_k")),
            to_v: linear(at.at("to_v")),
            to_out: linear(at.at("to_out").at("0")),
            attention,
        }
    }

    fn forward(&self, residual: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let [rows, channels, height, width] = [0, 1, 2, 3].map(|at| residual.size(at));
        let pixels = residual.view(&[rows, channels, height * width]);
        let attended = self.group_norm.forward(&pixels).transpose(1, 2);
        let heads =
            |linear: &Linear| linear.forward(&attended).view(&[rows, height * width, 1, channels]).transpose(1, 2);
        let states = [heads(&self.to_q), heads(&self.to_k), heads(&self.to_v)];
        let mut hidden_states = attend(states.each_ref(), self.attention);
        hidden_states = hidden_states.transpose(1, 2).reshape(&[rows, height * width, channels]);
        hidden_states = self.to_out.forward(&hidden_states);
        hidden_states = hidden_states.transpose(1, 2).reshape(residual.sizes());
        hidden_states = &hidden_states + residual;
        hidden_states.div_scalar(1.0)
    }
}

/// Residual blocks, and what changes the size behind them; or those of the middle, with attention between them.
struct Block {
    module: Module,
    resnets: Vec<ResnetBlock>,
    attention: Option<PixelAttention>,
    resampler: Option<(Module, Conv2d)>,
}

impl Block {
    /// So many residual blocks to other channels, with a convolution in the list of this name.
    fn new(at: &Builder, [inputs, outputs]: [u64; 2], layers: u64, resampler: Option<(&str, u64)>) -> Self {
        let resnets = at.at("resnets");
        let resnet = |layer| resnet(&resnets.element(layer), if layer == 0 { inputs } else { outputs }, outputs);
        Self {
            module: at.module(),
            resnets: (0..layers).map(resnet).collect(),
            attention: None,
            resampler: resampler.map(|(name, stride)| {
                let at = at.at(name).element(0);
                let conv = Conv2d::new(&at.at("conv"), [outputs; 2], 3, stride);
                (at.module(), conv)
            }),
        }
    }

    /// Two residual blocks with attention between them (`UNetMidBlock2D`).
    fn middle(at: &Builder, attention: Attention) -> Self {
        let width = CHANNELS[CHANNELS.len() - 1];
        let module = at.module();
        let attention = Some(PixelAttention::new(&at.at("attentions").element(0), width, attention));
        Self { module, attention, ..Self::new(at, [width; 2], 2, None) }
    }

    fn forward(&self, input: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = input.clone();
        for (layer, resnet) in self.resnets.iter().enumerate() {
            if let Some(attention) = self.attention.as_ref().filter(|_| layer == 1) {
                hidden_states = attention.forward(&hidden_states);
            }
            hidden_states = resnet.forward(&hidden_states, None);
        }
        if let Some((module, conv)) = &self.resampler {
            let _module = module.enter();
            let padded = hidden_states.pad_corner();
            hidden_states = conv.forward_unpadded(&padded);
        }
        hidden_states
    }
}

/// What makes latents of images, or images of latents (`Encoder`, `Decoder`).
struct Coder {
    module: Module,
    conv_in: Conv2d,
    blocks: Vec<Block>,
    mid_block: Block,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
}

impl Coder {
    fn encoder(at: &Builder, latents: u64, attention: Attention) -> Self {
        let place = at.at("down_blocks");
        let block = |level: usize| {
            let inputs = CHANNELS[level.saturating_sub(1)];
            let resampler = (level + 1 < CHANNELS.len()).then_some(("downsamplers", 2));
            Block::new(&place.element(level as u64), [inputs, CHANNELS[level]], LAYERS, resampler)
        };
        let last = CHANNELS[CHANNELS.len() - 1];
        Self {
            module: at.module(),
            conv_in: Conv2d::new(&at.at("conv_in"), [3, CHANNELS[0]], 3, 1),
            blocks: (0..CHANNELS.len()).map(block).collect(),
            mid_block: Block::middle(&at.at("mid_block"), attention),
            conv_norm_out: GroupNorm::new(&at.at("conv_norm_out"), last, GROUPS),
            conv_out: Conv2d::new(&at.at("conv_out"), [last, 2 * latents], 3, 1),
        }
    }

    fn decoder(at: &Builder, latents: u64, attention: Attention) -> Self {
        let (place, last) = (at.at("up_blocks"), CHANNELS.len() - 1);
        let block = |level: usize| {
            let inputs = CHANNELS[(last - level + 1).min(last)];
            let resampler = (level < last).then_some(("upsamplers", 1));
            Block::new(&place.element(level as u64), [inputs, CHANNELS[last - level]], LAYERS + 1, resampler)
        };
        Self {
            module: at.module(),
            conv_in: Conv2d::new(&at.at("conv_in"), [latents, CHANNELS[last]], 3, 1),
            blocks: (0..CHANNELS.len()).map(block).collect(),
            mid_block: Block::middle(&at.at("mid_block"), attention),
            conv_norm_out: GroupNorm::new(&at.at("conv_norm_out"), CHANNELS[0], GROUPS),
            conv_out: Conv2d::new(&at.at("conv_out"), [CHANNELS[0], 3], 3, 1),
        }
    }

    fn encode(&self, image: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut sample = self.conv_in.forward(image);
        for block in self.blocks.iter().chain([&self.mid_block]) {
            sample = block.forward(&sample);
        }
        sample = self.conv_norm_out.forward(&sample);
        sample = sample.silu();
        self.conv_out.forward(&sample)
    }
}

/// The whole VAE, of which the encoder alone is run.
pub(crate) struct AutoencoderKl {
    module: Module,
    encoder: Coder,
    _decoder: Coder,
    quant_conv: Option<Conv2d>,
    _post_quant_conv: Option<Conv2d>,
}

impl AutoencoderKl {
    /// One of so many channels of latents; those of UNets have convolutions of one pixel next to them.
    pub(crate) fn new(at: &Builder, latents: u64, quantizes: bool, attention: Attention) -> Self {
        let conv = |name: &str, channels| quantizes.then(|| Conv2d::new(&at.at(name), [channels; 2], 1, 1));
        Self {
            module: at.module(),
            encoder: Coder::encoder(&at.at("encoder"), latents, attention),
            _decoder: Coder::decoder(&at.at("decoder"), latents, attention),
            quant_conv: conv("quant_conv", 2 * latents),
            _post_quant_conv: conv("post_quant_conv", latents),
        }
    }

    /// Latents that are drawn once, [rows, channels, height / 8, width / 8] (`encode(pixel_values).latent_dist.sample()`).
    pub(crate) fn sample_latents(&self, pixel_values: Tensor) -> Tensor {
        let distribution = Gaussian::new(self.encode(&pixel_values));
        drop(pixel_values);
        distribution.sample()
    }

    fn encode(&self, pixel_values: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let encoded = self.encoder.encode(pixel_values);
        match &self.quant_conv {
            Some(conv) => conv.forward(&encoded),
            None => encoded,
        }
    }
}

/// What an image is encoded as: a mean and a deviation for each number of its latents.
struct Gaussian {
    mean: Tensor,
    std: Tensor,
    _logvar: Tensor,
    _var: Tensor,
}

impl Gaussian {
    fn new(parameters: Tensor) -> Self {
        let dtype = parameters.dtype();
        let [mean, logvar] = parameters.split::<2>(1);
        let logvar = logvar.map("clamp.default", dtype);
        let std = {
            let half = logvar.mul_scalar(0.5);
            half.map("exp.default", dtype)
        };
        let _var = logvar.map("exp.default", dtype);
        Self { mean, std, _logvar: logvar, _var }
    }

    fn sample(&self) -> Tensor {
        let sample = self.std.map("randn.default", self.std.dtype());
        &self.mean + &(&self.std * &sample)
    }
}
