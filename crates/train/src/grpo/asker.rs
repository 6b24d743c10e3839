//! Which questions are asked when, as tokens. Training and evaluation share none ([`tonnage_verifiable::Split`]).

use tonnage_core::job::AnswerIn;
use tonnage_verifiable::{AnswerForm, Draw, Kind, Question, Split, constant_guess, find_kind, seed_of};

use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use tonnage_core::job::{GrpoTraining, keys};
use tonnage_verifiable::KINDS;

/// Questions of each kind that the commonest answer is counted over.
const GUESSED: u64 = 500;

/// Draws questions by experiment, round and slot.
pub(super) struct Asker<'a> {
    pub tokenizer: &'a Tokenizer,
    kinds: Vec<&'static Kind>,
    level: u32,
    form: AnswerIn,
    experiment: String,
    prompt_len: u64,
}

/// A question as it is put.
#[derive(Debug)]
pub(super) struct Asked {
    pub kind: &'static Kind,
    pub question: Question,
    pub form: AnswerForm,
    pub tokens: Vec<u32>,
}

impl Asked {
    /// What a completion earns.
    pub fn reward(&self, completion: &str) -> f64 {
        self.kind.reward(&self.question, completion, self.form)
    }

    /// A completion that earns everything.
    pub fn right_completion(&self) -> String {
        self.form.completion(&self.question.answer)
    }
}

impl<'a> Asker<'a> {
    /// # Errors
    /// When no kind is named, or one that is not there, or one without that level.
    pub fn new(tokenizer: &'a Tokenizer, how: &GrpoTraining, prompt_len: u64, seed: u64) -> Result<Self, TrainError> {
        let names = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        if how.questions.is_empty() {
            let problem = format!("`{}` is not set: nothing is asked", keys::GRPO_QUESTIONS);
            return Err(TrainError::refused_with(problem, format!("name kinds of questions: {}", names())));
        }
        let level = u32::try_from(how.question_level).unwrap_or(u32::MAX);
        let kinds = how.questions.iter().map(|name| {
            let unknown = || {
                let problem = format!("`{}`: there is no kind of question `{name}`", keys::GRPO_QUESTIONS);
                TrainError::refused_with(problem, format!("there are {}", names()))
            };
            let kind = find_kind(name).ok_or_else(unknown)?;
            if level > kind.levels {
                let problem = format!("`{}` = {level}: {name} has {} levels", keys::GRPO_QUESTION_LEVEL, kind.levels);
                return Err(TrainError::refused_with(problem, format!("set it to {} or less", kind.levels)));
            }
            Ok(kind)
        });
        let kinds = kinds.collect::<Result<_, TrainError>>()?;
        Ok(Self { tokenizer, kinds, level, form: how.answer_form, experiment: format!("seed {seed}"), prompt_len })
    }

    /// The same with questions of its own: no two nodes ask the same in the same round.
    pub fn of_node(mut self, name: &str) -> Self {
        self.experiment = format!("{} {name}", self.experiment);
        self
    }

    /// The same with one of its kinds, in turn.
    pub fn only(mut self, index: u64) -> Self {
        let at = usize::try_from(index % self.kinds.len().max(1) as u64).unwrap_or(0);
        self.kinds = self.kinds.get(at).copied().into_iter().collect();
        self
    }

    /// Kinds that are asked.
    pub fn names(&self) -> String {
        self.kinds.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
    }

    /// A question that somebody else asked; `None` where it is longer than `prompt_len`.
    pub fn foreign(&self, kind: &'static Kind, question: &Question) -> Result<Option<Asked>, TrainError> {
        let form = self.form_of(kind);
        let tokens = self.tokenizer.encode(&format!("{}{}", form.instruction(), question.text), false)?;
        let fits = !tokens.is_empty() && tokens.len() as u64 <= self.prompt_len;
        Ok(fits.then(|| Asked { kind, question: question.clone(), form, tokens }))
    }

    /// The question of a slot of a round.
    ///
    /// # Errors
    /// When it is longer than `prompt_len`, or its text has no tokens.
    pub fn ask(&self, split: Split, round: u64, slot: u64) -> Result<Asked, TrainError> {
        let seed = seed_of(&self.experiment, 0, round, slot);
        let kind = self.kinds[usize::try_from(seed % self.kinds.len() as u64).unwrap_or(0)];
        let draw = Draw { kind, level: self.level, split };
        let question = draw.question(seed).ok_or_else(|| {
            let problem = format!("{} of level {} has too few questions to hold some out", kind.name, self.level);
            TrainError::refused_with(problem, format!("raise `{}`", keys::GRPO_QUESTION_LEVEL))
        })?;
        let form = self.form_of(kind);
        let tokens = self.tokenizer.encode(&format!("{}{}", form.instruction(), question.text), false)?;
        if tokens.len() as u64 > self.prompt_len {
            let problem = format!(
                "a question of {} has {} tokens, and `prompt_len` is {}: {:?}",
                kind.name,
                tokens.len(),
                self.prompt_len,
                question.text
            );
            return Err(TrainError::refused_with(problem, format!("set prompt_len to {} or more", tokens.len())));
        }
        Ok(Asked { kind, question, form, tokens })
    }

    const fn form_of(&self, kind: &Kind) -> AnswerForm {
        match (self.form, kind.is_terse) {
            (AnswerIn::Auto, true) | (AnswerIn::Whole, _) => AnswerForm::Whole,
            (AnswerIn::Auto, false) | (AnswerIn::Tag, _) => AnswerForm::Tag,
        }
    }

    /// What is asked, and what the best constant answer to it earns.
    pub fn about(&self) -> String {
        let said = self.kinds.iter().map(|kind| {
            let draw = Draw { kind, level: self.level, split: Split::Training };
            let guess = constant_guess(&draw, GUESSED).map_or(0.0, |guess| guess.share);
            format!("{} of level {} (a constant answer earns {guess:.3})", kind.name, self.level)
        });
        said.collect::<Vec<_>>().join(", ")
    }
}
