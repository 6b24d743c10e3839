//! Qwen2.5-VL (transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py): layers that see windows, some that see whole images, and a
//! merger of the patches of a square. Qwen2-VL's tower is the same with other norms and MLPs, and without windows.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::rc::Rc;

use super::grid_positions::RopeIndex;
use super::grids::{self, Patches};
use super::merger::Merger;
use super::places::check_count;
use crate::building::{BuildError, Builder, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, Vision};
use crate::model::family::bounds::{bound_weights, check_divides};
use crate::model::family::encoder::{EncoderLayer, attend};
use crate::model::family::gated_mlp::{self, DecoderMlp};
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{Activation, Linear, Norm, RmsNorm, rotate};
use crate::op::cat;
use crate::tensor::Tensor;

/// What the config classes of both have (transformers 5.17).
pub(super) struct Config<N, M> {
    pub patches: Patches,
    pub depth: u64,
    /// Width of the tower.
    pub embed_dim: u64,
    pub intermediate_size: u64,
    pub num_heads: u64,
    pub activation: Activation,
    pub out_hidden_size: u64,
    /// Pixels on the side of a window, where not all layers see whole images.
    pub window_size: Option<u64>,
    pub fullatt_block_indexes: Vec<u64>,
    /// What the first layer of an MLP, its activation and its last layer are called.
    pub mlp_names: [&'static str; 3],
    pub vision: Vision,
    pub parts: PhantomData<(N, M)>,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let config = Config::<RmsNorm, DecoderMlp> {
        patches: Patches::read(vision, &tower)?,
        depth: tower.layers("depth", 32)?,
        embed_dim: tower.size("hidden_size", 3584)?,
        intermediate_size: tower.size("intermediate_size", 3420)?,
        num_heads: tower.size("num_heads", 16)?,
        activation: Activation::from_name("hidden_act", tower.text("hidden_act", "silu")?)?,
        out_hidden_size: tower.size("out_hidden_size", 3584)?,
        window_size: Some(tower.size("window_size", 112)?),
        fullatt_block_indexes: full_blocks(&tower),
        mlp_names: ["gate_proj", "act_fn", "down_proj"],
        vision: vision.clone(),
        parts: PhantomData,
    };
    config.check()?;
    Ok(Rc::new(config))
}

/// Layers that see whole images.
fn full_blocks(tower: &Fields) -> Vec<u64> {
    let listed = tower.get("fullatt_block_indexes").and_then(serde_json::Value::as_array);
    listed.map_or_else(|| vec![7, 15, 23, 31], |listed| listed.iter().filter_map(serde_json::Value::as_u64).collect())
}

impl<N, M> Debug for Config<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("vision", &self.vision).finish_non_exhaustive()
    }
}

impl<N, M> Config<N, M> {
    pub(super) fn check(&self) -> Result<(), FieldError> {
        check_divides("num_heads", self.num_heads, "hidden_size", self.embed_dim)?;
        let (hidden, merged) = (self.embed_dim, self.embed_dim.saturating_mul(self.patches.unit()));
        if !(hidden / self.num_heads).is_multiple_of(4) {
            let problem = "a head must be divisible by 4: height and width turn half of it each";
            return Err(FieldError::new("num_heads", problem));
        }
        bound_weights(&[
            ("intermediate_size", [self.intermediate_size, hidden], 3 * self.depth),
            ("hidden_size", [hidden, hidden], 4 * self.depth),
            ("patch_size", [self.patches.grid.numbers, hidden], 1),
            ("spatial_merge_size", [merged, merged], 1),
            ("out_hidden_size", [merged, self.out_hidden_size], 1),
        ])
    }

    fn sees_whole(&self, block: u64) -> bool {
        self.window_size.is_none() || self.fullatt_block_indexes.contains(&block)
    }
}

impl<N: Norm, M: TowerMlp<N>> TowerConfig for Config<N, M> {
    fn build_tower(&self, at: &Builder, options: &RunOptions, _width: u64) -> Box<dyn Tower> {
        let at = at.at("visual");
        let module = at.module();
        let tower = at.frozen(self.vision.freezes_tower);
        let patch_embed =
            grids::PatchEmbed::new(&tower.at("patch_embed"), &self.patches, (self.embed_dim, false), options);
        let rotary_pos_emb = grids::AxialRotary::new(&tower.at("rotary_pos_emb"), self.embed_dim / self.num_heads);
        let block = |block| Rc::new(Block::<N, M>::new(&tower.at("blocks").element(block), self, options));
        Box::new(QwenTower {
            module,
            patch_embed,
            rotary_pos_emb,
            blocks: (0..self.depth).map(block).collect(),
            merger: Merger::new(&at.at("merger").frozen(self.vision.freezes_projector), self),
            windows: self.window_size.map(|size| (size, self.patches.windows(size))),
            is_full: (0..self.depth).map(|block| self.sees_whole(block)).collect(),
            rope_index: RopeIndex::new(&self.vision, self.patches),
            patches: self.patches,
            options: options.clone(),
        })
    }
}

