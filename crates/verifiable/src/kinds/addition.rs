//! Sums as a model from nothing can read them: `37+58=`.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

pub(super) const KIND: Kind = Kind {
    name: "addition",
    about: "the sum of two numbers of as many digits as the level, at most",
    levels: 4,
    is_terse: true,
    make: make_addition,
    adopt: adopt_answer,
    check: is_same_text,
};

fn make_addition(random: &mut SplitMix64, level: u32) -> Made {
    let bound = 10_u64.pow(level);
    let (left, right) = (random.below(bound), random.below(bound));
    Made::new(format!("{left}+{right}="), (left + right).to_string())
}
