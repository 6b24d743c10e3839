//! Flux's transformer (models/transformers/transformer_flux.py): blocks with weights for text and image apart, then for both.

mod config;

use std::rc::Rc;

use crate::building::{BuildError, Builder, Mode, Module};
use crate::dtype::DType;
use crate::job::{Attention, Fields};
use crate::model::nn::Linear;
use crate::op::{Gelu, cat, full, stack_last};
use crate::tensor::{Tensor, checkpoint_all};

use super::layers::{AdaLayerNorm, FeedForward, RmsNorm, TimeTextEmbeddings, gated, modulate, normalize};
use super::{Columns, attend};
use config::Config;

/// What `FluxAttention` has for the prompt's tokens.
struct AddedProjections {
    norm_added_q: RmsNorm,
    norm_added_k: RmsNorm,
    add_q_proj: Linear,
    add_k_proj: Linear,
    add_v_proj: Linear,
    to_add_out: Linear,
}

struct FluxAttention {
    module: Module,
    norm_q: RmsNorm,
    norm_k: RmsNorm,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    /// The projection of the result, and what the prompt's tokens have beside.
    joint: Option<(Linear, AddedProjections)>,
    heads: u64,
    attention: Attention,
}

impl FluxAttention {
    fn new(at: &Builder, config: &Config, is_joint: bool) -> Self {
        let width = config.width();
        let linear = |name: &str| Linear::new(&at.at(name), width, width, true);
        let norm = |name: &str| RmsNorm::new(&at.at(name), config.head_dim);
        Self {
            module: at.module(),
            norm_q: norm("norm_q"),
            norm_k: norm("norm_k"),
            to_q: linear("to_q"),
            to_k: linear("to_k"),
            to_v: linear("to_v"),
            joint: is_joint.then(|| {
                let to_out = Linear::new(&at.at("to_out").at("0"), width, width, true);
                let added = AddedProjections {
                    norm_added_q: norm("norm_added_q"),
                    norm_added_k: norm("norm_added_k"),
                    add_q_proj: linear("add_q_proj"),
                    add_k_proj: linear("add_k_proj"),
                    add_v_proj: linear("add_v_proj"),
                    to_add_out: linear("to_add_out"),
                };
                (to_out, added)
            }),
            heads: config.heads,
            attention: config.attention,
        }
    }

    fn split_heads(&self, states: &Tensor) -> Tensor {
        states.view(&[states.size(0), states.size(1), self.heads, states.size(2) / self.heads])
    }

    /// The result for the image's tokens, and for the prompt's where they come apart.
    fn forward(
        &self,
        hidden_states: &Tensor,
        prompt: Option<&Tensor>,
        rotary: &[Tensor; 2],
    ) -> (Tensor, Option<Tensor>) {
        let _module = self.module.enter();
        let joint = self.joint.as_ref().zip(prompt);
        let mut query = self.to_q.forward(hidden_states);
        let mut key = self.to_k.forward(hidden_states);
        let mut value = self.to_v.forward(hidden_states);
        let mut added = joint.map(|((_, added), prompt)| {
            [&added.add_q_proj, &added.add_k_proj, &added.add_v_proj].map(|projection| projection.forward(prompt))
        });
        query = self.split_heads(&query);
        key = self.split_heads(&key);
        value = self.split_heads(&value);
        query = self.norm_q.forward(&query);
        key = self.norm_k.forward(&key);
        if let (Some(states), Some(((_, norms), _))) = (&mut added, joint) {
            states.iter_mut().for_each(|states| *states = self.split_heads(states));
            states[0] = norms.norm_added_q.forward(&states[0]);
            states[1] = norms.norm_added_k.forward(&states[1]);
            query = cat(&[&states[0], &query], 1);
            key = cat(&[&states[1], &key], 1);
            value = cat(&[&states[2], &value], 1);
        }
        query = apply_rotary_emb(&query, rotary);
        key = apply_rotary_emb(&key, rotary);
        let heads_first = [&query, &key, &value].map(|states| states.transpose(1, 2));
        let attended = attend(heads_first.each_ref(), self.attention).transpose(1, 2);
        drop(heads_first);
        let (rows, tokens) = (attended.size(0), attended.size(1));
        let hidden_states = attended.reshape(&[rows, tokens, attended.size(2) * attended.size(3)]);
        drop(attended);
        let Some(((to_out, added), prompt)) = joint else { return (hidden_states, None) };
        let parts = hidden_states.split_lengths(1, &[prompt.size(1), tokens - prompt.size(1)]);
        drop(hidden_states);
        let image = to_out.forward(&parts[1].contiguous());
        let text = added.to_add_out.forward(&parts[0].contiguous());
        (image, Some(text))
    }
}

