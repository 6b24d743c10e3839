//! Fractions to their lowest terms.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};
use crate::reading::read_integer;

pub(super) const KIND: Kind = Kind {
    name: "fraction_simplification",
    about: "a fraction in its lowest terms, as 3/4",
    levels: 3,
    is_terse: false,
    make: make_fraction,
    adopt: adopt_answer,
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

fn is_simplified(question: &Question, answer: &str) -> bool {
    read_fraction(answer).is_some_and(|found| Some(found) == read_fraction(&question.answer))
}

/// Numerator and denominator of `3/4`, `$3/4$`, `$\frac{3}{4}$` and `\dfrac`; a whole number may stand without its denominator.
fn read_fraction(text: &str) -> Option<(i128, i128)> {
    let bare = text.strip_prefix('$').and_then(|text| text.strip_suffix('$')).unwrap_or(text).trim();
    let (above, below) = match bare.strip_prefix("\\dfrac").or_else(|| bare.strip_prefix("\\frac")) {
        Some(parts) => parts.strip_prefix('{')?.strip_suffix('}')?.split_once("}{")?,
        None => bare.split_once('/').unwrap_or((bare, "1")),
    };
    Some((read_integer(above.trim())?, read_integer(below.trim())?))
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_read_as_they_are_written() {
        for right in ["3/4", "3 / 4", "$3/4$", "\\frac{3}{4}", "$\\dfrac{3}{4}$"] {
            assert_eq!(read_fraction(right), Some((3, 4)), "{right}");
        }
        assert_eq!(read_fraction("5"), Some((5, 1)));
        for wrong in ["$3/4", "\\frac{3}", "\\frac{3}{4", "\\frac34", "3/4/5", "\\tfrac{3}{4}", ""] {
            assert_eq!(read_fraction(wrong), None, "{wrong}");
        }
    }
}
