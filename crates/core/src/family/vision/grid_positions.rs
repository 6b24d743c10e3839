//! Positions of tokens in time, height and width (`get_rope_index` of Qwen2-VL's relatives): images count once for their longer side.

use std::cell::RefCell;

use super::grids::Patches;
use crate::dtype::DType;
use crate::job::Vision;
use crate::model::family::ForwardCall;
use crate::op::{arange, cat, full, number_from_host};
use crate::tensor::Tensor;

/// Makes them, and keeps how far they run behind the tokens (`model.rope_deltas`).
pub(super) struct RopeIndex {
    images_per_row: u64,
    /// Height and width of an image in tokens.
    sides: [u64; 2],
    rope_deltas: RefCell<Option<Tensor>>,
}

/// Where the row's positions are: a number of Python's before its first image, then the device's.
type CurrentPos = Option<Tensor>;

impl RopeIndex {
    pub(super) fn new(vision: &Vision, patches: Patches) -> Self {
        let sides = [patches.grid.height, patches.grid.width].map(|side| side / patches.grid.merge);
        Self { images_per_row: vision.images_per_row, sides, rope_deltas: RefCell::default() }
    }

    /// What the model returns of it.
    pub(super) fn rope_deltas(&self) -> Option<Tensor> {
        self.rope_deltas.borrow().clone()
    }

    /// `get_rope_index`: [3, rows, tokens].
    pub(super) fn get_rope_index(&self, call: &ForwardCall, grid_thw: &Tensor) -> Tensor {
        let (context, rows, tokens) = (grid_thw.context(), call.input_ids.size(0), call.input_ids.size(1));
        let position_ids = full(context, "zeros.default", &[3, rows, tokens], DType::Int64);
        let (mut deltas, mut variables) = (Vec::new(), RowVariables::default());
        for _ in 0..rows {
            if call.attention_mask.is_some() {
                variables.select_tokens(call, tokens);
            }
            self.place_row(grid_thw, tokens, &mut variables);
            let llm_positions = cat(&variables.parts.iter().collect::<Vec<_>>(), 1);
            variables.llm_positions = Some(llm_positions.clone());
            if let Some(mask) = call.attention_mask {
                put_by_mask(mask, tokens);
            }
            let ends = {
                let largest = llm_positions.max_int();
                largest.add_int(1)
            };
            deltas.push(ends.unary("sub.Tensor", DType::Int64));
        }
        let listed = full(context, "lift_fresh.default", &[rows, 1], DType::Int64);
        drop(deltas);
        let before = self.rope_deltas.replace(Some(listed));
        drop(variables);
        drop(before);
        position_ids
    }

    /// The row's text and images in turn, each image between tokens of text.
    fn place_row(&self, grid_thw: &Tensor, tokens: u64, variables: &mut RowVariables) {
        let context = grid_thw.context();
        variables.current_pos = None;
        variables.parts.clear();
        let image = self.sides[0] * self.sides[1];
        let text = tokens.saturating_sub(self.images_per_row * image);
        for at in 0..=self.images_per_row {
            let length = if at < self.images_per_row { 1 } else { text.saturating_sub(self.images_per_row) };
            if length > 0 {
                let counted = arange(context, length).unsqueeze(0).expand(&[3, length]);
                variables.parts.push(counted.unary("add.Tensor", DType::Int64));
            }
            if at < self.images_per_row {
                self.place_image(grid_thw, variables);
            }
        }
    }

    /// `get_vision_position_ids`, and how far it moves the row.
    fn place_image(&self, grid_thw: &Tensor, variables: &mut RowVariables) {
        let context = grid_thw.context();
        let [height, width] = self.sides;
        let positions = {
            let time = arange(context, 1).unary("mul.Tensor", DType::Int64);
            let of_height = arange(context, height).unary("add.Tensor", DType::Int64);
            let of_width = arange(context, width).unary("add.Tensor", DType::Int64);
            let stacked = full(context, "stack.default", &[3, height * width], DType::Int64);
            drop((time, of_height, of_width));
            stacked
        };
        variables.vision_position_ids = Some(positions.clone());
        variables.parts.push(positions);
        drop(number_from_host(context, "gt.Tensor", 0.0, DType::Bool));
        let steps = number_from_host(context, "floor_divide.default", 0.0, DType::Int64);
        if variables.current_pos.is_none() {
            variables.current_pos = Some(number_from_host(context, "add.Tensor", 0.0, DType::Int64));
        }
        drop(steps);
    }
}

/// Python's variables of the loop over rows.
#[derive(Default)]
struct RowVariables {
    current_pos: CurrentPos,
    parts: Vec<Tensor>,
    vision_position_ids: Option<Tensor>,
    llm_positions: Option<Tensor>,
    /// Ids and types of the tokens that the mask lets through.
    selected: [Option<Tensor>; 2],
}

impl RowVariables {
    /// `x[attention_mask[batch_idx].bool()]` of ids and of types.
    fn select_tokens(&mut self, call: &ForwardCall, tokens: u64) {
        self.selected = [None, None];
        for slot in &mut self.selected {
            let row = call.input_ids.narrow_any(0, 1).squeeze(0);
            let mask = row.unary("_to_copy.default", DType::Bool);
            *slot = Some(row.masked_rows(&mask, tokens));
        }
    }
}

/// `position_ids[:, batch_idx, attention_mask[batch_idx].bool()] = llm_positions`
fn put_by_mask(mask: &Tensor, tokens: u64) {
    let mask = mask.narrow_any(0, 1).squeeze(0).unary("_to_copy.default", DType::Bool);
    let _places = mask.places(tokens);
}