/// `apply_rotary_emb(x, (cos, sin), sequence_dim=1)`
fn apply_rotary_emb(x: &Tensor, [cos, sin]: &[Tensor; 2]) -> Tensor {
    let [cos, sin] = [cos, sin].map(|table| table.unsqueeze(0).unsqueeze(2));
    let sizes = *x.sizes();
    let pairs = x.reshape(&[sizes[0], sizes[1], sizes[2], sizes[3] / 2, 2]);
    let [x_real, x_imag] = pairs.unbind_at::<2>(4);
    drop(pairs);
    let x_rotated = {
        let negated = x_imag.neg();
        stack_last([&negated, &x_real]).view(&sizes)
    };
    let sum = {
        let first = &x.float() * &cos;
        let second = &x_rotated.float() * &sin;
        let sum = &first + &second;
        drop(first);
        sum
    };
    sum.to(x.dtype())
}

struct FluxTransformerBlock {
    module: Module,
    norm1: AdaLayerNorm,
    norm1_context: AdaLayerNorm,
    attn: FluxAttention,
    norm2: Module,
    ff: FeedForward,
    norm2_context: Module,
    ff_context: FeedForward,
}

impl FluxTransformerBlock {
    fn new(at: &Builder, config: &Config) -> Self {
        let width = config.width();
        Self {
            module: at.module(),
            norm1: AdaLayerNorm::new(&at.at("norm1"), width, 6),
            norm1_context: AdaLayerNorm::new(&at.at("norm1_context"), width, 6),
            attn: FluxAttention::new(&at.at("attn"), config, true),
            norm2: at.at("norm2").module(),
            ff: FeedForward::new(&at.at("ff"), width),
            norm2_context: at.at("norm2_context").module(),
            ff_context: FeedForward::new(&at.at("ff_context"), width),
        }
    }

    fn forward(&self, input: &Block) -> Vec<Tensor> {
        let _module = self.module.enter();
        let (norm_hidden_states, parts) = self.norm1.forward(&input.hidden_states, &input.temb);
        let (norm_encoder_hidden_states, c_parts) = self.norm1_context.forward(&input.prompt, &input.temb);
        // The tuple of both lives on beside what becomes of them.
        let (attended, context_attended) =
            self.attn.forward(&norm_hidden_states, Some(&norm_encoder_hidden_states), &input.rotary);
        let mut attn_output = attended.clone();
        let mut hidden_states = input.hidden_states.clone();
        let _norm_hidden_states =
            add_gated(&mut hidden_states, &mut attn_output, norm_hidden_states, &parts, (&self.norm2, &self.ff));
        let mut prompt = input.prompt.clone();
        let Some(mut context_attn_output) = context_attended.clone() else { return vec![prompt, hidden_states] };
        let gate = &c_parts[2];
        context_attn_output = gated(gate, &context_attn_output);
        prompt = &prompt + &context_attn_output;
        let mut normed = normalize(&self.norm2_context, &prompt);
        drop(norm_encoder_hidden_states);
        normed = modulate(normed.clone(), &c_parts[4], &c_parts[3]);
        let context_ff_output = self.ff_context.forward(&normed);
        prompt = {
            let added = gated(&c_parts[5], &context_ff_output);
            &prompt + &added
        };
        prompt = clip_in_fp16(prompt);
        vec![prompt, hidden_states]
    }
}

