//! The images of a case whose model has a tower.

use serde_json::{Map, Value};

use super::model_of_case;
use crate::job::hf::read_model;
use crate::job::{JobError, ModelSpec};
use crate::model_type::vision_form;

/// What a case says of them.
pub(super) struct CaseImages<'a> {
    pub per_row: u64,
    /// A side, or height and width, where the config does not say it.
    pub size: Option<&'a Value>,
    /// Whether tower and projector stay as they are.
    pub freezes: [bool; 2],
}

impl CaseImages<'_> {
    /// The model of the case, with its tower where it has one: what indexes by masks was then measured with known values, and
    /// places do not come first.
    pub(super) fn see(&self, id: &str, case_model: Map<String, Value>) -> Result<(bool, ModelSpec), JobError> {
        let model = model_of_case(id.to_owned(), case_model.clone())?;
        if vision_form(&model.model_type).is_none() {
            return Ok((true, model));
        }
        let mut outer = case_model;
        outer.remove("family");
        outer.insert("model_type".to_owned(), model.model_type.into());
        let mut inner = read_model(id, outer)?.spec;
        inner.see_images(self.per_row, self.size.and_then(pair))?;
        if let Some(vision) = &mut inner.beside.vision {
            [vision.freezes_tower, vision.freezes_projector] = self.freezes;
        }
        Ok((false, inner))
    }
}

/// A side, or height and width.
fn pair(size: &Value) -> Option<[u64; 2]> {
    let both = size.as_array().map(|sides| sides.iter().filter_map(Value::as_u64).collect::<Vec<_>>());
    match both.as_deref() {
        Some([height, width]) => Some([*height, *width]),
        _ => size.as_u64().map(|side| [side, side]),
    }
}
