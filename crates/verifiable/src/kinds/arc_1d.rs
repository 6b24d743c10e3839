//! Rows of colours before and after a rule, which is to be found from three examples and applied to a fourth row.

mod rules;

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, Question, adopt_answer};
use rules::{RULES, Rule};

pub(super) const KIND: Kind = Kind {
    name: "arc_1d",
    about: "a row of colours after the rule that three examples show",
    levels: 3,
    is_terse: false,
    make: make_puzzle,
    adopt: adopt_answer,
    check: is_same_row,
};

const EXAMPLES: usize = 3;
/// Rows that a rule is offered before another rule is taken: some say nothing of it.
const MOST_TRIES: u32 = 200;

type Row = Vec<u8>;

/// Longer rows and more rules a level.
fn make_puzzle(random: &mut SplitMix64, level: u32) -> Made {
    let (shortest, longest, rules) = match level {
        1 => (8, 10, 4),
        2 => (10, 20, 8),
        _ => (10, 30, RULES.len()),
    };
    loop {
        let rule = &RULES[random.index_below(rules)];
        let size = shortest + random.index_below(longest - shortest + 1);
        if let Some(pairs) = find_pairs(random, rule, size) {
            return puzzle_of_pairs(&pairs);
        }
    }
}

/// Distinct rows that the rule changes, all under the same colours and shift.
fn find_pairs(random: &mut SplitMix64, rule: &Rule, size: usize) -> Option<Vec<(Row, Row)>> {
    let how = rules::How::draw_settings(random);
    let mut pairs: Vec<(Row, Row)> = Vec::new();
    for _ in 0..MOST_TRIES {
        if pairs.len() > EXAMPLES {
            break;
        }
        let before = (rule.row)(random, size, &how);
        let after = (rule.apply)(&before, &how);
        if before != after && pairs.iter().all(|(known, _)| *known != before) {
            pairs.push((before, after));
        }
    }
    (pairs.len() > EXAMPLES).then_some(pairs)
}

fn puzzle_of_pairs(pairs: &[(Row, Row)]) -> Made {
    let mut text = "A rule changes a row of colours. Find it, and apply it to the last row.\n".to_owned();
    for (before, after) in &pairs[..EXAMPLES] {
        text += &format!("input: {}\noutput: {}\n", write_row(before), write_row(after));
    }
    let (before, after) = &pairs[EXAMPLES];
    Made::new(format!("{text}input: {}\noutput:", write_row(before)), write_row(after))
}

fn write_row(row: &[u8]) -> String {
    row.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
}

/// How many blanks stand between is free.
fn is_same_row(question: &Question, answer: &str) -> bool {
    answer.split_whitespace().eq(question.answer.split(' '))
}
