//! Patches of images in one list, with a grid for each (transformers/vision_utils.py): their positions, windows and embeddings.

use std::rc::Rc;

use super::places::require_patch_grads;
use crate::building::{Builder, Init, Module};
use crate::dtype::DType;
use crate::job::{FieldError, Fields, PatchGrid, Vision};
use crate::model::family::RunOptions;
use crate::model::family::encoder::EncoderLayer;
use crate::op::{arange, cat, full, stack_last};
use crate::tensor::{Tensor, checkpoint};

/// Bytes that a running sum of a few numbers takes, of int64 and of int32.
pub(super) const SMALL_SCAN: u64 = 1279;
const SMALL_SCAN_INT32: u64 = 1023;

/// The patches of an image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    pub grid: PatchGrid,
    patch_size: u64,
    temporal_patch_size: u64,
    in_channels: u64,
}

impl Patches {
    pub(super) fn read(vision: &Vision, tower: &Fields) -> Result<Self, FieldError> {
        let grid = vision.grid()?.ok_or_else(|| FieldError::new("vision_config", "has no grid"))?;
        if !grid.height.is_multiple_of(grid.merge) || !grid.width.is_multiple_of(grid.merge) {
            return Err(FieldError::new("spatial_merge_size", "does not divide the grid of an image"));
        }
        Ok(Self {
            grid,
            patch_size: vision.patch_side(tower)?,
            temporal_patch_size: tower.size("temporal_patch_size", 2)?,
            in_channels: tower.size("in_channels", tower.size("in_chans", 3)?)?,
        })
    }

    /// Patches that become one token.
    pub(super) const fn unit(&self) -> u64 {
        self.grid.merge * self.grid.merge
    }

    /// Patches of each window of an image (`get_vision_window_index`), in order, without empty ones.
    pub(super) fn windows(&self, window_size: u64) -> Vec<u64> {
        let [height, width] = self.merged_sides();
        let side = self.window_side(window_size);
        let parts = |whole: u64| (0..whole.div_ceil(side)).map(move |at| side.min(whole - at * side));
        parts(height).flat_map(|rows| parts(width).map(move |columns| rows * columns * self.unit())).collect()
    }

    fn window_side(&self, window_size: u64) -> u64 {
        (window_size / self.grid.merge / self.patch_size).max(1)
    }

    fn merged_sides(&self) -> [u64; 2] {
        [self.grid.height, self.grid.width].map(|side| side / self.grid.merge)
    }

    /// `get_vision_position_ids`
    pub(super) fn position_ids(&self, grid_thw: &Tensor) -> Tensor {
        let context = grid_thw.context();
        let (height, width, images) = (self.grid.height, self.grid.width, grid_thw.size(0));
        let spatial_merge_size = full(context, "lift_fresh.default", &[1], DType::Int64);
        if images > 1 {
            drop(full(context, "_to_copy.default", &[images], DType::Int64));
        }
        let mut all = Vec::new();
        let mut ids: Option<[Tensor; 2]> = None;
        for _ in 0..images {
            let sides = [arange(context, height), arange(context, width)];
            drop(ids.take());
            let flat = sides.map(|_side| full(context, "clone.default", &[height * width], DType::Int64));
            let stacked = stack_last([&flat[0], &flat[1]]);
            all.push(full(context, "repeat.default", &[height * width, 2], DType::Int64));
            drop(stacked);
            ids = Some(flat);
        }
        let position_ids = cat(&all.iter().collect::<Vec<_>>(), 0);
        drop(spatial_merge_size);
        position_ids
    }

    /// `get_vision_window_index`, of which the list of windows' ends comes to the device, and loses those of empty ones.
    pub(super) fn cu_window_seqlens(&self, grid_thw: &Tensor, window_size: u64) -> Tensor {
        let context = grid_thw.context();
        let side = self.window_side(window_size);
        let padded: u64 = self.merged_sides().iter().map(|whole| whole / side + 1).product();
        let ends = 1 + grid_thw.size(0) * padded;
        let listed = full(context, "lift_fresh.default", &[ends], DType::Int32);
        let op = "unique_consecutive.default";
        let unique = full(context, op, &[ends], DType::Int32);
        let _scratch = [8, SMALL_SCAN_INT32].map(|bytes| Tensor::scratch(context, op, bytes));
        drop(listed);
        unique
    }
}

/// `get_vision_cu_seqlens`
pub(super) fn cu_seqlens(grid_thw: &Tensor) -> Tensor {
    let (context, images) = (grid_thw.context(), grid_thw.size(0));
    let seqlens = {
        let patches = full(context, "mul.Tensor", &[images], DType::Int64);
        let repeats = (images > 1).then(|| full(context, "repeat_interleave.Tensor", &[images], DType::Int64));
        let op = "repeat_interleave.Tensor";
        let sums = full(context, op, &[images], DType::Int64);
        {
            let _copy = (images > 1).then(|| Tensor::scratch(context, op, images * DType::Int64.size()));
            let _sum = Tensor::scratch(context, op, SMALL_SCAN);
        }
        {
            let _are_positive = full(context, op, &[images], DType::Bool);
            let _all = Tensor::scratch(context, op, 1);
        }
        let places = full(context, "repeat_interleave.Tensor", &[images], DType::Int64);
        drop((sums, repeats));
        let seqlens = full(context, "index_select.default", &[images], DType::Int64);
        drop((places, patches));
        seqlens
    };
    let ends = {
        let _cumsum = full(context, "cumsum.default", &[images], DType::Int32);
        drop(
            [images * DType::Int32.size(), SMALL_SCAN_INT32]
                .map(|bytes| Tensor::scratch(context, "cumsum.default", bytes)),
        );
        full(context, "constant_pad_nd.default", &[images + 1], DType::Int32)
    };
    drop(seqlens);
    ends
}

