//! Whether two nodes are one model under two names. Nodes that begin with the same weights and train on the same groups stay the same up to
//! rounding: they sum the same rows in another order. So a few weights are shown, and held against the way that they came.

use tonnage_torch::{Device, Tensor as Parameter};

use crate::error::TrainError;
use crate::tensor::{Context, Tensor, caught};

/// Weights that a node shows of itself.
const SHOWN: u64 = 64;
/// Nodes that lie closer together than this share of their way have come the same way.
const SAME_WAY: f64 = 0.05;

/// The weights that a node shows: some of the last matrix, which every text has gradients in.
pub(super) fn shown_weights(parameters: &[Parameter]) -> Result<Vec<f32>, TrainError> {
    let is_matrix = |parameter: &&Parameter| parameter.sizes().len() >= 2;
    let Some(last) = parameters.iter().rev().find(is_matrix).or(parameters.last()) else { return Ok(Vec::new()) };
    let context = Context::new(last.torch(), last.device());
    let _no_grad = last.torch().no_grad();
    let shown = caught(|| {
        let flat = Tensor::of(&context, last.clone());
        let all = flat.sizes().iter().product::<u64>();
        let from = all.saturating_sub(SHOWN) / 2;
        flat.reshape(&[all]).narrow(0, from..(from + SHOWN).min(all)).float()
    })?;
    Ok(shown.inner().to_device(Device::Cpu)?.to_vec::<f32>()?)
}

/// Whether `other` came from where this node `began` to where it is by the same way.
pub(super) fn came_the_same_way(began: &[f32], own: &[f32], other: &[f32]) -> bool {
    let apart = |one: &[f32], other: &[f32]| {
        one.iter().zip(other).map(|(one, other)| f64::from((one - other).abs())).sum::<f64>()
    };
    let way = apart(began, own);
    other.len() == own.len() && way > 0.0 && apart(own, other) < SAME_WAY * way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_no_difference_and_another_way_is_one() {
        let began = [0.5, -0.25, 0.125, 0.0];
        let moved = |by: [f32; 4]| -> Vec<f32> { began.iter().zip(by).map(|(one, by)| one + by).collect() };
        let own = moved([1e-3, -1e-3, 2e-3, 1e-3]);
        assert!(came_the_same_way(&began, &own, &own));
        assert!(came_the_same_way(&began, &own, &moved([1.0001e-3, -1e-3, 2e-3, 0.9999e-3])));
        assert!(!came_the_same_way(&began, &own, &moved([1e-3, -1e-3, 1e-3, 1e-3])), "a fifth of the way apart");
        assert!(!came_the_same_way(&began, &own, &began), "one that has not moved");
        assert!(!came_the_same_way(&began, &began, &began), "nobody has moved: nothing is known yet");
        assert!(!came_the_same_way(&began, &own, &own[..2]), "another model");
        assert!(!came_the_same_way(&began, &own, &[f32::NAN; 4]));
    }
}
