//! The transformers of the UNet (models/transformers/transformer_2d.py, attention.py): each point of an image attends to all others,
//! and to the tokens of the prompt.

use std::rc::Rc;

use crate::building::{Builder, Module};
use crate::job::Attention;
use crate::model::nn::{LayerNorm, Linear};
use crate::tensor::{Tensor, checkpoint_all};

use super::attend;
use super::convolutions::{Conv2d, GroupNorm};
use super::layers::FeedForward;

const EPS: f64 = 1e-5;

/// `Attention` with its `AttnProcessor2_0`.
struct CrossAttention {
    module: Module,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    to_out: Linear,
    heads: u64,
    attention: Attention,
}

impl CrossAttention {
    fn new(at: &Builder, (width, context): (u64, u64), heads: u64, attention: Attention) -> Self {
        let linear = |name: &str, inputs| Linear::new(&at.at(name), inputs, width, false);
        Self {
            module: at.module(),
            to_q: linear("to_q", width),
            to_k: linear("to_k", context),
            to_v: linear("to_v", context),
            to_out: Linear::new(&at.at("to_out").at("0"), width, width, true),
            heads,
            attention,
        }
    }

    fn forward(&self, hidden_states: &Tensor, attended: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let projected = [self.to_q.forward(hidden_states), self.to_k.forward(attended), self.to_v.forward(attended)];
        let states = projected.map(|states| {
            states.view(&[states.size(0), states.size(1), self.heads, states.size(2) / self.heads]).transpose(1, 2)
        });
        let mut result = attend(states.each_ref(), self.attention);
        result = result.transpose(1, 2).reshape(hidden_states.sizes());
        result = self.to_out.forward(&result);
        result.div_scalar(1.0)
    }
}

struct TransformerBlock {
    module: Module,
    norm1: LayerNorm,
    attn1: CrossAttention,
    norm2: LayerNorm,
    attn2: CrossAttention,
    norm3: LayerNorm,
    ff: FeedForward,
}

impl TransformerBlock {
    fn new(at: &Builder, sizes: TransformerSizes, attention: Attention) -> Self {
        let (width, heads) = (sizes.channels, sizes.heads);
        let norm = |name: &str| LayerNorm::new(&at.at(name), width, EPS);
        Self {
            module: at.module(),
            norm1: norm("norm1"),
            attn1: CrossAttention::new(&at.at("attn1"), (width, width), heads, attention),
            norm2: norm("norm2"),
            attn2: CrossAttention::new(&at.at("attn2"), (width, sizes.prompt), heads, attention),
            norm3: norm("norm3"),
            ff: FeedForward::gated(&at.at("ff"), width),
        }
    }

    fn forward(&self, input: &Tensor, prompt: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut norm_hidden_states = self.norm1.forward(input);
        let mut attn_output = self.attn1.forward(&norm_hidden_states, &norm_hidden_states);
        let mut hidden_states = &attn_output + input;
        norm_hidden_states = self.norm2.forward(&hidden_states);
        attn_output = self.attn2.forward(&norm_hidden_states, prompt);
        hidden_states = &attn_output + &hidden_states;
        norm_hidden_states = self.norm3.forward(&hidden_states);
        let ff_output = self.ff.forward(&norm_hidden_states);
        &ff_output + &hidden_states
    }
}

/// Sizes of a transformer.
#[derive(Clone, Copy)]
pub(super) struct TransformerSizes {
    pub channels: u64,
    pub heads: u64,
    pub blocks: u64,
    /// Numbers of a prompt's token.
    pub prompt: u64,
    pub groups: u64,
    /// Whether what goes in and out is projected by linear layers.
    pub linear: bool,
}

/// What goes in, or out, in the form of tokens or of an image.
enum Projection {
    Tokens(Linear),
    Image(Conv2d),
}

impl Projection {
    fn new(at: &Builder, sizes: TransformerSizes) -> Self {
        let width = sizes.channels;
        match sizes.linear {
            true => Self::Tokens(Linear::new(at, width, width, true)),
            false => Self::Image(Conv2d::new(at, [width; 2], 1, 1)),
        }
    }
}

/// `Transformer2DModel`
pub(super) struct SpatialTransformer {
    module: Module,
    norm: GroupNorm,
    proj_in: Projection,
    transformer_blocks: Vec<Rc<TransformerBlock>>,
    proj_out: Projection,
}

impl SpatialTransformer {
    pub(super) fn new(at: &Builder, sizes: TransformerSizes, attention: Attention) -> Self {
        let blocks = at.at("transformer_blocks");
        Self {
            module: at.module(),
            norm: GroupNorm::new(&at.at("norm"), sizes.channels, sizes.groups),
            proj_in: Projection::new(&at.at("proj_in"), sizes),
            transformer_blocks: (0..sizes.blocks)
                .map(|block| Rc::new(TransformerBlock::new(&blocks.element(block), sizes, attention)))
                .collect(),
            proj_out: Projection::new(&at.at("proj_out"), sizes),
        }
    }

    pub(super) fn forward(&self, residual: &Tensor, prompt: &Tensor, checkpoints: bool) -> Tensor {
        let _module = self.module.enter();
        let [rows, channels, height, width] = [0, 1, 2, 3].map(|at| residual.size(at));
        let tokens = [rows, height * width, channels];
        let mut hidden_states = self.norm.forward(residual);
        hidden_states = match &self.proj_in {
            Projection::Image(conv) => {
                hidden_states = conv.forward(&hidden_states);
                hidden_states.permute([0, 2, 3, 1]).reshape(&tokens)
            }
            Projection::Tokens(linear) => {
                hidden_states = hidden_states.permute([0, 2, 3, 1]).reshape(&tokens);
                linear.forward(&hidden_states)
            }
        };
        for block in &self.transformer_blocks {
            hidden_states = run_block(block, &hidden_states, prompt, checkpoints);
        }
        let image = |states: &Tensor| states.view(&[rows, height, width, channels]).permute([0, 3, 1, 2]).contiguous();
        let output = match &self.proj_out {
            Projection::Image(conv) => conv.forward(&image(&hidden_states)),
            Projection::Tokens(linear) => {
                let projected = linear.forward(&hidden_states);
                image(&projected)
            }
        };
        &output + residual
    }
}

fn run_block(block: &Rc<TransformerBlock>, hidden_states: &Tensor, prompt: &Tensor, checkpoints: bool) -> Tensor {
    if !checkpoints {
        return block.forward(hidden_states, prompt);
    }
    let (block, input, prompt) = (Rc::clone(block), hidden_states.clone(), prompt.clone());
    let context = prompt.context().clone();
    let run = move || vec![block.forward(&input, &prompt)];
    checkpoint_all(&context, run).pop().unwrap_or_else(|| hidden_states.clone())
}
