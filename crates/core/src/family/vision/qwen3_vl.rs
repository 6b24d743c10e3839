//! Qwen3-VL (transformers/models/qwen3_vl/modeling_qwen3_vl.py): positions are interpolated from a table, and what some layers of the
//! tower make is added behind the first layers of the language model.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use serde_json::Value;

use super::grid_positions::RopeIndex;
use super::grids::{self, Patches};
use super::interpolation::interpolate;
use super::places::check_count;
use super::qwen2_5_vl::{Block, Call, Config as BlockConfig};
use super::qwen2_vl::VisionMlp;
use crate::building::{BuildError, Builder, Module};
use crate::job::{FieldError, Fields, Vision};
use crate::model::family::bounds::bound_weights;
use crate::model::family::{Embedded, ForwardCall, Images, RunOptions, Tower, TowerConfig};
use crate::model::nn::{Activation, Embedding, LayerNorm, Linear};
use crate::op::{Gelu, cat};
use crate::tensor::Tensor;

/// What `Qwen3VLVisionConfig` has (transformers 5.17).
#[derive(Debug)]
struct Config {
    blocks: BlockConfig<LayerNorm, VisionMlp>,
    num_position_embeddings: u64,
    deepstack_visual_indexes: Vec<u64>,
}

pub(super) fn read_tower(vision: &Vision) -> Result<Rc<dyn TowerConfig>, BuildError> {
    let tower = vision.tower()?;
    let blocks = BlockConfig {
        patches: Patches::read(vision, &tower)?,
        depth: tower.layers("depth", 27)?,
        embed_dim: tower.size("hidden_size", 1152)?,
        intermediate_size: tower.size("intermediate_size", 4304)?,
        num_heads: tower.size("num_heads", 16)?,
        activation: Activation::from_name("hidden_act", tower.text("hidden_act", "gelu_pytorch_tanh")?)?,
        out_hidden_size: tower.size("out_hidden_size", 3584)?,
        window_size: None,
        fullatt_block_indexes: Vec::new(),
        mlp_names: ["linear_fc1", "act_fn", "linear_fc2"],
        vision: vision.clone(),
        parts: PhantomData,
    };
    blocks.check()?;
    let num_position_embeddings = tower.size("num_position_embeddings", 2304)?;
    bound_weights(&[("num_position_embeddings", [num_position_embeddings, blocks.embed_dim], 1)])?;
    let deepstack_visual_indexes = deepstack_indexes(&tower)?;
    Ok(Rc::new(Config { blocks, num_position_embeddings, deepstack_visual_indexes }))
}

fn deepstack_indexes(tower: &Fields) -> Result<Vec<u64>, FieldError> {
    let key = "deepstack_visual_indexes";
    let Some(listed) = tower.get(key) else { return Ok(vec![8, 16, 24]) };
    let numbers: Option<Vec<u64>> = listed.as_array().and_then(|all| all.iter().map(Value::as_u64).collect());
    numbers.ok_or_else(|| FieldError::new(key, "must be a list of layers, counted from 0"))
}

impl TowerConfig for Config {
    fn build_tower(&self, at: &Builder, options: &RunOptions, _width: u64) -> Box<dyn Tower> {
        let (config, at) = (&self.blocks, at.at("visual"));
        let module = at.module();
        let tower = at.frozen(config.vision.freezes_tower);
        let width = config.embed_dim;
        let patch_embed = grids::PatchEmbed::new(&tower.at("patch_embed"), &config.patches, (width, true), options);
        let pos_embed = Embedding::new(&tower.at("pos_embed"), self.num_position_embeddings, width, None);
        let rotary_pos_emb = grids::AxialRotary::new(&tower.at("rotary_pos_emb"), width / config.num_heads);
        let block = |block| Rc::new(Block::new(&tower.at("blocks").element(block), config, options));
        let blocks = (0..config.depth).map(block).collect();
        let projector = |at: &Builder| at.frozen(config.vision.freezes_projector);
        let merger = Merger::new(&projector(&at.at("merger")), config, false);
        let list = at.at("deepstack_merger_list");
        let deepstack = (0..self.deepstack_visual_indexes.len() as u64)
            .map(|place| Merger::new(&projector(&list.at(&place.to_string())), config, true))
            .collect();
        Box::new(Qwen3Tower {
            module,
            patch_embed,
            pos_embed,
            rotary_pos_emb,
            blocks,
            merger,
            deepstack,
            deepstack_visual_indexes: self.deepstack_visual_indexes.clone(),
            rope_index: RopeIndex::new(&config.vision, config.patches),
            patches: config.patches,
            options: options.clone(),
            features: RefCell::default(),
        })
    }
}

