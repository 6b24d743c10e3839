//! The UNet of Stable Diffusion 1, 2 and XL (models/unets/unet_2d_condition.py, unet_2d_blocks.py): levels of residual blocks, most with
//! transformers, down and up again.

mod config;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Mode, Module};
use crate::job::{Attention, Fields};
use crate::op::cat;
use crate::tensor::{Tensor, checkpoint_all};

use super::Columns;
use super::convolutions::{Conv2d, GroupNorm, ResnetBlock};
use super::layers::{Embedding, embed_timesteps};
use super::spatial::{SpatialTransformer, TransformerSizes};
use config::{Config, Level};

impl Config {
    /// A transformer of so many blocks at a level.
    fn transformer(&self, at: &Builder, level: Level, blocks: u64) -> SpatialTransformer {
        let sizes = TransformerSizes {
            channels: level.channels,
            heads: level.heads,
            blocks,
            prompt: self.cross_attention_dim,
            groups: self.norm_num_groups,
            linear: self.use_linear_projection,
        };
        SpatialTransformer::new(at, sizes, self.attention)
    }

    fn resnet(&self, at: &Builder, inputs: u64, outputs: u64) -> Rc<ResnetBlock> {
        Rc::new(ResnetBlock::new(at, [inputs, outputs], Some(self.time_width()), self.norm_num_groups))
    }
}

/// A level down or up, or the middle: residual blocks, transformers behind them, and a convolution to another size.
struct UNetBlock {
    module: Module,
    resnets: Vec<Rc<ResnetBlock>>,
    attentions: Vec<SpatialTransformer>,
    resampler: Option<(Module, Conv2d)>,
}

impl UNetBlock {
    /// One whose residual blocks go from and to so many channels; `resampler` is what its convolution is called, in whose list.
    fn new(
        at: &Builder,
        (config, level): (&Config, Level),
        channels: &[[u64; 2]],
        transformers: Option<u64>,
        resampler: Option<(&str, u64)>,
    ) -> Self {
        let module = at.module();
        let transformer =
            |layer: usize, blocks| config.transformer(&at.at("attentions").element(layer as u64), level, blocks);
        let attentions =
            transformers.map(|blocks| (0..channels.len()).map(|layer| transformer(layer, blocks)).collect());
        let resnet = |(layer, [inputs, outputs]): (usize, &[u64; 2])| {
            config.resnet(&at.at("resnets").element(layer as u64), *inputs, *outputs)
        };
        Self {
            module,
            attentions: attentions.unwrap_or_default(),
            resnets: channels.iter().enumerate().map(resnet).collect(),
            resampler: resampler.map(|(name, stride)| {
                let at = at.at(name).element(0);
                (at.module(), Conv2d::new(&at.at("conv"), [level.channels; 2], 3, stride))
            }),
        }
    }
}

/// What all blocks are called with beside the hidden states.
struct Conditions<'a> {
    temb: &'a Tensor,
    prompt: &'a Tensor,
    mode: &'a Mode,
}

impl Conditions<'_> {
    fn run_resnet(&self, resnet: &Rc<ResnetBlock>, hidden_states: &Tensor) -> Tensor {
        if !self.mode.checkpoints_layers() {
            return resnet.forward(hidden_states, Some(self.temb));
        }
        let (resnet, input, temb) = (Rc::clone(resnet), hidden_states.clone(), self.temb.clone());
        let context = temb.context().clone();
        let run = move || vec![resnet.forward(&input, Some(&temb))];
        checkpoint_all(&context, run).pop().unwrap_or_else(|| hidden_states.clone())
    }

    fn attend(&self, transformer: &SpatialTransformer, hidden_states: &Tensor) -> Tensor {
        transformer.forward(hidden_states, self.prompt, self.mode.checkpoints_layers())
    }
}

pub(crate) struct UNet {
    module: Module,
    conv_in: Conv2d,
    time_embedding: Embedding,
    add_embedding: Option<Embedding>,
    down_blocks: Vec<UNetBlock>,
    up_blocks: Vec<UNetBlock>,
    mid_block: UNetBlock,
    conv_norm_out: GroupNorm,
    conv_out: Conv2d,
    config: Config,
    mode: Rc<Mode>,
}

