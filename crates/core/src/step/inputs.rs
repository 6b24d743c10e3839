//! What every task's batches are made of.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::ModelSpec;
use crate::op::full;
use crate::tensor::{Context, Tensor};
use crate::trace::Category;

/// Token ids that were moved to the device.
pub(super) fn input_ids(context: &Rc<Context>, rows: u64, tokens: u64) -> Tensor {
    let _category = context.enter_category(Category::Input);
    full(context, "_to_copy.default", &[rows, tokens], DType::Int64)
}

/// Whether the model's config, and so its generation config, names a begin token.
pub(super) fn has_begin_token(model: &ModelSpec) -> bool {
    model.has_begin_token()
}
