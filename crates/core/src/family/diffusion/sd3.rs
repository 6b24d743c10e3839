//! Stable Diffusion 3's transformer (models/transformers/transformer_sd3.py, attention.py, attention_processor.py): blocks in which
//! text and image have weights of their own and attend to one another.

use std::rc::Rc;

use crate::building::{BuildError, Builder, Init, Mode, Module};
use crate::job::{Attention, FieldError, Fields};
use crate::model::family::bounds::bound_weights;
use crate::model::nn::Linear;
use crate::op::{cat, full};
use crate::tensor::{Tensor, checkpoint_all};

use super::flux::add_gated;
use super::layers::{AdaLayerNorm, FeedForward, RmsNorm, TimeTextEmbeddings, gated, modulate, normalize};
use super::{Columns, attend, read_sizes};

/// What of `SD3Transformer2DModel`'s config shapes a tensor.
#[derive(Clone)]
struct Config {
    patch_size: u64,
    in_channels: u64,
    out_channels: u64,
    num_layers: u64,
    head_dim: u64,
    heads: u64,
    joint_attention_dim: u64,
    caption_projection_dim: u64,
    pooled_projection_dim: u64,
    pos_embed_max_size: u64,
    dual_attention_layers: Vec<u64>,
    qk_norm: bool,
    attention: Attention,
}

impl Config {
    fn read(fields: &Fields, attention: Attention) -> Result<Self, FieldError> {
        let in_channels = fields.size("in_channels", 16)?;
        let config = Self {
            patch_size: fields.bounded("patch_size", 2, 64)?,
            in_channels,
            out_channels: fields.optional_size("out_channels")?.unwrap_or(in_channels),
            num_layers: fields.layers("num_layers", 18)?,
            head_dim: fields.size("attention_head_dim", 64)?,
            heads: fields.size("num_attention_heads", 18)?,
            joint_attention_dim: fields.size("joint_attention_dim", 4096)?,
            caption_projection_dim: fields.size("caption_projection_dim", 1152)?,
            pooled_projection_dim: fields.size("pooled_projection_dim", 2048)?,
            pos_embed_max_size: fields.size("pos_embed_max_size", 96)?,
            dual_attention_layers: read_sizes(fields, "dual_attention_layers", &[])?,
            qk_norm: match fields.text("qk_norm", "")? {
                "" => false,
                "rms_norm" => true,
                _ => return Err(FieldError::unsimulated("qk_norm", "only `rms_norm` is simulated")),
            },
            attention,
        };
        if config.caption_projection_dim != config.width() {
            return Err(FieldError::new(
                "caption_projection_dim",
                "must be `num_attention_heads` times `attention_head_dim`",
            ));
        }
        if config.out_channels != config.in_channels {
            return Err(FieldError::new("out_channels", "must be `in_channels`: the loss is of their difference"));
        }
        let (width, side) = (config.width(), config.pos_embed_max_size);
        bound_weights(&[
            ("num_attention_heads", [width, width], 36 * config.num_layers),
            ("joint_attention_dim", [config.joint_attention_dim, width], 1),
            ("pos_embed_max_size", [side.saturating_mul(side), width], 1),
        ])?;
        Ok(config)
    }

    fn width(&self) -> u64 {
        self.head_dim.saturating_mul(self.heads)
    }
}

struct PatchEmbed {
    module: Module,
    proj: Module,
    weight: Tensor,
    bias: Tensor,
    pos_embed: Tensor,
    patch_size: u64,
}

impl PatchEmbed {
    fn new(at: &Builder, config: &Config) -> Self {
        let (width, patch, side) = (config.width(), config.patch_size, config.pos_embed_max_size);
        let proj = at.at("proj");
        Self {
            module: at.module(),
            weight: proj.parameter("weight", &[width, config.in_channels, patch, patch], Init::Normal),
            bias: proj.parameter("bias", &[width], Init::Zeros),
            proj: proj.module(),
            pos_embed: at.saved_buffer("pos_embed", &[1, side * side, width], at.dtype(), Init::Zeros),
            patch_size: patch,
        }
    }

