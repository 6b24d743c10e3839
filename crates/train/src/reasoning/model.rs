//! [`ReasoningModel`]: HRM with its loss head on a device, and what one segment of its adaptive computation takes and returns.

use std::rc::Rc;

use tonnage_core::model_type::HRM;
use tonnage_torch::{Device, Tensor, Torch};

use crate::building::{BuildError, Builder, Mode};
use crate::error::TrainError;
use crate::job::JobSpec;
use crate::language_model::{Parameter, Weights, fill_weights};
use crate::model::hrm::{ActLossHead, Batch, Carry, Config};
use crate::optimizer::PuzzleTable;
use crate::tensor::{self, Context, caught};

/// Rows of puzzles on the device, int32.
#[derive(Clone)]
pub struct Puzzles {
    /// [rows, tokens]
    pub inputs: Tensor,
    /// [rows, tokens]; -100 where no answer is wanted
    pub labels: Tensor,
    /// `[rows]`: which row of the puzzle table each has
    pub puzzle_identifiers: Tensor,
}

/// What goes from one segment to the next: states of both levels, steps of each row, which rows halted, and the rows themselves.
pub struct Thoughts(Carry);

impl Thoughts {
    /// All tensors by name, for a checkpoint.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        let named = Carry::NAMES.into_iter().zip(self.0.tensors());
        named.map(|(name, tensor)| (name.to_owned(), tensor.inner().clone())).collect()
    }
}

/// What a segment returns.
pub struct Segment {
    /// The sum over the rows: of the answer's loss and half of those of halting.
    pub loss: Tensor,
    /// Scalars in the order of [`Segment::METRICS`]; the last is there where rows think more than once.
    pub metrics: Vec<Tensor>,
    /// [rows, tokens, vocabulary], where they were asked for
    pub logits: Option<Tensor>,
    /// `[rows]`, with them: how sure each row is that it is right
    pub q_halt_logits: Option<Tensor>,
    /// Whether every row has halted.
    pub all_halted: Tensor,
}

impl Segment {
    /// Sums over the rows that halted, then losses over all rows.
    pub const METRICS: [&'static str; 8] = [
        "count",
        "accuracy",
        "exact_accuracy",
        "q_halt_accuracy",
        "steps",
        "lm_loss",
        "q_halt_loss",
        "q_continue_loss",
    ];
}

/// HRM under its loss head.
pub struct ReasoningModel {
    parameters: Vec<Parameter>,
    mode: Rc<Mode>,
    context: Rc<Context>,
    head: ActLossHead,
}

impl ReasoningModel {
    /// Builds the model for the rows and tokens of the job's batch.
    ///
    /// # Errors
    /// When the job is of another model, its config cannot be read (the error names the key), weights are missing or of other sizes,
    /// or the device has no room.
    pub fn build(
        torch: &'static Torch,
        device: Device,
        job: &JobSpec,
        weights: Weights<'_>,
    ) -> Result<Self, TrainError> {
        if job.model.model_type != HRM {
            let problem = format!("`{}` is no hierarchical reasoning model", job.model.model_type);
            return Err(
                BuildError::Refused { problem, hint: "its configs have model_type = \"hrm\"".to_owned() }.into()
            );
        }
        let config = Config::read(&job.model.config, job.micro_batch_size, job.seq_len).map_err(BuildError::from)?;
        let context = Context::new(torch, device);
        let builder = Builder::new(&context, job.precision.weight_dtype(), None, false);
        let head = caught(|| ActLossHead::new(&builder, config))?;
        let parameters = fill_weights(torch, builder.finish()?, weights)?;
        Ok(Self { parameters, mode: builder.mode(), context, head })
    }

    /// `model.train(training)`: an evaluation takes each row through all its segments.
    pub fn train(&self, training: bool) {
        self.mode.train(training);
    }

    /// Weights that gradients are computed for, in the order of `model.parameters()`.
    pub fn trained(&self) -> Vec<Tensor> {
        self.parameters.iter().filter(|one| one.is_trained).map(|one| one.tensor.clone()).collect()
    }

    /// Names of [`ReasoningModel::trained`].
    pub fn trained_names(&self) -> Vec<String> {
        self.parameters.iter().filter(|one| one.is_trained).map(|one| one.name.clone()).collect()
    }

    /// Thoughts of tensors on the device, which `find` has by the names of [`Thoughts::named`].
    ///
    /// # Errors
    /// Those of `find`.
    pub fn thoughts_of(
        &self,
        mut find: impl FnMut(&str) -> Result<Tensor, TrainError>,
    ) -> Result<Thoughts, TrainError> {
        let mut found = Vec::new();
        for name in Carry::NAMES {
            found.push(tensor::Tensor::of(&self.context, find(name)?));
        }
        let all = found.try_into().map_err(|_| TrainError::Vocabulary("a thought is missing".to_owned()))?;
        Ok(Thoughts(Carry::of_tensors(all)))
    }

    /// All that a checkpoint has: weights, the first states and the puzzle table.
    pub fn named(&self) -> Vec<(String, Tensor)> {
        self.parameters.iter().map(|one| (one.name.clone(), one.tensor.clone())).collect()
    }

    /// The table of puzzles, where the model has one.
    pub fn puzzle_table(&self) -> Option<PuzzleTable> {
        self.head.puzzle_emb().map(|table| PuzzleTable {
            weights: table.weights.inner().clone(),
            local_weights: table.local_weights.inner().clone(),
            local_ids: table.local_ids.inner().clone(),
        })
    }

    fn batch(&self, puzzles: &Puzzles) -> Batch {
        let here = |tensor: &Tensor| tensor::Tensor::of(&self.context, tensor.clone());
        Batch {
            inputs: here(&puzzles.inputs),
            labels: here(&puzzles.labels),
            puzzle_identifiers: here(&puzzles.puzzle_identifiers),
        }
    }

    /// What the first segment begins with: every row has halted, so each takes a puzzle of the batch.
    ///
    /// # Errors
    /// PyTorch's.
    pub fn initial_carry(&self, puzzles: &Puzzles) -> Result<Thoughts, TrainError> {
        caught(|| Thoughts(self.head.initial_carry(&self.batch(puzzles))))
    }

    /// One segment. Rows that had halted begin with the puzzles of the batch, the others go on with theirs.
    ///
    /// # Errors
    /// PyTorch's; [`ReasoningModel::module_that_failed`] says where.
    pub fn forward(
        &self,
        thoughts: &Thoughts,
        puzzles: &Puzzles,
        returns_logits: bool,
    ) -> Result<(Thoughts, Segment), TrainError> {
        self.context.forget_failure();
        caught(|| {
            let (carry, results) = self.head.forward(&thoughts.0, &self.batch(puzzles), returns_logits);
            let inner = |tensor: &tensor::Tensor| tensor.inner().clone();
            let segment = Segment {
                loss: inner(&results.loss),
                metrics: results.metrics.iter().map(inner).collect(),
                logits: results.logits.as_ref().map(inner),
                q_halt_logits: results.q_halt_logits.as_ref().map(inner),
                all_halted: inner(&results.all_halted),
            };
            (Thoughts(carry), segment)
        })
    }

    /// The path of the module in which the last segment failed.
    pub fn module_that_failed(&self) -> Option<String> {
        self.context.failed_in()
    }
}
