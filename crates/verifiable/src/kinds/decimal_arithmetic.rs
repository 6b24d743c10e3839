//! Sums and products of decimal numbers, computed without rounding.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};
use crate::reading::{read_decimal, write_decimal};

pub(super) const KIND: Kind = Kind {
    name: "decimal_arithmetic",
    about: "decimal numbers with + - *, to the last digit",
    levels: 4,
    is_terse: false,
    make: make_decimals,
    adopt: adopt_answer,
    check: |question: &Question, answer| {
        read_decimal(answer).is_some_and(|number| Some(number) == read_decimal(&question.answer))
    },
};

/// A number of so many places behind the point, with its text.
struct Term {
    text: String,
    number: i128,
    places: u32,
}

fn make_decimals(random: &mut SplitMix64, level: u32) -> Made {
    let (terms, places) = match level {
        1 => (2, 1),
        2 => (2, 2),
        3 => (2 + random.below(2), 3),
        _ => (2 + random.below(5), 3),
    };
    let mut sum = draw_term(random, places);
    for _ in 1..terms {
        let next = draw_term(random, places);
        sum = join_terms(random, &sum, &next, level);
    }
    let answer = write_decimal(sum.number, sum.places);
    Made::new(format!("Calculate {} exactly, without rounding.", sum.text), answer)
}

fn draw_term(random: &mut SplitMix64, places: u32) -> Term {
    let places = 1 + random.below(u64::from(places)) as u32;
    let number = i128::from(1 + random.below(10_u64.pow(places + 1) - 1));
    Term { text: write_decimal(number, places), number, places }
}

fn join_terms(random: &mut SplitMix64, a: &Term, b: &Term, level: u32) -> Term {
    let signs = if level < 3 { 2 } else { 3 };
    let places = a.places.max(b.places);
    let widened = |term: &Term| term.number * 10_i128.pow(places - term.places);
    let (sign, number, places) = match random.below(signs) {
        0 => ('+', widened(a) + widened(b), places),
        1 => ('-', widened(a) - widened(b), places),
        _ => ('*', a.number * b.number, a.places + b.places),
    };
    let left = if a.text.contains(' ') { format!("({})", a.text) } else { a.text.clone() };
    Term { text: format!("{left} {sign} {}", b.text), number, places }
}
