//! Digits in order, upwards or downwards.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

pub(super) const ASCENDING: Kind = Kind {
    name: "sort_ascending",
    about: "digits from the smallest to the largest",
    levels: 4,
    is_terse: true,
    make: |random, level| make_sorting(random, level, false),
    adopt: adopt_answer,
    check: is_same_text,
};

pub(super) const DESCENDING: Kind = Kind {
    name: "sort_descending",
    about: "digits from the largest to the smallest",
    levels: 4,
    is_terse: true,
    make: |random, level| make_sorting(random, level, true),
    adopt: adopt_answer,
    check: is_same_text,
};

/// Two to four digits at level 1, two more a level.
fn make_sorting(random: &mut SplitMix64, level: u32, downwards: bool) -> Made {
    let count = 2 * u64::from(level) + random.below(3);
    let mut digits: Vec<char> = (0..count).map(|_| char::from(b'0' + random.below(10) as u8)).collect();
    let given: String = digits.iter().collect();
    digits.sort_unstable();
    if downwards {
        digits.reverse();
    }
    let sign = if downwards { '>' } else { '<' };
    Made::new(format!("{sign}{given}="), digits.into_iter().collect::<String>())
}
