//! Brackets that are open at the end of a text are to be closed.

use tonnage_core::random::SplitMix64;

use crate::kind::{Kind, Made, adopt_answer, is_same_text};

const PAIRS: [(char, char); 3] = [('(', ')'), ('[', ']'), ('{', '}')];

pub(super) const KIND: Kind = Kind {
    name: "close_brackets",
    about: "the brackets that close what is open, innermost first",
    levels: 4,
    is_terse: true,
    make: make_brackets,
    adopt: adopt_answer,
    check: is_same_text,
};

/// Three to five brackets at level 1, two more a level; one at least stays open.
fn make_brackets(random: &mut SplitMix64, level: u32) -> Made {
    let count = 1 + 2 * u64::from(level) + random.below(3);
    let (mut text, mut open) = (String::new(), Vec::new());
    for _ in 0..count {
        if open.len() > 1 && random.below(3) == 0 {
            text.extend(open.pop());
        } else {
            let (opening, closing) = PAIRS[random.index_below(PAIRS.len())];
            text.push(opening);
            open.push(closing);
        }
    }
    let answer: String = open.into_iter().rev().collect();
    Made::new(format!("{text}="), answer)
}
