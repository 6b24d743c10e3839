//! What to train, on what: the job as plain values, before anything is simulated.

mod activations;
mod aliases;
mod allocator;
mod architecture;
mod builder;
#[cfg(any(test, feature = "cases"))]
mod case;
pub(crate) mod check;
mod config_fields;
mod copies;
mod ema;
mod entry;
mod error;
mod fields;
mod framework;
mod grpo_training;
pub mod guides;
pub mod hf;
mod hrm_training;
mod hub;
mod image;
mod image_text;
mod job_file;
mod job_spec;
mod kernels;
mod key_names;
pub mod keys;
mod kind;
mod left_open;
mod lora_spec;
mod low_rank;
mod model_source;
mod optimizer_kind;
mod own_class;
mod parallel;
mod preconditioner;
mod presets;
mod quantization;
mod recording;
mod resolve;
mod rows;
mod run;
pub mod safetensors;
mod schema;
mod settings;
mod source;
mod stored;
mod swarm_training;
mod task;
mod training;
mod vision;
pub mod words;

pub use activations::{ActivationOffload, CheckpointPolicy, OffloadHooks};
pub use architecture::{Architecture, Refused, find_architecture, generic_model_types};
#[cfg(any(test, feature = "cases"))]
pub use case::from_case;
pub use ema::Ema;
pub use error::{Cause, JobError, JobErrorKind, Place, REHEARSE, rehearsed_on};
pub use fields::{FieldError, Fields};
pub use framework::Framework;
pub use grpo_training::{AnswerIn, GrpoTraining, LossType, RewardBy, ScaleRewards};
pub use hrm_training::{HrmTraining, PuzzleKind};
pub use hub::{is_full_name, published_type};
pub use image::Image;
pub(crate) use image_text::PairTower;
pub use job_spec::{Beside, ClipSpec, Counted, Head, JobSpec, LeftOut, LogitsPath, LossKernel, ModelSpec, Precision};
pub use kernels::{Kernel, Kernels};
pub use keys::{Default as KeyDefault, KEYS, Key};
pub use kind::Kind;
pub use left_open::{Allowance, LeftOpen};
pub use lora_spec::LoraSpec;
pub use low_rank::LowRankSpec;
pub use model_source::has_field;
pub use optimizer_kind::OptimizerKind;
pub use parallel::{
    BackwardPrefetch, Ddp, DeepSpeed, FlatInit, Fsdp1, Fsdp2, Parallel, Schedule, ShardInit, StageReplicas,
    StageWrapper, Strategy, TensorPlan,
};
pub use preconditioner::PreconditionerSpec;
pub use presets::Preset;
pub use quantization::{ComputeDtype, QuantizationSpec, QuantizedWeights};
pub use resolve::Resolved;
pub use rows::{RowGrowth, RowKind, is_json_lines};
pub use run::{RunLength, RunSpec, rows_per_step};
pub use schema::job_schema;
pub use settings::{Origin, Override, Provenance, tables_of_other_strategies};
pub use source::{
    ConfigSource, InstalledTransformers, JobSource, JobText, Lookup, NamedGpu, UnnamedGpu, WeightsBeside,
};
pub use stored::StoredWeights;
pub use swarm_training::{ForeignAdvantages, SwarmFilter, SwarmTraining};
pub(crate) use task::AnswersOf;
pub use task::{
    Baseline, DiffusionSpec, Divergence, DpoSpec, EmbeddingSpec, GkdSpec, GrpoSpec, JudgePhase, JudgePlace, JudgeSpec,
    JudgeWeights, KlEstimator, KtoLoss, KtoSpec, LogProbs, LossOf, OnPolicy, PairLoss, PairsSpec, Passes, Pooling,
    PpoSpec, QuantizedBase, RewardSpec, Rollout, Seq2SeqSpec, Spreading, SwarmLogProbs, SwarmSpec, Task, TaskFacts,
    TaskName, TeacherDtype, TrlVersion,
};
pub use tonnage_tensor::Attention;
pub use tonnage_tensor::transformers::{
    CausalLoss, ModelingFile, NextTokenLogits, RotaryPlace, SdpaForm, TransformersError, TransformersVersion,
};
pub use training::{DataSpec, GenerationSpec, Init, LearningRateSchedule, TrainingSpec};
pub use vision::Vision;
pub(crate) use vision::{PatchGrid, VisionTensor, read_image_size};
