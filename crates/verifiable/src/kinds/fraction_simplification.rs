//! Fractions to their lowest terms.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question};
use crate::reading::read_integer;

pub(super) const KIND: Kind = Kind {
    name: "fraction_simplification",
    about: "a fraction in its lowest terms, as 3/4",
    levels: 3,
    is_terse: false,
    make: make_fraction,
    check: is_simplified,
};

fn make_fraction(random: &mut SplitMix64, level: u32) -> Made {
    let (most, factors) = [(9, 8), (30, 29), (100, 99)][level as usize - 1];
    let (above, below) = (1 + random.below(most), 1 + random.below(most));
    let factor = 2 + random.below(factors);
    let common = common_divisor(above, below);
    let text = format!("Simplify the fraction {}/{} to its lowest terms.", above * factor, below * factor);
    Made::new(text, format!("{}/{}", above / common, below / common))
}

/// A whole number may stand without its denominator.
fn is_simplified(question: &Question, answer: &str) -> bool {
    let parts = |text: &str| {
        let (above, below) = text.split_once('/').unwrap_or((text, "1"));
        Some((read_integer(above.trim())?, read_integer(below.trim())?))
    };
    parts(answer).is_some_and(|found| Some(found) == parts(&question.answer))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