    fn forward(&self, latent: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let mut latent = {
            let _proj = self.proj.enter();
            latent.conv2d(&self.weight, Some(&self.bias), [self.patch_size; 2])
        };
        let (rows, width, patches) = (latent.size(0), latent.size(1), latent.size(2) * latent.size(3));
        latent = latent.view(&[rows, width, patches]).transpose(1, 2);
        let pos_embed = full(latent.context(), "clone.default", &[1, patches, width], self.pos_embed.dtype());
        let sum = &latent + &pos_embed;
        sum.to(latent.dtype())
    }
}

/// `Attention` with its `JointAttnProcessor2_0`.
struct JointAttention {
    module: Module,
    norms: Option<[RmsNorm; 2]>,
    to_q: Linear,
    to_k: Linear,
    to_v: Linear,
    added: Option<AddedProjections>,
    to_out: Linear,
    heads: u64,
    attention: Attention,
}

/// What it has for the prompt's tokens; the last block makes nothing of them.
struct AddedProjections {
    add_k_proj: Linear,
    add_v_proj: Linear,
    add_q_proj: Linear,
    to_add_out: Option<Linear>,
    norms: Option<[RmsNorm; 2]>,
}

impl JointAttention {
    /// `context_pre_only`: whether the prompt's tokens are only attended to, `None` where there are none.
    fn new(at: &Builder, config: &Config, context_pre_only: Option<bool>) -> Self {
        let width = config.width();
        let linear = |name: &str| Linear::new(&at.at(name), width, width, true);
        let norms =
            |names: [&str; 2]| config.qk_norm.then(|| names.map(|name| RmsNorm::new(&at.at(name), config.head_dim)));
        let (module, own_norms) = (at.module(), norms(["norm_q", "norm_k"]));
        let [to_q, to_k, to_v] = ["to_q", "to_k", "to_v"].map(linear);
        let added = context_pre_only.map(|_| ["add_k_proj", "add_v_proj", "add_q_proj"].map(linear));
        let to_out = Linear::new(&at.at("to_out").at("0"), width, width, true);
        let added = added.map(|[add_k_proj, add_v_proj, add_q_proj]| AddedProjections {
            add_k_proj,
            add_v_proj,
            add_q_proj,
            to_add_out: (context_pre_only == Some(false)).then(|| linear("to_add_out")),
            norms: norms(["norm_added_q", "norm_added_k"]),
        });
        let (heads, attention) = (config.heads, config.attention);
        Self { module, norms: own_norms, to_q, to_k, to_v, added, to_out, heads, attention }
    }

    /// [rows, heads, tokens, width] of a projection's result; queries and keys are normed where there are norms.
    fn split_heads(&self, projected: [Tensor; 3], norms: Option<&[RmsNorm; 2]>) -> [Tensor; 3] {
        let mut states = projected.map(|states| {
            states.view(&[states.size(0), states.size(1), self.heads, states.size(2) / self.heads]).transpose(1, 2)
        });
        for (states, norm) in states.iter_mut().zip(norms.into_iter().flatten()) {
            *states = norm.forward_composed(states);
        }
        states
    }

