//! The decoder that stands in for model types without a family of their own: one shape with switches, set for each type
//! by name. Its figures are held against measured jobs (`cargo xtask architectures`), and the range allows for the worst.

mod attention;
mod block;
mod config;
mod measured;
mod model;
mod plain;
mod shape;

use crate::building::{BuildError, Builder};
use crate::job::{Architecture, ModelSpec, find_architecture};

use super::{Build, Family};
use crate::model::family::{Model, RunOptions};
use config::GenericConfig;
use model::GenericForCausalLm;

pub use measured::{Allowance, generic_allowance};

/// Not in `FAMILIES`: it mirrors no model type, it stands in for those of [`Architecture::Decoder`].
pub(super) const FAMILY: Family = Family { model_types: &[], build: Build::LanguageModel(build_generic) };

/// Whether the generic decoder stands in for a model type.
pub(super) fn stands_in(model_type: &str) -> bool {
    find_architecture(model_type) == Some(Architecture::Decoder)
}

fn build_generic(model: &ModelSpec, at: &Builder, options: &RunOptions) -> Result<Box<dyn Model>, BuildError> {
    let config = GenericConfig::read(&model.model_type, &model.config)?;
    Ok(Box::new(GenericForCausalLm::new(at, config, options)))
}
