//! What of a multimodal model is left out: its towers, counted as far as their configs tell.

use serde_json::Value;

use crate::job::{Fields, LeftOut};

/// Configs of the parts of a multimodal model that are not its text model.
const TOWERS: [&str; 3] = ["vision_config", "audio_config", "encoder_config"];

/// What is left out of the multimodal model whose config is `outer`.
pub(super) fn left_out(outer_type: &str, outer: &Fields) -> LeftOut {
    let towers = TOWERS.iter().filter_map(|key| outer.object(key).ok()?);
    let counts: Option<Vec<u64>> = towers.map(|tower| tower_parameters(&tower)).collect();
    let total = counts.unwrap_or_default().iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    LeftOut { model_type: outer_type.to_owned(), parameters: (total > 0).then_some(total), config: outer.clone() }
}

/// Parameters of the layers of a transformer tower: four matrices of attention and the MLP's two; a lower bound, as
/// embeddings, projectors and a third matrix of gated MLPs come on top.
fn tower_parameters(tower: &Fields) -> Option<u64> {
    let read = |keys: &[&str]| keys.iter().find_map(|key| tower.get(key).and_then(Value::as_u64));
    let width = read(&["hidden_size", "embed_dim", "width", "d_model"])?;
    let layers = read(&["num_hidden_layers", "depth", "layers", "encoder_layers"])?;
    let inner = read(&["intermediate_size", "encoder_ffn_dim"]).unwrap_or_else(|| {
        let ratio = tower.get("mlp_ratio").and_then(Value::as_f64).unwrap_or(4.0);
        (width as f64 * ratio) as u64
    });
    let layer = width.checked_mul(width)?.checked_mul(4)?.checked_add(width.checked_mul(inner)?.checked_mul(2)?)?;
    layer.checked_mul(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_layers_of_a_tower_and_nothing_where_its_config_is_silent() {
        let outer = |text: &str| left_out("x", &Fields(serde_json::from_str(text).unwrap())).parameters;
        let siglip = r#"{"vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304}}"#;
        // SigLIP's own count of Gemma 3's tower is 416,866,032 with embeddings, norms and biases.
        assert_eq!(outer(siglip), Some(411_070_464));
        assert_eq!(outer(r#"{"vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4}}"#), Some(629_145_600));
        assert_eq!(outer(r#"{"vision_config": {}}"#), None);
        assert_eq!(outer(r#"{"vision_config": {"hidden_size": 18446744073709551615, "depth": 9}}"#), None);
        assert_eq!(outer("{}"), None);
    }
}