    fn forward(&self, hidden_states: &Tensor, prompt: Option<&Tensor>) -> (Tensor, Option<Tensor>) {
        let _module = self.module.enter();
        let projected = [&self.to_q, &self.to_k, &self.to_v].map(|projection| projection.forward(hidden_states));
        let mut states = self.split_heads(projected, self.norms.as_ref());
        let mut of_prompt = None;
        if let Some((added, prompt)) = self.added.as_ref().zip(prompt) {
            let projected = [&added.add_q_proj, &added.add_k_proj, &added.add_v_proj].map(|proj| proj.forward(prompt));
            let added = &*of_prompt.insert(self.split_heads(projected, added.norms.as_ref()));
            for (states, added) in states.iter_mut().zip(added) {
                *states = cat(&[&*states, added], 2);
            }
        }
        let attended = attend(states.each_ref(), self.attention).transpose(1, 2);
        let [rows, tokens, width] = [attended.size(0), attended.size(1), attended.size(2) * attended.size(3)];
        let joined = {
            let joined = attended.reshape(&[rows, tokens, width]);
            drop(attended);
            // Norms may have left queries in fp32, which attention has not.
            joined.to(states[0].dtype())
        };
        let Some((added, _)) = self.added.as_ref().zip(prompt) else { return (self.to_out.forward(&joined), None) };
        let image = joined.slice(1, 0..hidden_states.size(1));
        let mut text = joined.slice(1, hidden_states.size(1)..tokens);
        drop(joined);
        if let Some(to_add_out) = &added.to_add_out {
            text = to_add_out.forward(&text);
        }
        (self.to_out.forward(&image), Some(text))
    }
}

struct JointTransformerBlock {
    module: Module,
    norm1: AdaLayerNorm,
    norm1_context: AdaLayerNorm,
    attn: JointAttention,
    attn2: Option<JointAttention>,
    norm2: Module,
    ff: FeedForward,
    /// What the last block has none of.
    context: Option<(Module, FeedForward)>,
}

impl JointTransformerBlock {
    fn new(at: &Builder, config: &Config, layer: u64) -> Self {
        let (width, is_last) = (config.width(), layer + 1 == config.num_layers);
        let is_dual = config.dual_attention_layers.contains(&layer);
        let (dual_parts, context_parts) = (if is_dual { 9 } else { 6 }, if is_last { 2 } else { 6 });
        Self {
            module: at.module(),
            norm1: AdaLayerNorm::new(&at.at("norm1"), width, dual_parts),
            norm1_context: AdaLayerNorm::new(&at.at("norm1_context"), width, context_parts),
            attn: JointAttention::new(&at.at("attn"), config, Some(is_last)),
            attn2: is_dual.then(|| JointAttention::new(&at.at("attn2"), config, None)),
            norm2: at.at("norm2").module(),
            ff: FeedForward::new(&at.at("ff"), width),
            context: (!is_last)
                .then(|| (at.at("norm2_context").module(), FeedForward::new(&at.at("ff_context"), width))),
        }
    }

    /// The hidden states, and before them the prompt's where something is made of them.
    fn forward(&self, input: &Block) -> Vec<Tensor> {
        let _module = self.module.enter();
        let (norm_hidden_states, second, parts) = match &self.attn2 {
            Some(_) => {
                let (first, second, parts) = self.norm1.forward_twice(&input.hidden_states, &input.temb);
                (first, Some(second), parts)
            }
            None => {
                let (first, parts) = self.norm1.forward(&input.hidden_states, &input.temb);
                (first, None, parts)
            }
        };
        let (norm_encoder, c_parts) = match &self.context {
            Some(_) => self.norm1_context.forward(&input.prompt, &input.temb),
            None => (self.norm1_context.forward_continuous(&input.prompt, &input.temb), Vec::new()),
        };
        let (mut attn_output, context_attn_output) = self.attn.forward(&norm_hidden_states, Some(&norm_encoder));
        let mut hidden_states = input.hidden_states.clone();
        let _variables = match self.attn2.as_ref().zip(second.as_ref()) {
            None => {
                let layers = (&self.norm2, &self.ff);
                add_gated(&mut hidden_states, &mut attn_output, norm_hidden_states, &parts, layers).to_vec()
            }
            Some((attn2, second)) => {
                attn_output = gated(&parts[2], &attn_output);
                hidden_states = &hidden_states + &attn_output;
                let (mut attn_output2, _) = attn2.forward(second, None);
                attn_output2 = gated(&parts[8], &attn_output2);
                hidden_states = &hidden_states + &attn_output2;
                let mut normed = normalize(&self.norm2, &hidden_states);
                drop(norm_hidden_states);
                normed = modulate(normed.clone(), &parts[4], &parts[3]);
                let mut ff_output = self.ff.forward(&normed);
                ff_output = gated(&parts[5], &ff_output);
                hidden_states = &hidden_states + &ff_output;
                vec![attn_output2, normed, ff_output]
            }
        };
        let Some(((norm2_context, ff_context), mut context_attn_output)) =
            self.context.as_ref().zip(context_attn_output)
        else {
            return vec![hidden_states];
        };
        context_attn_output = gated(&c_parts[2], &context_attn_output);
        let mut prompt = &input.prompt + &context_attn_output;
        let mut normed = normalize(norm2_context, &prompt);
        drop(norm_encoder);
        normed = modulate(normed.clone(), &c_parts[4], &c_parts[3]);
        let context_ff_output = ff_context.forward(&normed);
        prompt = {
            let added = gated(&c_parts[5], &context_ff_output);
            &prompt + &added
        };
        vec![prompt, hidden_states]
    }
}

