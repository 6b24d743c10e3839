//! Positions of BART's kin: rows of a table that is trained, of one that is not, or of a buffer.

use super::config::PositionTable;
use crate::building::{Builder, Init, Module};
use crate::model::family::roberta::create_position_ids_from_input_ids;
use crate::op::arange;
use crate::tensor::Tensor;

/// Positions before the first (`self.offset`).
const OFFSET: u64 = 2;

pub(super) struct Positions {
    module: Module,
    table: PositionTable,
    weight: Tensor,
    padding_idx: u64,
}

impl Positions {
    pub(super) fn new(at: &Builder, table: PositionTable, [positions, width]: [u64; 2], padding_idx: u64) -> Self {
        let rows = if table == PositionTable::Frozen { positions } else { positions + OFFSET };
        let sizes = [rows, width];
        let weight = match table {
            PositionTable::Trained => at.parameter("weight", &sizes, Init::Normal),
            PositionTable::Frozen => at.frozen(true).parameter("weight", &sizes, Init::Normal),
            PositionTable::Buffer => at.buffer(&sizes, at.dtype(), Vec::new),
        };
        Self { module: at.embedding_module(), table, weight, padding_idx }
    }

    /// Those of all rows of the encoder.
    pub(super) fn of_encoder(&self, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        match self.table {
            PositionTable::Trained => {
                let position_ids = arange(input_ids.context(), input_ids.size(1)).expand(input_ids.sizes());
                self.weight.embedding(&position_ids.add_int(OFFSET), None)
            }
            PositionTable::Frozen => {
                let position_ids = arange(input_ids.context(), input_ids.size(1));
                self.weight.embedding(&position_ids, None)
            }
            PositionTable::Buffer => self.of_tokens(input_ids),
        }
    }

    /// Those of the decoder, whose numbers are there already unless tokens are counted.
    pub(super) fn of_decoder(&self, position_ids: Option<&Tensor>, input_ids: &Tensor) -> Tensor {
        let _module = self.module.enter();
        match (self.table, position_ids) {
            (PositionTable::Trained, Some(position_ids)) => {
                self.weight.embedding(&position_ids.unsqueeze(0).add_int(OFFSET), None)
            }
            (PositionTable::Frozen, Some(position_ids)) => self.weight.embedding(position_ids, None),
            _ => self.of_tokens(input_ids),
        }
    }

    /// `create_position_ids_from_input_ids`, and the rows of the table there.
    fn of_tokens(&self, input_ids: &Tensor) -> Tensor {
        let _no_grad = input_ids.context().set_grad_enabled(false);
        let position_ids = create_position_ids_from_input_ids(input_ids, self.padding_idx);
        let rows = self.weight.index_select(&position_ids.view(&[input_ids.numel()]));
        rows.view(&[input_ids.size(0), input_ids.size(1), self.weight.size(1)]).detach()
    }
}