/// `Qwen3VLVisionPatchMerger`
struct Merger {
    module: Module,
    norm: LayerNorm,
    linear_fc1: Linear,
    act_fn: Module,
    linear_fc2: Linear,
    width: u64,
    normalizes_merged: bool,
}

impl Merger {
    fn new(at: &Builder, config: &BlockConfig<LayerNorm, VisionMlp>, normalizes_merged: bool) -> Self {
        let width = config.embed_dim * config.patches.unit();
        let normed = if normalizes_merged { width } else { config.embed_dim };
        Self {
            module: at.module(),
            norm: LayerNorm::new(&at.at("norm"), normed, 1e-6),
            linear_fc1: Linear::new(&at.at("linear_fc1"), width, width, true),
            act_fn: at.at("act_fn").module(),
            linear_fc2: Linear::new(&at.at("linear_fc2"), width, config.out_hidden_size, true),
            width,
            normalizes_merged,
        }
    }

    fn forward(&self, hidden_states: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let merged = |x: &Tensor| x.view(&[x.numel() / self.width, self.width]);
        let x = match self.normalizes_merged {
            true => merged(&self.norm.forward(&merged(hidden_states))),
            false => merged(&self.norm.forward(hidden_states)),
        };
        let activated = {
            let inner = self.linear_fc1.forward(&x);
            let _act_fn = self.act_fn.enter();
            Activation::Gelu(Gelu::Exact).forward(&inner)
        };
        self.linear_fc2.forward(&activated)
    }
}

struct Qwen3Tower {
    module: Module,
    patch_embed: grids::PatchEmbed,
    pos_embed: Embedding,
    rotary_pos_emb: grids::AxialRotary,
    blocks: Vec<Rc<Block<LayerNorm, VisionMlp>>>,
    merger: Merger,
    deepstack: Vec<Merger>,
    deepstack_visual_indexes: Vec<u64>,
    rope_index: RopeIndex,
    patches: Patches,
    options: RunOptions,
    /// The places of images in the rows, and what is added there behind each of the first layers.
    features: RefCell<Option<(Tensor, Vec<Tensor>)>>,
}

/// `BaseModelOutputWithDeepstackFeatures`
struct Seen {
    last_hidden_state: Tensor,
    merged_hidden_states: Tensor,
    deepstack_features: Vec<Tensor>,
}