/// What a block is called with.
struct Block {
    hidden_states: Tensor,
    prompt: Tensor,
    temb: Tensor,
}

pub(crate) struct Sd3Transformer {
    module: Module,
    pos_embed: PatchEmbed,
    time_text_embed: TimeTextEmbeddings,
    context_embedder: Linear,
    transformer_blocks: Vec<Rc<JointTransformerBlock>>,
    norm_out: AdaLayerNorm,
    proj_out: Linear,
    config: Config,
    mode: Rc<Mode>,
}

impl Sd3Transformer {
    pub(super) fn build(fields: &Fields, at: &Builder, attention: Attention) -> Result<Self, BuildError> {
        let config = Config::read(fields, attention)?;
        let (width, patch) = (config.width(), config.patch_size);
        let blocks = at.at("transformer_blocks");
        let block = |layer| Rc::new(JointTransformerBlock::new(&blocks.element(layer), &config, layer));
        Ok(Self {
            module: at.module(),
            pos_embed: PatchEmbed::new(&at.at("pos_embed"), &config),
            time_text_embed: TimeTextEmbeddings::new(
                &at.at("time_text_embed"),
                width,
                config.pooled_projection_dim,
                false,
            ),
            context_embedder: Linear::new(&at.at("context_embedder"), config.joint_attention_dim, width, true),
            transformer_blocks: (0..config.num_layers).map(block).collect(),
            norm_out: AdaLayerNorm::new(&at.at("norm_out"), width, 2),
            proj_out: Linear::new(&at.at("proj_out"), width, patch * patch * config.out_channels, true),
            mode: at.mode(),
            config,
        })
    }

    pub(super) fn columns(&self) -> Columns {
        Columns {
            channels: self.config.in_channels,
            prompt: self.config.joint_attention_dim,
            pooled: Some(self.config.pooled_projection_dim),
        }
    }

    pub(crate) fn forward(&self, latents: &Tensor, timestep: &Tensor, [prompt, pooled]: [&Tensor; 2]) -> Tensor {
        let _module = self.module.enter();
        let mut hidden_states = self.pos_embed.forward(latents).contiguous();
        let temb = self.time_text_embed.forward(timestep, None, pooled);
        let mut prompt = Some(self.context_embedder.forward(prompt));
        for block in &self.transformer_blocks {
            let Some(states) = prompt.clone() else { break };
            let input = Block { hidden_states: hidden_states.clone(), prompt: states, temb: temb.clone() };
            let block = Rc::clone(block);
            let run = move || block.forward(&input);
            let mut results = if self.mode.checkpoints_layers() { checkpoint_all(temb.context(), run) } else { run() };
            let new = results.pop();
            // The last block makes nothing of the prompt.
            prompt = results.pop();
            hidden_states = new.unwrap_or(hidden_states);
        }
        hidden_states = self.norm_out.forward_continuous(&hidden_states, &temb);
        hidden_states = self.proj_out.forward(&hidden_states);
        hidden_states.rearranged(latents.sizes())
    }
}