/// What the UNet is called with.
pub(crate) struct UNetCall<'a> {
    pub sample: &'a Tensor,
    pub timesteps: &'a Tensor,
    pub encoder_hidden_states: &'a Tensor,
    /// `text_embeds` and `time_ids`
    pub added: Option<[&'a Tensor; 2]>,
}

impl UNet {
    pub(super) fn build(fields: &Fields, at: &Builder, attention: Attention) -> Result<Self, BuildError> {
        let config = Config::read(fields, attention)?;
        let (levels, width) = (&config.levels, config.time_width());
        let (first, last) = (levels[0].channels, levels.len() - 1);
        let module = at.module();
        let conv_in = Conv2d::new(&at.at("conv_in"), [config.in_channels, first], 3, 1);
        let time_embedding = Embedding::new(&at.at("time_embedding"), first, width);
        let add_embedding = config.text_time.map(|[_, all]| Embedding::new(&at.at("add_embedding"), all, width));
        let mut inputs = first;
        let down_blocks = levels.iter().enumerate().map(|(index, level)| {
            let channels: Vec<[u64; 2]> =
                (0..level.layers).map(|_| [std::mem::replace(&mut inputs, level.channels), level.channels]).collect();
            let place = at.at("down_blocks").element(index as u64);
            let resampler = (index < last).then_some(("downsamplers", 2));
            UNetBlock::new(&place, (&config, *level), &channels, level.down, resampler)
        });
        let down_blocks: Vec<_> = down_blocks.collect();
        let mut before = levels[last].channels;
        let up_blocks = levels.iter().rev().enumerate().map(|(index, level)| {
            let skipped = levels[last.saturating_sub(index + 1)].channels;
            let channels: Vec<[u64; 2]> = (0..=level.layers)
                .map(|layer| {
                    let skip = if layer == level.layers { skipped } else { level.channels };
                    [std::mem::replace(&mut before, level.channels) + skip, level.channels]
                })
                .collect();
            let place = at.at("up_blocks").element(index as u64);
            UNetBlock::new(&place, (&config, *level), &channels, level.up, (index < last).then_some(("upsamplers", 1)))
        });
        let up_blocks: Vec<_> = up_blocks.collect();
        let mid = levels[last];
        let mid_at = at.at("mid_block");
        let mid_module = mid_at.module();
        let attentions = vec![config.transformer(&mid_at.at("attentions").element(0), mid, config.mid_blocks)];
        let resnet = |layer| config.resnet(&mid_at.at("resnets").element(layer), mid.channels, mid.channels);
        let mid_block =
            UNetBlock { module: mid_module, attentions, resnets: vec![resnet(0), resnet(1)], resampler: None };
        let conv_norm_out = GroupNorm::new(&at.at("conv_norm_out"), first, config.norm_num_groups);
        let conv_out = Conv2d::new(&at.at("conv_out"), [first, config.out_channels], 3, 1);
        let mode = at.mode();
        Ok(Self {
            module,
            conv_in,
            time_embedding,
            add_embedding,
            down_blocks,
            up_blocks,
            mid_block,
            conv_norm_out,
            conv_out,
            config,
            mode,
        })
    }

    pub(super) fn columns(&self) -> Columns {
        Columns {
            channels: self.config.in_channels,
            prompt: self.config.cross_attention_dim,
            pooled: self.config.text_time.map(|[time, all]| all - 6 * time),
        }
    }

    /// The time's embedding, with that of sizes and the whole prompt, and what variables keep of it.
    fn embed(&self, call: &UNetCall) -> (Tensor, Vec<Tensor>) {
        let t_emb = embed_timesteps(call.timesteps, self.config.levels[0].channels).to(call.sample.dtype());
        let emb = self.time_embedding.forward(&t_emb);
        let (Some(embedding), Some([text_embeds, time_ids]), Some([time, all])) =
            (&self.add_embedding, call.added, self.config.text_time)
        else {
            return (emb, vec![t_emb]);
        };
        let aug_emb = {
            let time_embeds = embed_timesteps(&time_ids.view(&[time_ids.numel()]), time);
            let time_embeds = time_embeds.view(&[text_embeds.size(0), all - text_embeds.size(1)]);
            let add_embeds = cat(&[text_embeds, &time_embeds], 1).to(emb.dtype());
            embedding.forward(&add_embeds)
        };
        (&emb + &aug_emb, vec![t_emb, aug_emb])
    }

