//! Held-out puzzles through all segments, each in all views that are asked for, and votes over their answers. Ranks take puzzles in turn.

use serde::{Deserialize, Serialize};
use tonnage_torch::{Argument, Device, ScalarType, Tensor, Torch, operator};
use tonnage_verifiable::puzzles::{Grid, PuzzleSet, View, Votes};

use super::feeder::{Rows, own_views};
use super::model::{ReasoningModel, Segment};
use super::report::PuzzleResult;
use crate::error::TrainError;
use crate::ranks::Ranks;

/// How puzzles are looked at.
pub(super) struct Evaluation<'a> {
    pub torch: &'static Torch,
    pub device: Device,
    pub model: &'a ReasoningModel,
    pub set: &'a PuzzleSet,
    /// Rows at once.
    pub rows: usize,
    /// Views of a puzzle that are answered.
    pub views: u64,
    /// Views of a puzzle that were trained, by which its row of the table is found.
    pub trained_views: u64,
    /// Which processes take part.
    pub ranks: &'a dyn Ranks,
}

/// What came out.
pub(super) struct Evaluated {
    pub results: Vec<PuzzleResult>,
    pub loss: f64,
    pub q_halt_accuracy: f64,
}

/// A row to be answered.
struct Asked {
    example: usize,
    number: u64,
    view: View,
    /// Tokens of the right answer.
    labels: Vec<u8>,
}

/// What the model answers to a row.
struct Answer {
    tokens: Vec<u8>,
    confidence: f64,
}

/// What a rank tells the others of a puzzle.
#[derive(Serialize, Deserialize)]
struct Answered {
    at: usize,
    right_views: u64,
    rank: Option<u64>,
    /// The bits of a float, which as text could lose one.
    token_accuracy: u64,
    is_exact: bool,
}

impl Answered {
    fn of(at: usize, result: &PuzzleResult) -> Self {
        let PuzzleResult { right_views, rank, token_accuracy, is_exact, .. } = *result;
        Self { at, right_views, rank, token_accuracy: token_accuracy.to_bits(), is_exact }
    }

    fn fill(self, result: &mut PuzzleResult) {
        result.right_views = self.right_views;
        result.rank = self.rank;
        result.token_accuracy = f64::from_bits(self.token_accuracy);
        result.is_exact = self.is_exact;
    }
}

/// Sums over all rows.
#[derive(Default)]
struct Sums {
    rows: f64,
    loss: f64,
    q_halt: f64,
}

