//! Votes over answers to several views of a puzzle, as ARC's evaluators count them.

use std::collections::BTreeMap;

use super::grid::Grid;

/// The distinct answers to one question.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    answers: BTreeMap<Grid, (u32, f64)>,
}

impl Votes {
    /// One more answer, and how sure the model was of it, from 0 to 1.
    pub fn add(&mut self, answer: Grid, confidence: f64) {
        let (count, sum) = self.answers.entry(answer).or_default();
        *count += 1;
        *sum += confidence;
    }

    /// The place of an answer, from 1: those with more votes come first, then those that the model was surer of.
    pub fn rank_of(&self, right: &Grid) -> Option<u64> {
        let score = |(count, sum): &(u32, f64)| (*count, sum / f64::from((*count).max(1)));
        let own = score(self.answers.get(right)?);
        let is_before = |(answer, counted): (&Grid, &(u32, f64))| {
            let other = score(counted);
            answer != right && (other.0 > own.0 || (other.0 == own.0 && other.1 >= own.1))
        };
        Some(1 + self.answers.iter().filter(|one| is_before((one.0, one.1))).count() as u64)
    }
}

/// The share of questions whose right answer is among the first `k` by votes. These are distinct answers that were voted on, no
/// independent samples.
pub fn pass_at(k: u64, ranks: &[Option<u64>]) -> f64 {
    let within = ranks.iter().filter(|rank| rank.is_some_and(|rank| rank <= k)).count();
    within as f64 / ranks.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_votes_win_then_confidence() {
        let grid = |symbol| Grid::new(1, 1, vec![symbol]).unwrap();
        let mut votes = Votes::default();
        for (symbol, confidence) in [(1, 0.9), (2, 0.1), (2, 0.2), (3, 0.3), (4, 0.3)] {
            votes.add(grid(symbol), confidence);
        }
        let ranks: Vec<Option<u64>> = (1..=5).map(|symbol| votes.rank_of(&grid(symbol))).collect();
        // Equal answers share the worse place: nobody is lucky.
        assert_eq!(ranks, [Some(2), Some(1), Some(4), Some(4), None]);
        assert_eq!((pass_at(1, &ranks), pass_at(2, &ranks), pass_at(10, &ranks)), (0.2, 0.4, 0.8));
    }
}
