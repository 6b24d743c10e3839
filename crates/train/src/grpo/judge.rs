//! A second model that pays. Two parts, as the guide's trainer has them: what is asked of it (the evaluator) and how its words become a
//! reward (the parser). Its client is this process: it lies beside the policy, or on the CPU.

use std::rc::Rc;

use tonnage_core::job::{GrpoSpec, JobSpec, JudgePlace, JudgeSpec, JudgeWeights, Precision, RewardBy, Task};
use tonnage_torch::{Device, Torch};
use tonnage_verifiable::AnswerForm;

use super::generate::Generation;
use super::policy::Policy;
use super::program::positions_of;
use super::rollout::{Row, Sampler};
use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use crate::language_model::{LanguageModel, Weights};
use crate::program::ends_of;
use crate::store::pretrained::Pretrained;
use std::path::Path;

/// The highest score that a judge is asked for.
const MOST_SCORE: u32 = 10;

/// A judge, loaded.
pub(super) struct Judge {
    model: LanguageModel,
    tokenizer: Tokenizer,
    how: Generation,
    ends: Vec<u32>,
    /// Completions that it reads at once; all where it does not say.
    rows: Option<u64>,
    /// Tokens of its input, at most.
    most_tokens: u64,
    evaluator: Evaluator,
}

/// What is asked of a judge, and how its words become a reward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evaluator {
    /// It gives a score from 0 to 10.
    Score,
    /// It answers what the completion asks of it, and the kind's checker looks at its answer.
    Answer,
}

impl Evaluator {
    const fn of(reward: RewardBy) -> Option<Self> {
        match reward {
            RewardBy::Verifier => None,
            RewardBy::JudgeScore => Some(Self::Score),
            RewardBy::JudgeAnswer => Some(Self::Answer),
        }
    }

    fn input(self, row: &Row) -> String {
        match self {
            Self::Score => format!(
                "Question: {}\nAnswer: {}\nHow good is the answer, from 0 to {MOST_SCORE}? Say the number alone.\nScore:",
                row.asked.question.text, row.text
            ),
            Self::Answer => format!("{}{}\n{}", AnswerForm::Tag.instruction(), row.text, row.asked.question.text),
        }
    }

    fn reward(self, row: &Row, words: &str) -> f64 {
        match self {
            Self::Score => score(words).map_or(0.0, |score| f64::from(score) / f64::from(MOST_SCORE)),
            Self::Answer => row.asked.kind.reward(&row.asked.question, words, AnswerForm::Tag),
        }
    }
}

/// The first whole number in a judge's words, where it is a score: what is beyond, negative or no number is none.
fn score(words: &str) -> Option<u32> {
    let start = words.find(|c: char| c.is_ascii_digit())?;
    if words[..start].ends_with('-') {
        return None;
    }
    let digits: String = words[start..].chars().take_while(char::is_ascii_digit).take(4).collect();
    let rest = &words[start + digits.len()..];
    let is_whole = !rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    digits.parse().ok().filter(|score| is_whole && *score <= MOST_SCORE)
}

impl Judge {
    /// Loads the judge of a job from its folder; `None` where no judge pays.
    ///
    /// # Errors
    /// When its weights or tokenizer are not there, or it is none that runs here.
    pub fn load(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        (grpo, reward): (&GrpoSpec, RewardBy),
        folder: Option<&Path>,
    ) -> Result<Option<Self>, TrainError> {
        let Some((spec, evaluator)) = grpo.judge.as_ref().zip(Evaluator::of(reward)) else { return Ok(None) };
        let own = judges_job(job, spec);
        LanguageModel::check_job(&own)?;
        let most_tokens = spec.extra_prompt_tokens + grpo.prompt_len + grpo.completion_len;
        let wanted = most_tokens + spec.new_tokens;
        if let Some(positions) = positions_of(&own).filter(|positions| *positions < wanted) {
            let problem = format!("the judge reads and writes {wanted} tokens, and it has {positions} positions");
            return Err(TrainError::refused_with(problem, "lower judge.extra_prompt_tokens or judge.new_tokens"));
        }
        let lacks = |what: &str| {
            let problem = format!("the judge {} has no {what} on this machine", spec.model.name);
            TrainError::refused_with(
                problem,
                "name the folder of a model as judge.model, or fetch it with `hf download`",
            )
        };
        let folder = folder.ok_or_else(|| lacks("folder"))?;
        let mut weights = Pretrained::open(folder)?.ok_or_else(|| lacks("weights"))?;
        let tokenizer = Tokenizer::beside(folder)?.ok_or_else(|| lacks("tokenizer"))?;
        let device = if spec.place == JudgePlace::Cpu { Device::Cpu } else { device };
        let mut named = |name: &str| weights.tensor(torch, name);
        let model = LanguageModel::build_model(torch, device, &own, Weights::Named(&mut named))?;
        model.train(false);
        let ends = ends_of(&own);
        let how = Generation {
            max_new_tokens: spec.new_tokens.max(1),
            samples: false,
            pad: ends.first().copied().unwrap_or(0),
            begins: spec.model.has_begin_token(),
            // The guide's evaluator has no end token: it writes on, and what comes after an end is cut off here.
            ends: Vec::new(),
            padded: true,
            to_full_length: false,
        };
        Ok(Some(Self { model, tokenizer, how, ends, rows: spec.rows, most_tokens, evaluator }))
    }

