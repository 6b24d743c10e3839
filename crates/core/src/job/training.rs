//! What a training learns by, what it learns from, and what is generated from it: nothing of it changes a byte of a step but
//! that weights decay, which the job says too.

use serde::{Deserialize, Serialize};

use super::grpo_training::GrpoTraining;
use super::hrm_training::HrmTraining;
use super::swarm_training::SwarmTraining;

/// How the learning rate falls, by transformers' names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningRateSchedule {
    /// The whole rate from the first step on.
    Constant,
    /// The whole rate after the warm-up.
    ConstantWithWarmup,
    /// Down to 0 at the last step.
    #[default]
    Linear,
    /// Half a cosine down to 0.
    Cosine,
    /// One over the square root of the step.
    InverseSqrt,
}

/// Where the first weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Init {
    /// Those beside the config, else new ones.
    #[default]
    Auto,
    /// Those beside the config.
    FromPretrained,
    /// Random ones, though some lie beside the config.
    FromConfig,
}

/// What a training learns by: transformers' `TrainingArguments` of the same names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainingSpec {
    /// At its highest.
    pub learning_rate: f64,
    /// How it falls.
    pub lr_scheduler_type: LearningRateSchedule,
    /// Steps in which it rises; below 1 a share of all steps.
    pub warmup_steps: f64,
    /// Of all weights alike.
    pub weight_decay: f64,
    /// `adam_beta1`, `adam_beta2`.
    pub betas: (f64, f64),
    /// `adam_epsilon`
    pub adam_epsilon: f64,
    /// Decides new weights, the order of the data, and dropout.
    pub seed: u64,
    /// Where the first weights come from.
    pub init: Init,
    /// Optimizer steps, where they were said.
    pub max_steps: Option<u64>,
    /// How often the data is gone through, where no steps were said.
    pub num_train_epochs: f64,
    /// The folder of checkpoints and metrics, where it was said.
    pub output_dir: Option<String>,
    /// Steps between two points of metrics.
    pub logging_steps: u64,
    /// Steps between two evaluations; where nobody says, one comes with each checkpoint.
    pub eval_steps: Option<u64>,
    /// Evaluations in a row without a lower loss, after which it ends; epochs of the guide's small GPT.
    pub early_stopping_patience: Option<u64>,
    /// Steps between two checkpoints.
    pub save_steps: u64,
    /// Checkpoints that are kept.
    pub save_total_limit: u64,
    /// A checkpoint to go on with where the output folder has none.
    pub resume_from_checkpoint: Option<String>,
    /// Whether it is the CPU's though there is a GPU.
    pub use_cpu: bool,
    /// Factor of an adapter's output, over its rank.
    pub lora_alpha: f64,
    /// What it learns from.
    pub data: DataSpec,
    /// What is generated from it.
    pub generation: GenerationSpec,
    /// What GRPO asks, pays and holds out.
    pub grpo: GrpoTraining,
    /// What HRM learns from.
    pub hrm: HrmTraining,
    /// What a node of a swarm shares.
    pub swarm: SwarmTraining,
}

/// What a training learns from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataSpec {
    /// Files of texts.
    pub train_files: Vec<String>,
    /// Files of texts that are evaluated on.
    pub eval_files: Vec<String>,
    /// Where there are none, the share of the others, 0 to 0.9.
    pub eval_share: f64,
    /// A tokenizer.json or its folder, `bytes`, `characters`; `None` for the model's own, else bytes.
    pub tokenizer: Option<String>,
    /// The field of a JSON line that holds its text.
    pub text_field: String,
    /// The token between two texts, as text or as a number, where it was said.
    pub end_of_text: Option<String>,
    /// Whether of `messages` only those of the assistant are learnt.
    pub assistant_only_loss: bool,
}

/// How text is generated: transformers' `GenerationConfig` of the same names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationSpec {
    /// Tokens that a sample has at most.
    pub max_new_tokens: u64,
    /// Whether tokens are drawn by chance.
    pub do_sample: bool,
    /// Above 1 it flattens what is drawn from.
    pub temperature: f64,
    /// Tokens that are drawn from; 0 for all.
    pub top_k: u64,
    /// Probability of the tokens that are drawn from.
    pub top_p: f64,
    /// Texts that are followed at once.
    pub num_beams: u64,
    /// What stands before all that is to be continued; no field of transformers'.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
}

impl Default for GenerationSpec {
    fn default() -> Self {
        Self {
            max_new_tokens: 100,
            do_sample: false,
            temperature: 1.0,
            top_k: 50,
            top_p: 1.0,
            num_beams: 1,
            prompt: String::new(),
        }
    }
}