impl Evaluation<'_> {
    /// Answers all; the model must be in evaluation mode.
    pub fn run(&self) -> Result<Evaluated, TrainError> {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let own = (place(self.ranks.rank())..self.set.eval.len()).step_by(place(self.ranks.count()));
        let asked: Vec<Asked> = own
            .clone()
            .flat_map(|example| (0..self.views).map(move |view| (example, view)))
            .map(|(e, v)| self.ask(e, v))
            .collect();
        let mut sums = Sums::default();
        let mut votes: Vec<Votes> = vec![Votes::default(); self.set.eval.len()];
        let mut results: Vec<PuzzleResult> =
            self.set.eval.iter().map(|example| self.unanswered(&example.name, &example.difficulty)).collect();
        for rows in asked.chunks(self.rows.max(1)) {
            for (one, answer) in rows.iter().zip(self.answer(rows, &mut sums)?) {
                let result = &mut results[one.example];
                if one.number == 0 {
                    result.token_accuracy = share_right(&answer.tokens, &one.labels);
                    result.is_exact = result.token_accuracy == 1.0;
                }
                let Some(grid) = self.set.encoding.decode(&answer.tokens) else { continue };
                let grid: Grid = one.view.undo(&grid);
                result.right_views += u64::from(grid == self.set.eval[one.example].output);
                votes[one.example].add(grid, answer.confidence);
            }
        }
        for ((result, votes), example) in results.iter_mut().zip(&votes).zip(&self.set.eval) {
            result.rank = votes.rank_of(&example.output);
        }
        self.gather_answered(&mut results, own)?;
        let sums = self.ranks.sum(&[sums.rows, sums.loss, sums.q_halt])?;
        let rows = sums[0].max(1.0);
        Ok(Evaluated { results, loss: sums[1] / rows, q_halt_accuracy: sums[2] / rows })
    }

    /// Fills in what other ranks have found.
    fn gather_answered(
        &self,
        results: &mut [PuzzleResult],
        own: impl Iterator<Item = usize>,
    ) -> Result<(), TrainError> {
        if self.ranks.count() == 1 {
            return Ok(());
        }
        let answered = own.filter_map(|at| results.get(at).map(|result| Answered::of(at, result)));
        let none_of_ours = |error: serde_json::Error| TrainError::Ranks(format!("what a rank answered: {error}"));
        let said = serde_json::to_vec(&answered.collect::<Vec<_>>()).map_err(none_of_ours)?;
        for said in self.ranks.gather(&said)? {
            for one in serde_json::from_slice::<Vec<Answered>>(&said).map_err(none_of_ours)? {
                if let Some(result) = results.get_mut(one.at) {
                    one.fill(result);
                }
            }
        }
        Ok(())
    }

    fn unanswered(&self, name: &str, difficulty: &str) -> PuzzleResult {
        PuzzleResult {
            name: name.to_owned(),
            difficulty: difficulty.to_owned(),
            views: self.views,
            right_views: 0,
            rank: None,
            token_accuracy: 0.0,
            is_exact: false,
        }
    }

    fn ask(&self, example: usize, number: u64) -> Asked {
        let puzzle = &self.set.eval[example];
        let own = own_views(self.set, puzzle, example);
        // Of tasks, views that were trained: others have no row of the table.
        let number = if self.set.tasks > 0 { number % self.trained_views.max(1) } else { number };
        let view = self.set.view(own, number);
        let labels = self.set.encoding.encode(&view.apply(&puzzle.output), (0, 0));
        Asked { example, number, view, labels }
    }

    fn answer(&self, asked: &[Asked], sums: &mut Sums) -> Result<Vec<Answer>, TrainError> {
        let mut rows = Rows::default();
        for one in asked {
            let puzzle = &self.set.eval[one.example];
            let input = self.set.encoding.encode(&one.view.apply(&puzzle.input), (0, 0));
            rows.push(&input, &one.labels, self.set.identifier(puzzle.task, one.number, self.trained_views));
        }
        let _no_grad = self.torch.no_grad();
        let puzzles = rows.to_device(self.torch, self.device)?;
        let mut thoughts = self.model.initial_carry(&puzzles)?;
        let segment = loop {
            let (next, segment) = self.model.forward(&thoughts, &puzzles, true)?;
            thoughts = next;
            if segment.all_halted.to_device(Device::Cpu)?.to_vec::<bool>()?.first() != Some(&false) {
                break segment;
            }
        };
        self.add(&segment, asked.len(), sums)?;
        self.read(&segment)
    }

    fn add(&self, segment: &Segment, rows: usize, sums: &mut Sums) -> Result<(), TrainError> {
        let value = |at: usize| -> Result<f64, TrainError> {
            let Some(metric) = segment.metrics.get(at) else { return Ok(0.0) };
            Ok(numbers(self.torch, metric)?.first().copied().unwrap_or(f64::NAN))
        };
        sums.rows += rows as f64;
        sums.q_halt += value(3)?;
        sums.loss += value(5)?;
        Ok(())
    }

    fn read(&self, segment: &Segment) -> Result<Vec<Answer>, TrainError> {
        let (Some(logits), Some(q_halt_logits)) = (&segment.logits, &segment.q_halt_logits) else {
            return Ok(Vec::new());
        };
        let likeliest = self.torch.call(operator!("argmax"), &[logits.into(), Argument::Int(-1)])?.tensor()?;
        let tokens: Vec<i64> = likeliest.to_device(Device::Cpu)?.to_vec()?;
        let confidence = numbers(self.torch, q_halt_logits)?;
        let width = self.set.encoding.tokens();
        let answers = tokens.chunks(width).zip(confidence).map(|(tokens, logit)| Answer {
            tokens: tokens.iter().map(|token| u8::try_from(*token).unwrap_or(u8::MAX)).collect(),
            confidence: 1.0 / (1.0 + (-logit).exp()),
        });
        Ok(answers.collect())
    }
}

/// Of the cells that have an answer, the share that is right.
fn share_right(tokens: &[u8], labels: &[u8]) -> f64 {
    let wanted = labels.iter().filter(|label| **label != 0).count();
    let right = tokens.iter().zip(labels).filter(|(token, label)| **label != 0 && token == label).count();
    right as f64 / wanted.max(1) as f64
}

fn numbers(torch: &'static Torch, tensor: &Tensor) -> Result<Vec<f64>, TrainError> {
    let here = tensor.to_device(Device::Cpu)?;
    let exact = torch.call(operator!("to", "dtype"), &[(&here).into(), ScalarType::Float64.into()])?.tensor()?;
    Ok(exact.to_vec()?)
}
