//! Numbers from one base to another, 2 to 16.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

pub(super) const KIND: Kind = Kind {
    name: "base_conversion",
    about: "a number in another base, lowercase digits",
    levels: 4,
    is_terse: false,
    make: make_conversion,
    adopt: adopt_answer,
    check: is_same_text,
};

fn make_conversion(random: &mut SplitMix64, level: u32) -> Made {
    let (most, bases): (u64, Vec<u64>) = match level {
        1 => (31, vec![2, 10]),
        2 => (255, vec![2, 10, 16]),
        3 => (255, (2..=16).collect()),
        _ => (1000, (2..=16).collect()),
    };
    let value = random.below(most + 1);
    let from = random.index_below(bases.len());
    // Another one, as likely as any.
    let to = (from + 1 + random.index_below(bases.len() - 1)) % bases.len();
    let (from, to) = (bases[from], bases[to]);
    let text = format!(
        "Convert the {} number {} to {}. Use lowercase letters for digits above 9, and no prefix.",
        base_name(from),
        digits_in_base(value, from),
        base_name(to)
    );
    Made::new(text, digits_in_base(value, to))
}

fn base_name(base: u64) -> String {
    match base {
        2 => "binary".to_owned(),
        16 => "hexadecimal".to_owned(),
        10 => "decimal".to_owned(),
        base => format!("base-{base}"),
    }
}

fn digits_in_base(mut value: u64, base: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit((value % base) as u32, base as u32));
        value /= base;
        if value == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}
