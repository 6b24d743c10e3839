//! A node of a swarm from its job: tokenizer, questions and model are found, the experiment is joined, and the loop runs.

use std::fs;
use std::path::Path;

use tonnage_core::job::JobSpec;
use tonnage_torch::{Device, Torch};
use tonnage_verifiable::Split;

use super::super::asker::Asker;
use super::super::program::positions_of;
use super::exchange::{Exchange, claim_name};
use super::folder::{SwarmFolder, node_name};
use super::node::{Node, Parts};
use super::settings::SwarmSettings;
use crate::data::tokenizer::Tokenizer;
use crate::error::TrainError;
use crate::language_model::LanguageModel;
use crate::program::Program;
use crate::training::{Event, Outcome};

/// Rounds of questions that are looked at before anything is loaded: one too long is said at once.
const LOOKED_AT: u64 = 64;

/// Which node of its run a process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// From 0, in the order of the run's nodes.
    pub index: u64,
    /// Whether it joins an experiment that others began, under a name that is free.
    pub joins: bool,
}

/// A node that can begin.
pub struct SwarmReady<'a> {
    program: &'a Program<'a>,
    settings: SwarmSettings,
    tokenizer: Tokenizer,
    end: u32,
}

impl<'a> SwarmReady<'a> {
    /// Looks at all that needs no PyTorch.
    ///
    /// # Errors
    /// When the job is none that is trained here, a kind of question is not known, or a question is longer than `prompt_len`.
    pub fn new(program: &'a Program<'a>) -> Result<Self, TrainError> {
        let settings = SwarmSettings::of(program.job, program.training)?;
        LanguageModel::check_job(program.job)?;
        let tokenizer = program.checked_tokenizer()?;
        let Some(end) = program.end_of_text(&tokenizer)? else {
            let problem = "no token ends a completion, so none would ever be whole".to_owned();
            let hint = "set data.end_of_text, for bytes for example to \"10\", a new line";
            return Err(TrainError::refused_with(problem, hint));
        };
        let ready = Self { program, settings, tokenizer, end };
        let asker = ready.all_asker()?;
        for round in 0..LOOKED_AT {
            asker.ask(Split::Training, round, 0)?;
            asker.ask(Split::Evaluation, 0, round)?;
        }
        drop(asker);
        check_positions(program.job, ready.settings.spec.prompt_len + ready.settings.spec.completion_len)?;
        Ok(ready)
    }

    /// Of all kinds; what all nodes evaluate on.
    fn all_asker(&self) -> Result<Asker<'_>, TrainError> {
        let grpo = &self.settings.grpo;
        Asker::new(&self.tokenizer, &grpo.how, grpo.spec.prompt_len, grpo.plain.training.seed)
    }

    /// Of the kinds that a node asks itself.
    fn own_asker(&self, name: &str, index: u64) -> Result<Asker<'_>, TrainError> {
        let asker = self.all_asker()?.of_node(name);
        Ok(if self.settings.how.specialties { asker.only(index) } else { asker })
    }

    /// The experiment of a job whose checkpoints go to `output`.
    ///
    /// # Errors
    /// When its name is none.
    pub fn folder(&self, output: &Path) -> Result<SwarmFolder, TrainError> {
        let how = &self.settings.how;
        SwarmFolder::new(&self.settings.shared_folder(output), &how.experiment, self.settings.most_bytes())
    }

    /// Rounds of the experiment, and nodes it is begun with.
    pub const fn sizes(&self) -> (u64, u64) {
        (self.settings.grpo.steps, self.settings.spec.nodes)
    }

    /// A line on what it learns from.
    ///
    /// # Errors
    /// Never after [`SwarmReady::new`].
    pub fn about_data(&self) -> Result<String, TrainError> {
        let spec = &self.settings.spec;
        Ok(format!(
            "questions: {}; {} rounds of {} own and {} foreign groups of {} completions, {} nodes{} ({})",
            self.all_asker()?.about(),
            self.settings.grpo.steps,
            spec.local_questions,
            spec.external_questions,
            spec.num_generations,
            spec.nodes,
            if self.settings.how.specialties { " with a kind each" } else { "" },
            self.tokenizer.name()
        ))
    }

    /// Builds the model, joins and takes part.
    ///
    /// # Errors
    /// Those of loading, training, sharing and saving; whatever was saved is whole.
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
        torch.seed(program.training.seed)?;
        let exchange = program.output.as_deref().map(|output| self.place(output)).transpose()?;
        let (name, index) =
            exchange.as_ref().map_or((String::new(), 0), |(exchange, index)| (exchange.name.clone(), *index));
        let (asker, eval_asker) = (self.own_asker(&name, index)?, self.all_asker()?);
        let write_model = |folder: &Path| {
            self.tokenizer.save(folder)?;
            program.write_model(folder, &model)
        };
        let mut node = Node::new(Parts {
            torch,
            device,
            model: &model,
            settings: &self.settings,
            asker: &asker,
            eval_asker: &eval_asker,
            tokenizer: &self.tokenizer,
            end: self.end,
            output: program.output.as_deref(),
            exchange: exchange.map(|(exchange, _)| exchange),
            write_model: &write_model,
        })?;
        if let Some(folder) = checkpoint {
            node.resume(&folder, observe)?;
        }
        node.run(stops, observe)
    }

    /// The node's name in the experiment, which it keeps whatever happens to its process, and its number.
    fn place(&self, output: &Path) -> Result<(Exchange, u64), TrainError> {
        let shared = output.parent().unwrap_or(output);
        let folder = self.folder(shared)?;
        let Some(experiment) = folder.experiment()? else {
            let problem = format!("there is no experiment in {}", folder.root().display());
            return Err(TrainError::refused_with(
                problem,
                "`tonnage train` begins one; --join needs one that is there",
            ));
        };
        let place = &self.program.swarm;
        let name = if place.joins {
            let kept = output.join("peer_name");
            match fs::read_to_string(&kept) {
                Ok(name) => name.trim().to_owned(),
                Err(_) => {
                    let name = claim_name(&folder, 0)?;
                    fs::write(&kept, &name).map_err(|error| TrainError::about_file(&kept, error))?;
                    name
                }
            }
        } else {
            node_name(place.index)
        };
        let index = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(place.index);
        let exchange = Exchange {
            folder,
            role: if index == 0 { "coordinator" } else { "worker" }.to_owned(),
            name,
            rounds: experiment.rounds,
            publish_every: self.settings.how.publish_every,
            waits: self.settings.spec.external_questions > 0,
        };
        Ok((exchange, index))
    }
}

fn check_positions(job: &JobSpec, wanted: u64) -> Result<(), TrainError> {
    match positions_of(job).filter(|positions| *positions < wanted) {
        None => Ok(()),
        Some(positions) => Err(TrainError::refused_with(
            format!("prompt_len and completion_len are {wanted} tokens, and the model has {positions} positions"),
            "lower them, or give the model more positions",
        )),
    }
}
