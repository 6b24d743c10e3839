//! Letters before digits, each in the order in which they came.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

pub(super) const KIND: Kind = Kind {
    name: "partition",
    about: "letters first, then digits, each in their order",
    levels: 4,
    is_terse: true,
    make: make_partition,
    adopt: adopt_answer,
    check: is_same_text,
};

/// Three to six characters at level 1, two more a level.
fn make_partition(random: &mut SplitMix64, level: u32) -> Made {
    let count = 1 + 2 * u64::from(level) + random.below(4);
    let mut character = || {
        let (first, of) = if random.below(2) == 0 { (b'a', 6) } else { (b'0', 10) };
        char::from(first + random.below(of) as u8)
    };
    let given: String = (0..count).map(|_| character()).collect();
    let (letters, digits): (String, String) = given.chars().partition(char::is_ascii_lowercase);
    Made::new(format!("{given}="), letters + &digits)
}
