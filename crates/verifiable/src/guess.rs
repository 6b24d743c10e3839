//! What a kind pays who only knows its commonest answer: a reward above it is skill, one at it is none.

use std::collections::BTreeMap;

use crate::draw::Draw;

/// The best answer that does not depend on the question.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// As the generator writes it.
    pub answer: String,
    /// The share of questions that it is right for, 0 to 1.
    pub share: f64,
}

/// The commonest answer of `questions` questions; `None` where there are none.
pub fn constant_guess(draw: &Draw<'_>, questions: u64) -> Option<Guess> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for seed in 0..questions {
        *counts.entry(draw.question(seed)?.answer).or_default() += 1;
    }
    let (answer, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(Guess { answer, share: count as f64 / questions as f64 })
}