/// Attention's result and that of the feed-forward layers join the hidden states, each times its gate: what is left in the
/// variables of the block.
pub(super) fn add_gated(
    hidden_states: &mut Tensor,
    attn_output: &mut Tensor,
    norm_hidden_states: Tensor,
    parts: &[Tensor],
    (norm2, ff): (&Module, &FeedForward),
) -> [Tensor; 2] {
    *attn_output = gated(&parts[2], attn_output);
    *hidden_states = &*hidden_states + &*attn_output;
    let mut normed = normalize(norm2, hidden_states);
    drop(norm_hidden_states);
    normed = modulate(normed.clone(), &parts[4], &parts[3]);
    let mut ff_output = ff.forward(&normed);
    ff_output = gated(&parts[5], &ff_output);
    *hidden_states = &*hidden_states + &ff_output;
    [normed, ff_output]
}

/// `hidden_states.clip(-65504, 65504)` of fp16.
fn clip_in_fp16(hidden_states: Tensor) -> Tensor {
    if hidden_states.dtype() == DType::Float16 { hidden_states.clamp_both(65504.0) } else { hidden_states }
}

struct FluxSingleTransformerBlock {
    module: Module,
    norm: AdaLayerNorm,
    proj_mlp: Linear,
    proj_out: Linear,
    attn: FluxAttention,
}

impl FluxSingleTransformerBlock {
    fn new(at: &Builder, config: &Config) -> Self {
        let width = config.width();
        Self {
            module: at.module(),
            norm: AdaLayerNorm::new(&at.at("norm"), width, 3),
            proj_mlp: Linear::new(&at.at("proj_mlp"), width, 4 * width, true),
            proj_out: Linear::new(&at.at("proj_out"), 5 * width, width, true),
            attn: FluxAttention::new(&at.at("attn"), config, false),
        }
    }

    fn forward(&self, input: &Block) -> Vec<Tensor> {
        let _module = self.module.enter();
        let text = input.prompt.size(1);
        let residual = cat(&[&input.prompt, &input.hidden_states], 1);
        let (norm_hidden_states, parts) = self.norm.forward(&residual, &input.temb);
        let mlp_hidden_states = {
            let projected = self.proj_mlp.forward(&norm_hidden_states);
            projected.gelu(Gelu::Tanh)
        };
        let (attn_output, _) = self.attn.forward(&norm_hidden_states, None, &input.rotary);
        let mut hidden_states = cat(&[&attn_output, &mlp_hidden_states], 2);
        hidden_states = {
            let projected = self.proj_out.forward(&hidden_states);
            gated(&parts[2], &projected)
        };
        hidden_states = &residual + &hidden_states;
        hidden_states = clip_in_fp16(hidden_states);
        let tokens = hidden_states.size(1);
        vec![hidden_states.slice(1, 0..text), hidden_states.slice(1, text..tokens)]
    }
}

/// What a block is called with.
struct Block {
    hidden_states: Tensor,
    prompt: Tensor,
    temb: Tensor,
    rotary: [Tensor; 2],
}

pub(crate) struct FluxTransformer {
    module: Module,
    time_text_embed: TimeTextEmbeddings,
    context_embedder: Linear,
    x_embedder: Linear,
    transformer_blocks: Vec<Rc<FluxTransformerBlock>>,
    single_transformer_blocks: Vec<Rc<FluxSingleTransformerBlock>>,
    norm_out: AdaLayerNorm,
    proj_out: Linear,
    config: Config,
    mode: Rc<Mode>,
}

/// What the transformer is called with.
pub(crate) struct FluxCall<'a> {
    pub hidden_states: &'a Tensor,
    pub timestep: &'a Tensor,
    pub guidance: Option<&'a Tensor>,
    pub pooled_projections: &'a Tensor,
    pub encoder_hidden_states: &'a Tensor,
    pub txt_ids: &'a Tensor,
    pub img_ids: &'a Tensor,
}

impl FluxTransformer {
    pub(super) fn build(fields: &Fields, at: &Builder, attention: Attention) -> Result<Self, BuildError> {
        let config = Config::read(fields, attention)?;
        let width = config.width();
        let block = |at: Builder| Rc::new(FluxTransformerBlock::new(&at, &config));
        let single = |at: Builder| Rc::new(FluxSingleTransformerBlock::new(&at, &config));
        let (blocks, singles) = (at.at("transformer_blocks"), at.at("single_transformer_blocks"));
        Ok(Self {
            module: at.module(),
            time_text_embed: TimeTextEmbeddings::new(
                &at.at("time_text_embed"),
                width,
                config.pooled_projection_dim,
                config.guidance_embeds,
            ),
            context_embedder: Linear::new(&at.at("context_embedder"), config.joint_attention_dim, width, true),
            x_embedder: Linear::new(&at.at("x_embedder"), config.in_channels, width, true),
            transformer_blocks: (0..config.num_layers).map(|layer| block(blocks.element(layer))).collect(),
            single_transformer_blocks: (0..config.num_single_layers)
                .map(|layer| single(singles.element(layer)))
                .collect(),
            norm_out: AdaLayerNorm::new(&at.at("norm_out"), width, 2),
            proj_out: Linear::new(&at.at("proj_out"), width, config.out_channels, true),
            mode: at.mode(),
            config,
        })
    }

