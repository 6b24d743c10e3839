//! Which questions come: a seed for each place of an experiment, and a split by the question itself, so that no question that is
//! evaluated on was ever trained on, whatever its seed.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Question};

/// One in so many questions is held out for evaluation.
const HELD_OUT: u64 = 5;
/// Seeds that are tried for a question of a split; a fair draw of one in five fails so often once in 10^24.
const MOST_TRIES: u64 = 256;

/// Where a question belongs, by the hash of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Four of five.
    Training,
    /// The fifth, by a hash of the question's text.
    Evaluation,
}

impl Split {
    /// Where a question belongs.
    pub fn of(question: &Question) -> Self {
        if mix_bits(hash_bytes(question.text.as_bytes())).is_multiple_of(HELD_OUT) {
            Self::Evaluation
        } else {
            Self::Training
        }
    }
}

/// Draws questions of one kind, level and split.
#[derive(Clone, Copy)]
pub struct Draw<'a> {
    /// What is asked.
    pub kind: &'a Kind,
    /// From 1 to the kind's `levels`.
    pub level: u32,
    /// Those of training, or those that are held out.
    pub split: Split,
}

impl Draw<'_> {
    /// The question of a seed; `None` where the level has too few questions for this split to have one.
    pub fn question(&self, seed: u64) -> Option<Question> {
        let mut seeds = SplitMix64::new(seed);
        (0..MOST_TRIES)
            .map(|_| self.kind.question(self.level, seeds.next_u64()))
            .find(|question| Split::of(question) == self.split)
    }
}

/// The seed of a place: the same in every run of an experiment, and of its own for each node, round and slot.
pub fn seed_of(experiment: &str, node: u64, round: u64, slot: u64) -> u64 {
    [node, round, slot]
        .into_iter()
        .fold(hash_bytes(experiment.as_bytes()), |seed, part| mix_bits(seed ^ mix_bits(part)))
}

pub(crate) fn mix_bits(number: u64) -> u64 {
    SplitMix64::new(number).next_u64()
}

/// FNV-1a of 64 bits: the same on every machine and in every version.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds::KINDS;

    #[test]
    fn every_level_has_questions_of_both_splits_and_they_share_none() {
        for kind in KINDS {
            for level in 1..=kind.levels {
                let texts = |split| -> BTreeSet<String> {
                    let draw = Draw { kind, level, split };
                    (0..60).map(|seed| draw.question(seed).expect(kind.name).text).collect()
                };
                let (training, held_out) = (texts(Split::Training), texts(Split::Evaluation));
                assert!(training.is_disjoint(&held_out), "{} {level}", kind.name);
                assert!(training.len() > 2 && held_out.len() > 1, "{} {level} has too few questions", kind.name);
            }
        }
    }

    #[test]
    fn places_have_seeds_of_their_own() {
        let mut seeds = BTreeSet::new();
        for experiment in ["a", "b"] {
            for place in 0..512 {
                seeds.insert(seed_of(experiment, place / 64, place / 8 % 8, place % 8));
            }
        }
        assert_eq!(seeds.len(), 1024);
        assert_eq!(seed_of("a", 1, 2, 3), seed_of("a", 1, 2, 3));
        // Neighbours in two places are no shifted copies of one another, as consecutive seeds of one generator would be.
        assert_ne!(seed_of("a", 0, 1, 0), seed_of("a", 1, 0, 0));
    }

    #[test]
    fn about_one_in_five_is_held_out() {
        let kind = &crate::kinds::find_kind("basic_arithmetic").unwrap();
        let held_out = (0..5000).filter(|seed| Split::of(&kind.question(4, *seed)) == Split::Evaluation).count();
        // Five standard deviations of a binomial.
        assert!(held_out.abs_diff(1000) < 145, "{held_out}");
    }
}