/// `(image_grid_thw.prod(-1) // merge ** 2).tolist()`
pub(super) fn split_sizes(grid_thw: &Tensor) {
    let images = grid_thw.size(0);
    let products = full(grid_thw.context(), "prod.dim_int", &[images], DType::Int64);
    let _sizes = products.unary("floor_divide.default", DType::Int64);
}

/// `Qwen2_5_VisionPatchEmbed`: a convolution that makes a state of each patch.
pub(super) struct PatchEmbed {
    module: Module,
    proj: Module,
    weight: Tensor,
    bias: Option<Tensor>,
    patches: Patches,
    options: RunOptions,
}

impl PatchEmbed {
    pub(super) fn new(at: &Builder, patches: &Patches, (width, bias): (u64, bool), options: &RunOptions) -> Self {
        let (module, proj) = (at.module(), at.at("proj"));
        let (side, time) = (patches.patch_size, patches.temporal_patch_size);
        let weight = proj.parameter("weight", &[width, patches.in_channels, time, side, side], Init::Normal);
        let bias = bias.then(|| proj.parameter("bias", &[width], Init::Zeros));
        Self { module, proj: proj.module(), weight, bias, patches: *patches, options: options.clone() }
    }

    pub(super) fn dtype(&self) -> DType {
        self.weight.dtype()
    }

    pub(super) fn forward(&self, pixels: &Tensor) -> Tensor {
        let _module = self.module.enter();
        let (side, time) = (self.patches.patch_size, self.patches.temporal_patch_size);
        let pixels = pixels.view(&[pixels.size(0), self.patches.in_channels, time, side, side]);
        let convolved = {
            let pixels = pixels.to(self.weight.dtype());
            let _proj = self.proj.enter();
            pixels.conv3d(&self.weight, self.bias.as_ref(), [time, side, side])
        };
        let patches = convolved.view(&[convolved.size(0), convolved.size(1)]);
        // Qwen3-VL's tower does not say what its input embeddings are, and nobody has them require grad.
        if self.bias.is_some() { patches } else { require_patch_grads(&self.options, patches) }
    }
}

/// `Qwen2_5_VLVisionRotaryEmbedding`: tables of height and width.
pub(super) struct AxialRotary {
    module: Module,
    inv_freq: Tensor,
    _original: Tensor,
}

impl AxialRotary {
    pub(super) fn new(at: &Builder, head_dim: u64) -> Self {
        let buffer = || at.buffer(&[head_dim / 4], DType::Float32, Vec::new);
        Self { module: at.module(), inv_freq: buffer(), _original: buffer() }
    }

    pub(super) fn forward(&self, position_ids: &Tensor) -> (Tensor, Tensor) {
        let _module = self.module.enter();
        let _no_grad = position_ids.context().set_grad_enabled(false);
        let position_ids_expanded = position_ids.unsqueeze(2).float();
        let _float32 = position_ids.context().disable_autocast();
        let freqs = &position_ids_expanded * &self.inv_freq;
        let mut cos = freqs.cos().mul_scalar(1.0);
        let mut sin = freqs.sin().mul_scalar(1.0);
        cos = recompose(&cos);
        sin = recompose(&sin);
        (cos, sin)
    }
}

/// `recomposition_frequencies`
fn recompose(freq: &Tensor) -> Tensor {
    let freq_hw = cat(&[&freq.select(1, 0), &freq.select(1, 1)], 1);
    cat(&[&freq_hw, &freq_hw], 1)
}

/// Calls a layer, which is recomputed in backward where layers are checkpointed.
pub(super) fn call_block<L: EncoderLayer>(
    block: &Rc<L>,
    hidden_states: &Tensor,
    call: L::Call,
    options: &RunOptions,
) -> Tensor {
    if !options.checkpoints_layers() {
        return block.module().call(hidden_states, |states| block.forward(states, &call));
    }
    let block = Rc::clone(block);
    checkpoint(hidden_states, move |states| block.module().call(states, |states| block.forward(states, &call)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As `get_vision_window_index` of transformers 5.17 makes them.
    #[test]
    fn windows_at_the_edges_are_smaller() {
        let vision = |sides| Vision {
            model_type: "qwen2_5_vl".to_owned(),
            config: Fields(json!({"vision_config": {}}).as_object().cloned().unwrap_or_default()),
            images_per_row: 1,
            sides,
            freezes_tower: false,
            freezes_projector: false,
        };
        let windows = |sides| {
            let vision = vision(sides);
            Patches::read(&vision, &vision.tower().unwrap()).unwrap().windows(112)
        };
        assert_eq!(windows([196, 280]), [64, 64, 32, 48, 48, 24]);
        assert_eq!(windows([112, 112]), [64]);
    }
}
