//! How far the generic decoder was from what was measured, by kind: the ranges of its answers.
//!
//! The measured jobs are those of `testdata/architectures` (15 model types, twelve jobs each: four dtypes, both attentions,
//! checkpointing, seven optimizers, adapters, inference and generation, half of them of random sizes). `cargo xtask architectures --check` holds every one of them inside the range,
//! and these worst figures to the committed table. Allocated bytes are within 1 % in nearly all; it is the allocator's
//! fragmentation that a slightly other order of requests changes, in jumps of whole segments.

use crate::job::Fields;

use super::shape::{Scores, shape_of_type};

/// What the range of an answer allows for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Allowance {
    /// Share of the reserved bytes, to either side.
    pub percent: u64,
    /// The farthest that a measured job of this kind was from its estimate, in percent of the estimate.
    pub worst_percent: f64,
    /// What the kind is called in the table.
    pub kind: &'static str,
    /// Whether the class computes scores itself, whatever attention the job names.
    pub ignores_attention: bool,
}

/// Scores through transformers' attention interface.
const INTERFACE: Allowance =
    Allowance { percent: 25, worst_percent: 9.7, kind: "attention interface", ignores_attention: false };
/// Falcon, which copies its keys or hands SDPA fewer of them than queries.
const OWN_KEYS: Allowance = Allowance { percent: 35, worst_percent: 20.9, kind: "own keys", ignores_attention: false };
/// Scores that the class computes itself.
const OWN_SCORES: Allowance =
    Allowance { percent: 40, worst_percent: 27.0, kind: "own scores", ignores_attention: true };

/// The allowance for a model type that the generic decoder stands in for.
pub fn generic_allowance(model_type: &str) -> Option<Allowance> {
    // The kinds do not depend on a config's flags.
    let shape = shape_of_type(model_type, &Fields::default()).ok()??;
    Some(match shape.scores {
        Scores::Interface => INTERFACE,
        Scores::BroadcastKeys | Scores::RepeatedKeys => OWN_KEYS,
        Scores::Float32 | Scores::Float32Masked | Scores::Alibi => OWN_SCORES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::generic_model_types;

    #[test]
    fn every_type_that_is_answered_has_switches_and_an_allowance_beyond_the_worst() {
        for model_type in generic_model_types() {
            let allowance = generic_allowance(model_type).unwrap_or_else(|| panic!("{model_type} has no switches"));
            assert!(allowance.percent as f64 > allowance.worst_percent, "{model_type}");
        }
        assert_eq!(generic_allowance("llama"), None);
        assert_eq!(generic_allowance("mixtral"), None);
    }
}