    pub(super) fn columns(&self) -> Columns {
        Columns {
            channels: self.config.in_channels / 4,
            prompt: self.config.joint_attention_dim,
            pooled: Some(self.config.pooled_projection_dim),
        }
    }

    /// Whether it is called with the scale of its guidance.
    pub(crate) fn has_guidance(&self) -> bool {
        self.config.guidance_embeds
    }

    pub(crate) fn forward(&self, call: &FluxCall) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.x_embedder.forward(call.hidden_states);
        let timestep = call.timestep.to(hidden_states.dtype()).mul_scalar(1000.0);
        let guidance = call.guidance.map(|guidance| guidance.to(hidden_states.dtype()).mul_scalar(1000.0));
        let temb = self.time_text_embed.forward(&timestep, guidance.as_ref(), call.pooled_projections);
        let mut prompt = self.context_embedder.forward(call.encoder_hidden_states);
        let ids = cat(&[call.txt_ids, call.img_ids], 0);
        let rotary = self.embed_positions(&ids);
        let state = |hidden_states: &Tensor, prompt: &Tensor| Block {
            hidden_states: hidden_states.clone(),
            prompt: prompt.clone(),
            temb: temb.clone(),
            rotary: rotary.clone(),
        };
        for block in &self.transformer_blocks {
            let (block, input) = (Rc::clone(block), state(&hidden_states, &prompt));
            [prompt, hidden_states] = self.run_block(move || block.forward(&input), [prompt, hidden_states]);
        }
        for block in &self.single_transformer_blocks {
            let (block, input) = (Rc::clone(block), state(&hidden_states, &prompt));
            [prompt, hidden_states] = self.run_block(move || block.forward(&input), [prompt, hidden_states]);
        }
        hidden_states = self.norm_out.forward_continuous(&hidden_states, &temb);
        self.proj_out.forward(&hidden_states)
    }

    /// A block's results, in place of what it was called with.
    fn run_block(&self, block: impl Fn() -> Vec<Tensor> + 'static, old: [Tensor; 2]) -> [Tensor; 2] {
        let context = old[0].context().clone();
        let new = if self.mode.checkpoints_layers() { checkpoint_all(&context, block) } else { block() };
        new.try_into().unwrap_or(old)
    }

    /// `FluxPosEmbed`: cosines and sines of each token, in fp64 before they are fp32.
    fn embed_positions(&self, ids: &Tensor) -> [Tensor; 2] {
        let context = ids.context();
        let tokens = ids.size(0);
        let _pos = ids.float();
        let tables: Vec<[Tensor; 2]> = self
            .config
            .axes_dims_rope
            .iter()
            .map(|width| {
                let freqs = {
                    let make = |op| full(context, op, &[width / 2], DType::Float64);
                    let mut freqs = make("arange.start_step");
                    freqs = freqs.map("div.Tensor", DType::Float64);
                    freqs = freqs.power_of(10_000.0);
                    for op in ["reciprocal.default", "mul.Tensor", "div.Tensor"] {
                        freqs = freqs.map(op, DType::Float64);
                    }
                    full(context, "mul.Tensor", &[tokens, width / 2], DType::Float64)
                };
                ["cos.default", "sin.default"].map(|op| {
                    let repeated = {
                        let values = freqs.map(op, DType::Float64);
                        full(values.context(), "clone.default", &[tokens, *width], DType::Float64)
                    };
                    repeated.float()
                })
            })
            .collect();
        [0, 1].map(|at| cat(&tables.iter().map(|table| &table[at]).collect::<Vec<_>>(), 1))
    }
}