/// What a layer does to each patch by itself.
pub(super) trait TowerMlp<N>: 'static {
    fn new(at: &Builder, config: &Config<N, Self>) -> Self
    where
        Self: Sized;

    fn forward(&self, hidden_state: &Tensor) -> Tensor;
}

impl<N> TowerMlp<N> for DecoderMlp {
    fn new(at: &Builder, config: &Config<N, Self>) -> Self {
        Self::with_sizes(at, gated_mlp::NAMES, [config.embed_dim, config.intermediate_size], (true, config.activation))
    }

    fn forward(&self, hidden_state: &Tensor) -> Tensor {
        Self::forward(self, hidden_state)
    }
}

struct Attention {
    module: Module,
    qkv: Linear,
    proj: Linear,
    heads: u64,
    options: RunOptions,
}

/// What a layer is given beside the states.
pub(super) struct Call {
    /// Lengths of what is attended over.
    pub lengths: Rc<Vec<u64>>,
    pub cu_seqlens: Tensor,
    pub cos: Tensor,
    pub sin: Tensor,
}

impl Attention {
    fn new(at: &Builder, [hidden, heads]: [u64; 2], options: &RunOptions) -> Self {
        Self {
            module: at.module(),
            qkv: Linear::new(&at.at("qkv"), hidden, 3 * hidden, true),
            proj: Linear::new(&at.at("proj"), hidden, hidden, true),
            heads,
            options: options.clone(),
        }
    }

    fn forward(&self, hidden_states: &Tensor, call: &Call) -> Tensor {
        let _module = self.module.enter();
        let (seq_length, width) = (hidden_states.size(0), hidden_states.size(1));
        let [mut query_states, mut key_states, mut value_states] = {
            let qkv = self.qkv.forward(hidden_states);
            qkv.reshape(&[seq_length, 3, self.heads, width / self.heads]).transpose(0, 1).unbind_at(0)
        };
        (query_states, key_states) = turn(&query_states, &key_states, &call.cos, &call.sin);
        let heads_first = |states: &Tensor| states.transpose(0, 1).unsqueeze(0);
        query_states = heads_first(&query_states);
        key_states = heads_first(&key_states);
        value_states = heads_first(&value_states);
        let _lengths = call.cu_seqlens.narrow_any(0, call.lengths.len() as u64).unary("sub.Tensor", DType::Int32);
        let splits = [&query_states, &key_states, &value_states].map(|states| states.split_lengths(2, &call.lengths));
        let outputs: Vec<Tensor> = (0..call.lengths.len())
            .map(|at| {
                attend(
                    [&splits[0][at], &splits[1][at], &splits[2][at]],
                    None,
                    (0.0, Some(DType::Float32)),
                    &self.options,
                )
                .0
            })
            .collect();
        let mut attn_output = cat(&outputs.iter().collect::<Vec<_>>(), 1);
        attn_output = attn_output.reshape(&[seq_length, width]).contiguous();
        attn_output = self.proj.forward(&attn_output);
        attn_output
    }
}

/// `apply_rotary_pos_emb_vision`
fn turn(q: &Tensor, k: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor) {
    let dtypes = [q.dtype(), k.dtype()];
    let (q, k) = (q.float(), k.float());
    let (cos, sin) = (cos.unsqueeze(1).float(), sin.unsqueeze(1).float());
    let mut q_embed = rotate(&q, &cos, &sin);
    let mut k_embed = rotate(&k, &cos, &sin);
    q_embed = q_embed.to(dtypes[0]);
    k_embed = k_embed.to(dtypes[1]);
    (q_embed, k_embed)
}

pub(super) struct Block<N, M> {
    module: Module,
    norm1: N,
    norm2: N,
    attn: Attention,
    mlp: M,
}

impl<N: Norm, M: TowerMlp<N>> Block<N, M> {
    pub(super) fn new(at: &Builder, config: &Config<N, M>, options: &RunOptions) -> Self {
        let norm = |name| N::new(&at.at(name), config.embed_dim, 1e-6);
        Self {
            module: at.module(),
            norm1: norm("norm1"),
            norm2: norm("norm2"),
            attn: Attention::new(&at.at("attn"), [config.embed_dim, config.num_heads], options),
            mlp: M::new(&at.at("mlp"), config),
        }
    }
}

impl<N: Norm, M: TowerMlp<N>> EncoderLayer for Block<N, M> {
    type Call = Call;

    fn module(&self) -> &Module {
        &self.module
    }