    /// Asks it of every completion. One without an end earns nothing and is not asked about.
    ///
    /// # Errors
    /// PyTorch's, and an input that is longer than the estimate knows of.
    pub fn pay(&self, rows: &mut [Row]) -> Result<(), TrainError> {
        let Some(policy) = Policy::new(&self.model, None, false) else { return Ok(()) };
        let sampler = self.sampler(&policy, true);
        for rows in rows.chunks_mut(self.rows_at_once(rows.len())) {
            let inputs: Result<Vec<_>, TrainError> = rows.iter().map(|row| self.input(row)).collect();
            let words = sampler.complete(&inputs?)?;
            for (row, said) in rows.iter_mut().zip(words) {
                row.reward = if row.is_truncated { 0.0 } else { self.evaluator.reward(row, &said.text) };
            }
        }
        Ok(())
    }

    /// The same over a phantom: inputs of the longest length, whose answers mean nothing.
    ///
    /// # Errors
    /// PyTorch's.
    pub fn rehearse(&self, rows: &[Row]) -> Result<(), TrainError> {
        let Some(policy) = Policy::new(&self.model, None, false) else { return Ok(()) };
        let sampler = self.sampler(&policy, false);
        for rows in rows.chunks(self.rows_at_once(rows.len())) {
            let inputs: Vec<_> = rows.iter().map(|row| Rc::clone(&row.asked)).collect();
            sampler.complete(&inputs)?;
        }
        Ok(())
    }

    fn sampler<'a>(&'a self, policy: &'a Policy<'a>, reads_values: bool) -> Sampler<'a> {
        Sampler {
            policy,
            tokenizer: &self.tokenizer,
            how: Generation { to_full_length: !reads_values, ..self.how.clone() },
            ends: &self.ends,
            reads_values,
            prompt_len: (!reads_values).then_some(self.most_tokens),
        }
    }

    fn rows_at_once(&self, all: usize) -> usize {
        self.rows.map_or(all, |rows| usize::try_from(rows).unwrap_or(usize::MAX)).max(1)
    }

    fn input(&self, row: &Row) -> Result<Rc<super::asker::Asked>, TrainError> {
        let tokens = self.tokenizer.encode(&self.evaluator.input(row), true)?;
        if tokens.len() as u64 > self.most_tokens {
            let problem =
                format!("the judge's input has {} tokens, and the estimate allows {}", tokens.len(), self.most_tokens);
            let wanted = tokens.len() as u64 - self.most_tokens;
            return Err(TrainError::refused_with(
                problem,
                format!("raise judge.extra_prompt_tokens by {wanted} or more"),
            ));
        }
        let asked = &row.asked;
        Ok(Rc::new(super::asker::Asked {
            kind: asked.kind,
            question: asked.question.clone(),
            form: asked.form,
            tokens,
        }))
    }
}

/// The job of a model that only answers.
fn judges_job(job: &JobSpec, judge: &JudgeSpec) -> JobSpec {
    let precision = if judge.weights == JudgeWeights::Fp32 { Precision::Fp32 } else { Precision::Bf16 };
    JobSpec { model: judge.model.clone(), precision, lora: None, task: Task::CausalLm, ..job.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_score_is_one() {
        for (words, wanted) in [("7", 7), (" 10/10", 10), ("Score: 3.", 3), ("0\n", 0), ("a 4 or 5", 4)] {
            assert_eq!(score(words), Some(wanted), "{words}");
        }
        for words in ["", "good", "11", "-3", "7.5", "100", "99999999999"] {
            assert_eq!(score(words), None, "{words}");
        }
    }
}
