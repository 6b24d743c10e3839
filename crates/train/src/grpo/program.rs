//! A training by GRPO from its job: tokenizer, questions and models are found, and the loop runs.

use std::path::Path;

use tonnage_core::job::JobSpec;
use tonnage_torch::{Device, Torch};

use super::asker::Asker;
use super::judge::Judge;
use super::settings::GrpoSettings;
use super::trainer::{Parts, Trainer};
use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::program::Program;
use crate::training::{Event, Outcome};

/// Rounds of questions that are looked at before anything is loaded: one too long is said at once.
const LOOKED_AT: u64 = 64;

/// A training by GRPO that can begin.
pub struct GrpoReady<'a> {
    program: &'a Program<'a>,
    settings: GrpoSettings,
    tokenizer: Tokenizer,
    ends: Vec<u32>,
}

impl<'a> GrpoReady<'a> {
    /// Looks at all that needs no PyTorch.
    ///
    /// # Errors
    /// When the job is none that is trained here, a kind of question is not known, or a question is longer than `prompt_len`.
    pub fn new(program: &'a Program<'a>) -> Result<Self, TrainError> {
        let settings = GrpoSettings::of(program.job, program.training)?;
        LanguageModel::check_job(program.job)?;
        let tokenizer = program.checked_tokenizer()?;
        let Some(end) = program.end_of_text(&tokenizer)? else {
            let problem = "no token ends a completion, so none would ever be whole".to_owned();
            return Err(TrainError::refused_with(
                problem,
                "set data.end_of_text, for bytes for example to \"10\", a new line",
            ));
        };
        let ready = Self { program, settings, tokenizer, ends: vec![end] };
        let asker = ready.asker()?;
        for round in 0..LOOKED_AT {
            asker.ask(tonnage_verifiable::Split::Training, round, 0)?;
            asker.ask(tonnage_verifiable::Split::Evaluation, 0, round)?;
        }
        drop(asker);
        ready.check_positions()?;
        Ok(ready)
    }

    fn asker(&self) -> Result<Asker<'_>, TrainError> {
        let seed = self.settings.plain.training.seed;
        Asker::new(&self.tokenizer, &self.settings.how, self.settings.spec.prompt_len, seed)
    }

    fn check_positions(&self) -> Result<(), TrainError> {
        let wanted = self.settings.spec.prompt_len + self.settings.spec.completion_len;
        match positions_of(self.program.job).filter(|positions| *positions < wanted) {
            None => Ok(()),
            Some(positions) => Err(TrainError::refused_with(
                format!("prompt_len and completion_len are {wanted} tokens, and the model has {positions} positions"),
                "lower them, or give the model more positions",
            )),
        }
    }

    /// A line on what it learns from.
    ///
    /// # Errors
    /// Never after [`GrpoReady::new`].
    pub fn about_data(&self) -> Result<String, TrainError> {
        let settings = &self.settings;
        Ok(format!(
            "questions: {}; {} steps, {} completions at once in groups of {} ({})",
            self.asker()?.about(),
            settings.steps,
            settings.generation_rows(),
            settings.spec.num_generations,
            self.tokenizer.name()
        ))
    }

    /// Builds the models and trains.
    ///
    /// # Errors
    /// Those of loading, training and saving; whatever was saved is whole.
    pub fn train(
        &self,
        torch: &'static Torch,
        device: Device,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let program = self.program;
        let checkpoint = program.find_checkpoint()?;
        torch.seed(program.training.seed)?;
        let model = program.build_model(torch, device, checkpoint.as_deref())?;
        let judge = Judge::load(
            torch,
            device,
            program.job,
            (&self.settings.spec, self.settings.how.reward),
            program.judge_folder.as_deref(),
        )?;
        let needs_reference = self.settings.spec.beta != 0.0 && program.job.lora.is_none();
        let reference = needs_reference.then(|| self.reference(torch, device)).transpose()?;
        torch.seed(program.training.seed)?;
        let asker = self.asker()?;
        let write_model = |folder: &Path| {
            self.tokenizer.save(folder)?;
            program.write_model(folder, &model)
        };
        let mut trainer = Trainer::new(Parts {
            torch,
            device,
            model: &model,
            reference: reference.as_ref(),
            judge,
            settings: &self.settings,
            asker: &asker,
            tokenizer: &self.tokenizer,
            ends: self.ends.clone(),
            output: program.output.as_deref(),
            write_model: &write_model,
        })?;
        if let Some(folder) = checkpoint {
            trainer.resume(&folder, observe)?;
        }
        trainer.run(stops, observe)
    }

    /// The policy's twin as it was before any step.
    fn reference(&self, torch: &'static Torch, device: Device) -> Result<LanguageModel, TrainError> {
        torch.seed(self.program.training.seed)?;
        let reference = self.program.build_model(torch, device, None)?;
        reference.train(false);
        Ok(reference)
    }
}

/// Tokens that a text may have.
pub(super) fn positions_of(job: &JobSpec) -> Option<u64> {
    let number = |name: &str| job.model.config.get(name)?.as_u64();
    number("max_position_embeddings").or_else(|| number("n_positions"))
}