impl Qwen3Tower {
    fn see(&self, pixel_values: &Tensor, grid_thw: &Tensor) -> Seen {
        let _module = self.module.enter();
        let images = grid_thw.size(0);
        let (interp_indices, interp_weights) = interpolate(&self.patches, grid_thw);
        let position_ids = self.patches.position_ids(grid_thw);
        let cu_seqlens = grids::cu_seqlens(grid_thw);
        let lengths = Rc::new(vec![self.patches.grid.patches(); images as usize]);
        let mut hidden_states = self.patch_embed.forward(pixel_values);
        let pos_embeds = {
            let weighted = {
                let embedded = self.pos_embed.forward(&interp_indices);
                &embedded * &interp_weights.unsqueeze(2)
            };
            weighted.sum_at(1)
        };
        hidden_states = &hidden_states + &pos_embeds.to(hidden_states.dtype());
        let (cos, sin) = self.rotary_pos_emb.forward(&position_ids);
        let mut deepstack_features = Vec::new();
        for (at, block) in (0..).zip(&self.blocks) {
            let (lengths, cu_seqlens) = (Rc::clone(&lengths), cu_seqlens.clone());
            let call = Call { lengths, cu_seqlens, cos: cos.clone(), sin: sin.clone() };
            hidden_states = grids::call_block(block, &hidden_states, call, &self.options);
            let place = self.deepstack_visual_indexes.iter().position(|index| *index == at);
            if let Some(merger) = place.and_then(|place| self.deepstack.get(place)) {
                deepstack_features.push(merger.forward(&hidden_states));
            }
        }
        let merged_hidden_states = self.merger.forward(&hidden_states);
        Seen { last_hidden_state: hidden_states, merged_hidden_states, deepstack_features }
    }

    /// `get_image_features(...)`
    fn image_features(&self, images: &Images) -> Option<Seen> {
        let (pixel_values, grid_thw) = (images.pixel_values.as_ref()?, images.grid_thw.as_ref()?);
        let pixel_values = pixel_values.to(self.patch_embed.dtype());
        let seen = self.see(&pixel_values, grid_thw);
        grids::split_sizes(grid_thw);
        Some(seen)
    }
}

impl Tower for Qwen3Tower {
    fn embed_images(&self, mut inputs_embeds: Tensor, images: &Images, call: &ForwardCall) -> Embedded {
        let (Some(seen), Some(grid_thw)) = (self.image_features(images), images.grid_thw.as_ref()) else {
            return Embedded::of_text(inputs_embeds);
        };
        let image_embeds = {
            let sizes = vec![self.patches.grid.tokens(); grid_thw.size(0) as usize];
            let split = seen.merged_hidden_states.split_lengths(0, &sizes);
            let joined = cat(&split.iter().collect::<Vec<_>>(), 0);
            joined.to(inputs_embeds.dtype())
        };
        let masks = {
            let masks = [call.input_ids.eq_number(0.0), call.input_ids.eq_number(0.0)];
            let n_image_tokens = masks[0].sum_int();
            let image_mask = masks[0].unsqueeze(2);
            check_count(&n_image_tokens);
            let _n_video_tokens = masks[1].sum_int();
            [image_mask, masks[1].unsqueeze(2)]
        };
        inputs_embeds = inputs_embeds.masked_scatter_tokens(&masks[0], &image_embeds);
        let position_ids = self.rope_index.get_rope_index(call, grid_thw);
        let visual_pos_masks = masks[0].select(2, 0);
        self.features.replace(Some((visual_pos_masks, seen.deepstack_features)));
        let kept = masks.into_iter().chain([image_embeds, seen.last_hidden_state, seen.merged_hidden_states]).collect();
        let image_hidden_states = self.rope_index.rope_deltas();
        Embedded { inputs_embeds, position_ids: Some(position_ids), image_hidden_states, kept }
    }

    /// `_deepstack_process`
    fn after_layer(&self, layer: usize, hidden_states: Tensor) -> Tensor {
        let features = self.features.borrow();
        let Some((mask, visual_embeds)) = features.as_ref().and_then(|(mask, all)| Some((mask, all.get(layer)?)))
        else {
            return hidden_states;
        };
        let visual_embeds = visual_embeds.to(hidden_states.dtype());
        let cloned = hidden_states.clone_contiguous();
        drop(hidden_states);
        let local_this = {
            let chosen = cloned.masked_rows(mask, visual_embeds.size(0));
            &chosen + &visual_embeds
        };
        cloned.put_rows_by_mask(mask, &local_this)
    }

    fn end_forward(&self) {
        let over = self.features.take();
        drop(over);
    }
}
