//! Beam search as transformers' `generate(num_beams=N)` has it, with a length penalty of 1 and without early stopping: texts that end
//! are kept by their score over their length, until none that goes on can be better.

use super::choose::log_softmax;
use super::generator::{Decoder, Generated, Generator, Stop, no_number, on_host};
use crate::error::TrainError;

/// A text that goes on.
#[derive(Clone, Debug)]
struct Beam {
    tokens: Vec<u32>,
    /// Sum of logarithms.
    score: f64,
    /// The row of the cache that it continues.
    row: usize,
}

/// The best texts that have ended, best first.
#[derive(Debug, Default)]
struct Ended(Vec<Generated>);

impl Ended {
    fn add(&mut self, beam: &Beam, stop: Stop, most: usize) {
        let length = beam.tokens.len().max(1) as f64;
        self.0.push(Generated { tokens: beam.tokens.clone(), score: beam.score / length, stop });
        self.0.sort_by(|a, b| b.score.total_cmp(&a.score));
        self.0.truncate(most);
    }

    /// Whether nothing with this sum, as long as it would be, can come in.
    fn beats(&self, score: f64, length: usize, most: usize) -> bool {
        self.0.len() >= most && self.0.last().is_some_and(|worst| worst.score >= score / length.max(1) as f64)
    }
}

impl<D: Decoder> Generator<'_, D> {
    pub(super) fn beam_search(&self, prompt: &[u32], (room, at_end): (u64, Stop)) -> Result<Generated, TrainError> {
        let width = usize::try_from(self.how.num_beams).unwrap_or(usize::MAX);
        let mut cache = self.decoder.new_cache();
        let mut ids = self.row(prompt)?;
        let mut beams = vec![Beam { tokens: Vec::new(), score: 0.0, row: 0 }];
        let mut ended = Ended::default();
        for _ in 0..room {
            let logits = on_host(&self.decoder.next(&ids, &mut cache)?)?;
            let best = best_of(&beams, &logits, width * 2)?;
            beams.clear();
            for (place, beam) in best.into_iter().enumerate() {
                let is_end = beam.tokens.last().is_some_and(|token| self.ends.contains(token));
                if !is_end {
                    beams.push(beam);
                } else if place < width {
                    // One that ends beyond the first `num_beams` would not have been followed.
                    ended.add(&beam, Stop::EndOfText, width);
                }
                if beams.len() == width {
                    break;
                }
            }
            let Some(best) = beams.first() else { break };
            if ended.beats(best.score, best.tokens.len(), width) {
                break;
            }
            let rows: Vec<i64> = beams.iter().map(|beam| beam.row as i64).collect();
            self.decoder.select_rows(&mut cache, &self.decoder.numbers(&rows, &[rows.len() as i64])?)?;
            let last: Vec<i64> = beams.iter().filter_map(|beam| beam.tokens.last().copied()).map(i64::from).collect();
            ids = self.decoder.numbers(&last, &[last.len() as i64, 1])?;
        }
        if beams.first().is_some_and(|beam| beam.tokens.len() as u64 == room) {
            beams.iter().for_each(|beam| ended.add(beam, at_end, width));
        }
        ended.0.into_iter().next().ok_or_else(no_number)
    }
}

/// The `most` likeliest continuations of all beams, best first.
fn best_of(beams: &[Beam], logits: &[f32], most: usize) -> Result<Vec<Beam>, TrainError> {
    let vocabulary = logits.len() / beams.len().max(1);
    let mut all: Vec<(f64, usize, u32)> = Vec::new();
    for (row, beam) in beams.iter().enumerate() {
        let shares = log_softmax(&logits[row * vocabulary..(row + 1) * vocabulary]);
        let known = (0_u32..).zip(shares).filter(|(_, share)| share.is_finite());
        all.extend(known.map(|(token, share)| (beam.score + share, row, token)));
    }
    if all.is_empty() {
        return Err(no_number());
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    all.truncate(most);
    Ok(all
        .into_iter()
        .map(|(score, row, token)| {
            let mut tokens = beams[row].tokens.clone();
            tokens.push(token);
            Beam { tokens, score, row }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_continuations_of_all_beams_go_on() {
        let beams = [Beam { tokens: vec![7], score: -1.0, row: 0 }, Beam { tokens: vec![8], score: -1.2, row: 1 }];
        // Beam 0 is undecided, beam 1 sure of token 1.
        let best = best_of(&beams, &[0.0, 0.0, 0.0, 0.0, 100.0, 0.0], 2).unwrap();
        assert_eq!(best[0].tokens, [8, 1]);
        assert!((best[0].score + 1.2).abs() < 1e-9);
        assert_eq!((best[1].tokens.as_slice(), best[1].row), ([7, 0].as_slice(), 0));
        assert!(best_of(&beams, &[f32::NAN; 6], 2).is_err());
    }

    #[test]
    fn ended_texts_are_ranked_by_their_mean() {
        let beam = |length: usize, score| Beam { tokens: vec![1; length], score, row: 0 };
        let mut ended = Ended::default();
        ended.add(&beam(2, -2.0), Stop::EndOfText, 2);
        ended.add(&beam(4, -2.0), Stop::EndOfText, 2);
        ended.add(&beam(1, -9.0), Stop::EndOfText, 2);
        assert_eq!(ended.0.iter().map(|one| one.tokens.len()).collect::<Vec<_>>(), [4, 2]);
        assert!(ended.beats(-10.0, 5, 2) && !ended.beats(-1.0, 5, 2));
    }
}
