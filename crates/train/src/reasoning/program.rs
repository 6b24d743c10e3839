//! A training of HRM from its job: puzzles are made or read, the model is built, and the loop runs.

use std::path::Path;

use tonnage_core::job::PuzzleKind;
use tonnage_torch::{Device, Torch};
use tonnage_verifiable::puzzles::PuzzleSet;

use super::data::puzzles_of;
use super::learning::{Learning, Parts};
use super::model::ReasoningModel;
use super::settings::HrmSettings;
use super::trainer::SegmentTrainer;
use crate::error::TrainError;
use crate::language_model::Weights;
use crate::optimizer::{SparseSignSgd, SparseSignSgdOptions};
use crate::program::{Program, WEIGHTS, agree_on, write_config};
use crate::ranks::Ranks;
use crate::store::pretrained::Pretrained;
use crate::store::weights;
use crate::training::{Event, Outcome};

/// A training of HRM that can begin.
pub struct HrmReady<'a> {
    program: &'a Program<'a>,
    settings: HrmSettings,
    set: PuzzleSet,
}

impl<'a> HrmReady<'a> {
    /// Looks at all that needs no PyTorch.
    ///
    /// # Errors
    /// When the job is none that is trained here, or puzzles cannot be made or read, or are none of this model's.
    pub fn new(program: &'a Program<'a>) -> Result<Self, TrainError> {
        let settings = HrmSettings::of(program.job, program.training)?;
        let set = puzzles_of(&settings, program.job, &program.train_files)?;
        Ok(Self { program, settings, set })
    }

    /// A line on what it learns from.
    pub fn about_data(&self) -> String {
        let settings = &self.settings;
        let what = match settings.how.puzzles {
            PuzzleKind::Sudoku => format!("Sudokus of {0} x {0}", settings.side()),
            PuzzleKind::Maze => format!("mazes of {0} x {0}", settings.side()),
            PuzzleKind::Arc => format!("pairs of {} tasks of ARC", self.set.tasks),
        };
        let views = if settings.views() > 1 { format!(" in {} views each", settings.views()) } else { String::new() };
        format!(
            "{} {what}{views}, {} held out; {} steps of {} rows, a segment each",
            self.set.train.len(),
            self.set.eval.len(),
            settings.steps,
            settings.plain.rows_per_step()
        )
    }

    /// Builds the model and trains.
    ///
    /// # Errors
    /// Those of loading, training and saving; whatever was saved is whole.
    pub fn train(
        &self,
        torch: &'static Torch,
        device: Device,
        ranks: &dyn Ranks,
        stops: &dyn Fn() -> bool,
        observe: &mut dyn FnMut(Event),
    ) -> Result<Outcome, TrainError> {
        let program = self.program;
        let checkpoint = agree_on(program.find_checkpoint()?, ranks)?;
        torch.seed(program.training.seed)?;
        let model = self.build_model(torch, device, checkpoint.as_deref())?;
        // Each rank explores by itself (`torch.random.manual_seed(config.seed + RANK)`).
        torch.seed(program.training.seed.wrapping_add(ranks.rank()))?;
        let write_model = |folder: &Path| {
            weights::write(&folder.join(WEIGHTS), &model.named())?;
            write_config(folder, program.job)
        };
        let parts = Parts {
            torch,
            device,
            model: &model,
            settings: &self.settings,
            set: &self.set,
            ranks,
            output: program.output.as_deref(),
            write_model: &write_model,
        };
        let mut learning = Learning::new(parts, self.trainer(torch, &model, ranks)?);
        if let Some(folder) = checkpoint {
            learning.resume(&folder, observe)?;
        }
        learning.run(stops, observe)
    }

    fn build_model(
        &self,
        torch: &'static Torch,
        device: Device,
        checkpoint: Option<&Path>,
    ) -> Result<ReasoningModel, TrainError> {
        let Some(folder) = checkpoint else {
            return ReasoningModel::build(torch, device, self.program.job, Weights::Initial);
        };
        let missing = || TrainError::about_weights(folder, "has no weights".to_owned());
        let mut weights = Pretrained::open(folder)?.ok_or_else(missing)?;
        let mut named = |name: &str| weights.tensor(torch, name);
        ReasoningModel::build(torch, device, self.program.job, Weights::Named(&mut named))
    }

    fn trainer<'m>(
        &self,
        torch: &'static Torch,
        model: &'m ReasoningModel,
        ranks: &'m dyn Ranks,
    ) -> Result<SegmentTrainer<'m>, TrainError> {
        let table = model.puzzle_table().map(|table| {
            let options = SparseSignSgdOptions {
                learning_rate: self.settings.puzzle_learning_rate(0),
                weight_decay: self.settings.puzzle_decay(),
                // A phantom has no numbers to look at.
                takes_ids_as_distinct: self.program.output.is_none(),
            };
            SparseSignSgd::new(torch, table, options)
        });
        let optimizer = self.settings.plain.optimizer(torch, model.trained())?;
        SegmentTrainer::new(torch, model, table, optimizer, self.settings.plain.micro_batch_size, ranks)
    }
}