    fn forward(&self, hidden_states: &Tensor, call: &Call) -> Tensor {
        let _module = self.module.enter();
        let hidden_states = {
            let attended = {
                let normed = self.norm1.forward(hidden_states);
                self.attn.forward(&normed, call)
            };
            hidden_states + &attended
        };
        let added = {
            let normed = self.norm2.forward(&hidden_states);
            self.mlp.forward(&normed)
        };
        &hidden_states + &added
    }
}

struct QwenTower<N, M> {
    module: Module,
    patch_embed: grids::PatchEmbed,
    rotary_pos_emb: grids::AxialRotary,
    blocks: Vec<Rc<Block<N, M>>>,
    merger: Merger<N>,
    /// Pixels on the side of a window, and the patches of each of an image's.
    windows: Option<(u64, Vec<u64>)>,
    is_full: Vec<bool>,
    rope_index: RopeIndex,
    patches: Patches,
    options: RunOptions,
}

impl<N: Norm, M: TowerMlp<N>> QwenTower<N, M> {
    /// The states after the last block, and what is merged of them.
    fn see(&self, pixel_values: &Tensor, grid_thw: &Tensor) -> (Tensor, Tensor) {
        let _module = self.module.enter();
        let images = grid_thw.size(0);
        let position_ids = self.patches.position_ids(grid_thw);
        let cu_seqlens = grids::cu_seqlens(grid_thw);
        let whole = (Rc::new(vec![self.patches.grid.patches(); images as usize]), cu_seqlens);
        let windows = self.windows.as_ref().map(|(size, windows)| {
            (Rc::new(windows.repeat(images as usize)), self.patches.cu_window_seqlens(grid_thw, *size))
        });
        let mut hidden_states = self.patch_embed.forward(pixel_values);
        hidden_states = self.permute(&hidden_states);
        let (cos, sin) = {
            let (cos, sin) = self.rotary_pos_emb.forward(&position_ids);
            (self.permute(&cos), self.permute(&sin))
        };
        for (block, is_full) in self.blocks.iter().zip(&self.is_full) {
            let (lengths, cu_seqlens) = windows.as_ref().filter(|_| !is_full).unwrap_or(&whole).clone();
            let call = Call { lengths, cu_seqlens, cos: cos.clone(), sin: sin.clone() };
            hidden_states = grids::call_block(block, &hidden_states, call, &self.options);
        }
        let mut merged_hidden_states = self.merger.forward(&hidden_states);
        if self.windows.is_some() {
            merged_hidden_states = merged_hidden_states.rows_of_host_index();
        }
        (hidden_states, merged_hidden_states)
    }

    /// `permute_input_for_window_attn`, where there are windows.
    fn permute(&self, input: &Tensor) -> Tensor {
        if self.windows.is_none() {
            return input.clone();
        }
        let (seq_len, unit) = (input.size(0), self.patches.unit());
        let grouped = input.reshape(&[seq_len / unit, unit, input.numel() / seq_len]);
        let permuted = grouped.rows_of_host_index();
        permuted.reshape(&[seq_len, input.numel() / seq_len])
    }

    /// `get_image_features(...).pooler_output`, joined in a dtype.
    fn image_embeds(&self, images: &Images, dtype: DType) -> Option<Tensor> {
        let (pixel_values, grid_thw) = (images.pixel_values.as_ref()?, images.grid_thw.as_ref()?);
        let split = {
            let pixel_values = pixel_values.to(self.patch_embed.dtype());
            let (last_hidden_state, pooled) = self.see(&pixel_values, grid_thw);
            let sizes = vec![self.patches.grid.tokens(); grid_thw.size(0) as usize];
            grids::split_sizes(grid_thw);
            let split = pooled.split_lengths(0, &sizes);
            drop(last_hidden_state);
            split
        };
        // The parts live until the cast is made.
        let joined = cat(&split.iter().collect::<Vec<_>>(), 0);
        Some(joined.to(dtype))
    }
}

impl<N: Norm, M: TowerMlp<N>> Tower for QwenTower<N, M> {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let Some(image_embeds) = self.image_embeds(images, inputs_embeds.dtype()) else {
            return Embedded::of_text(inputs_embeds);
        };
        let masks = {
            let masks = [call.input_ids.eq_number(0.0), call.input_ids.eq_number(0.0)];
            let n_image_tokens = masks[0].sum_int();
            check_count(&n_image_tokens);
            let _n_video_tokens = masks[1].sum_int();
            masks.map(|mask| mask.unsqueeze(2))
        };
        inputs_embeds = inputs_embeds.masked_scatter_tokens(&masks[0], &image_embeds);
        let position_ids = images.grid_thw.as_ref().map(|grid_thw| self.rope_index.get_rope_index(call, grid_thw));
        let kept = masks.into_iter().chain([image_embeds]).collect();
        Embedded { inputs_embeds, position_ids, image_hidden_states: self.rope_index.rope_deltas(), kept }
    }
}