    pub(crate) fn forward(&self, call: &UNetCall) -> Tensor {
        let _module = self.module.enter();
        let (emb, _kept) = self.embed(call);
        let conditions = Conditions { temb: &emb, prompt: call.encoder_hidden_states, mode: &self.mode };
        let mut sample = self.conv_in.forward(call.sample);
        let mut residuals = vec![sample.clone()];
        for block in &self.down_blocks {
            sample = go_down(block, sample, &conditions, &mut residuals);
        }
        sample = go_through(&self.mid_block, sample, &conditions);
        let mut taken = Vec::new();
        for block in &self.up_blocks {
            let next = residuals.split_off(residuals.len().saturating_sub(block.resnets.len()));
            drop(std::mem::replace(&mut taken, next));
            let size = residuals.last().map(|residual| [residual.size(2), residual.size(3)]);
            sample = go_up(block, sample, &conditions, (&taken, size));
        }
        sample = self.conv_norm_out.forward(&sample);
        sample = sample.silu();
        self.conv_out.forward(&sample)
    }
}

/// `CrossAttnDownBlock2D`, `DownBlock2D`: every block's result is kept for the way up.
fn go_down(block: &UNetBlock, input: Tensor, conditions: &Conditions, residuals: &mut Vec<Tensor>) -> Tensor {
    let _module = block.module.enter();
    let mut hidden_states = input.clone();
    for (layer, resnet) in block.resnets.iter().enumerate() {
        hidden_states = conditions.run_resnet(resnet, &hidden_states);
        if let Some(transformer) = block.attentions.get(layer) {
            hidden_states = conditions.attend(transformer, &hidden_states);
        }
        residuals.push(hidden_states.clone());
    }
    if let Some((module, conv)) = &block.resampler {
        let _module = module.enter();
        hidden_states = conv.forward(&hidden_states);
        residuals.push(hidden_states.clone());
    }
    drop(input);
    hidden_states
}

/// `UNetMidBlock2DCrossAttn`
fn go_through(block: &UNetBlock, input: Tensor, conditions: &Conditions) -> Tensor {
    let _module = block.module.enter();
    // Its first residual block is never recomputed.
    let mut hidden_states = block.resnets[0].forward(&input, Some(conditions.temb));
    for (transformer, resnet) in block.attentions.iter().zip(&block.resnets[1..]) {
        hidden_states = conditions.attend(transformer, &hidden_states);
        hidden_states = conditions.run_resnet(resnet, &hidden_states);
    }
    drop(input);
    hidden_states
}

/// `CrossAttnUpBlock2D`, `UpBlock2D`: what was kept on the way down is joined, and the result has the size of what is next.
fn go_up(
    block: &UNetBlock,
    input: Tensor,
    conditions: &Conditions,
    (residuals, size): (&[Tensor], Option<[u64; 2]>),
) -> Tensor {
    let _module = block.module.enter();
    let mut hidden_states = input.clone();
    for (layer, (resnet, residual)) in block.resnets.iter().zip(residuals.iter().rev()).enumerate() {
        hidden_states = cat(&[&hidden_states, residual], 1);
        hidden_states = conditions.run_resnet(resnet, &hidden_states);
        if let Some(transformer) = block.attentions.get(layer) {
            hidden_states = conditions.attend(transformer, &hidden_states);
        }
    }
    if let Some(((module, conv), size)) = block.resampler.as_ref().zip(size) {
        let _module = module.enter();
        hidden_states = {
            let upsampled = hidden_states.upsample_nearest(size);
            conv.forward(&upsampled)
        };
    }
    drop(input);
    hidden_states
}
