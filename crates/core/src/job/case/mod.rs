//! Reference cases: the JSON objects that the measuring scripts run, read into the [`JobSpec`] they mean.
//! Accuracy tests go through here, so a case's defaults are the script's, not those of a job file.

mod agi2;
mod deepspeed;
mod diffusion;
mod dpo;
mod embedding;
mod gkd;
mod hrm;
mod images;
mod lm;
mod parallel;
mod ppo;
mod preference;
mod reward;
mod rl;
mod sharding;
mod trainer;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::hf;
use super::{
    Attention, Beside, CheckpointPolicy, ClipSpec, Ema, Fields, Framework, JobError, JobSpec, Kernels, LogitsPath,
    LoraSpec, LossKernel, LowRankSpec, ModelSpec, OptimizerKind, Parallel, Precision, PreconditionerSpec, RunSpec,
    Task, TransformersVersion,
};
use crate::alloc::AllocatorConfig;
use crate::gpu::Gpu;
use crate::model_type::{AGI2, GPT2, HRM};

/// The job that a reference case means, on the sm_90 GPU with 132 multiprocessors that the cases were measured on. Its
/// `kind` says which script ran it; without one it is a case of one language model.
///
/// # Errors
/// When a field is unknown, has a wrong type, or the model names no `family`.
pub fn from_case(value: &Value) -> Result<JobSpec, JobError> {
    let Some(case) = value.as_object() else {
        return Err(JobError::new("reference case: must be a JSON object"));
    };
    match case.get("kind").and_then(Value::as_str) {
        None => lm::job_of_case(read_case(value)?),
        Some("trl_grpo" | "trl_rloo") => rl::grpo_job(read_case(value)?),
        Some("trl_dpo") => dpo::job_of_case(read_case(value)?),
        Some("trl_kto" | "trl_orpo" | "trl_cpo") => preference::job_of_case(read_case(value)?),
        Some("trl_gkd") => gkd::job_of_case(read_case(value)?),
        Some("trl_ppo") => ppo::job_of_case(read_case(value)?),
        Some("trl_reward") => reward::job_of_case(read_case(value)?),
        Some("embedding") => embedding::job_of_case(read_case(value)?),
        Some("trainer") => trainer::job_of_case(read_case(value)?),
        Some("swarm_node") => rl::swarm_job(read_case(value)?),
        Some("diffusion") => diffusion::job_of_case(read_case(value)?),
        Some("deepspeed") => deepspeed::job_of_case(read_case(value)?),
        Some("parallel") => parallel::job_of_case(read_case(value)?),
        Some(HRM) => Ok(hrm::job_of_case(read_case(value)?)),
        Some(AGI2) => Ok(agi2::job_of_case(read_case(value)?)),
        Some(other) => Err(JobError::new(format!("reference case: unknown kind `{other}`"))),
    }
}

fn read_case<T: DeserializeOwned>(value: &Value) -> Result<T, JobError> {
    T::deserialize(value).map_err(|error| JobError::new(format!("reference case: {error}")))
}

/// [`Precision`] under the names that cases use.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CasePrecision {
    Fp32,
    Bf16,
    Fp16,
    AmpBf16,
    AmpFp16,
    /// fp16 weights under autocast.
    Fp16Amp,
    /// bf16 weights under autocast.
    Bf16Amp,
    /// fp32 shards, gathered in bf16.
    MpBf16,
    /// bf16 shards, beside which adapters are gathered in bf16.
    Bf16Mp,
}

impl CasePrecision {
    const fn precision(self) -> Precision {
        match self {
            Self::Fp32 | Self::MpBf16 => Precision::Fp32,
            Self::Bf16 | Self::Bf16Mp => Precision::Bf16,
            Self::Fp16 => Precision::Fp16,
            Self::AmpBf16 => Precision::AmpBf16,
            Self::AmpFp16 => Precision::AmpFp16,
            Self::Fp16Amp => Precision::Fp16Amp,
            Self::Bf16Amp => Precision::Bf16Amp,
        }
    }
}

/// What is offloaded to the CPU: arguments of `CPUOffloadPolicy`, or DeepSpeed's `offload_optimizer`.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseOffload {
    #[serde(default, rename = "device")]
    _device: Cpu,
    pin_memory: bool,
}

/// The one device that is offloaded to.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Cpu {
    #[default]
    Cpu,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseLora {
    r: u64,
    #[serde(default)]
    alpha: Option<f64>,
    #[serde(default)]
    dropout: f64,
    #[serde(default)]
    targets: CaseTargets,
    #[serde(default)]
    use_dora: bool,
    #[serde(default)]
    modules_to_save: Vec<String>,
}

/// As peft takes them: names, or the word for every linear layer.
#[derive(Deserialize)]
#[serde(untagged)]
enum CaseTargets {
    Word(String),
    Names(Vec<String>),
}

impl Default for CaseTargets {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

/// transformers' `optim_args` and `optim_target_modules` of a case, and the arguments of an optimizer that preconditions.
fn told_of_case(
    kind: OptimizerKind,
    arguments: &str,
    targets: Vec<String>,
) -> Result<(LowRankSpec, PreconditionerSpec), JobError> {
    let (low_rank, preconditioner) = (LowRankSpec::default(), PreconditionerSpec::default());
    if kind.preconditions() {
        return Ok((low_rank, preconditioner.with_arguments(kind, arguments)?));
    }
    let targets = if targets.is_empty() { low_rank.targets.clone() } else { targets };
    Ok((LowRankSpec { targets, ..low_rank }.with_arguments(arguments)?, preconditioner))
}

impl From<CaseLora> for LoraSpec {
    fn from(lora: CaseLora) -> Self {
        let targets = match lora.targets {
            CaseTargets::Word(word) => vec![word],
            CaseTargets::Names(names) => names,
        };
        let CaseLora { r, dropout, use_dora, modules_to_save, .. } = lora;
        Self { r, alpha: lora.alpha.unwrap_or(8.0), dropout, targets, use_dora, modules_to_save }
    }
}

/// GPT-2 as its config class has it, the model of a case that names none.
fn default_model() -> Map<String, Value> {
    Map::from_iter([("family".to_owned(), Value::from(GPT2))])
}

/// `family` is Hugging Face's `model_type`; the other keys are fields of its config class.
fn model_of_case(name: String, mut config: Map<String, Value>) -> Result<ModelSpec, JobError> {
    match config.remove("family") {
        Some(Value::String(model_type)) => {
            Ok(ModelSpec { name, model_type, config: Fields(config), beside: Beside::default() })
        }
        _ => Err(JobError::new(format!("reference case `{name}`: `model` must name its `family`"))),
    }
}

const fn checkpoint_policy(on: bool) -> CheckpointPolicy {
    if on { CheckpointPolicy::EveryLayer } else { CheckpointPolicy::Off }
}

fn clip_spec(max_norm: Option<f64>) -> Option<ClipSpec> {
    max_norm.map(|max_norm| ClipSpec { max_norm })
}

/// A model of a type that has cases of its own, by its config's fields.
fn model_of(name: &str, model_type: &str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> ModelSpec {
    let config = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let (name, model_type) = (name.to_owned(), model_type.to_owned());
    ModelSpec { name, model_type, config: Fields(config), beside: Beside::default() }
}

/// A plain fp32 training job, for a kind of case to say what is different.
fn plain_job(mut model: ModelSpec, task: Task) -> JobSpec {
    model.beside.head = hf::head_of(&model.config);
    model.stand_head(&task);
    JobSpec {
        model,
        train_mode: task.trains(),
        // The measuring scripts' own loops, or the task's trainer.
        framework: match task.name() {
            name if name.has_labels() => Framework::Loop,
            name => Framework::usual(name),
        },
        task,
        micro_batch_size: 1,
        seq_len: 1,
        max_new_tokens: 0,
        gradient_accumulation_steps: 1,
        materialized: false,
        places_first: true,
        device_map: false,
        quantization: None,
        precision: Precision::Fp32,
        attention: Attention::Sdpa,
        gradient_checkpointing: CheckpointPolicy::Off,
        use_reentrant: false,
        activation_offload: None,
        optimizer: OptimizerKind::Adamw,
        decays: false,
        low_rank: LowRankSpec::default(),
        preconditioner: PreconditionerSpec::default(),
        optimizer_in_backward: false,
        ema: Ema::Off,
        clip_grad_norm: None,
        zero_grad_set_to_none: true,
        own_labels: false,
        padded: None,
        padding_free: false,
        row_growth: None,
        lora: None,
        logits: LogitsPath { keep_outputs: false, logits_to_keep: None, loss: LossKernel::Full },
        use_cache: false,
        steps: 2,
        transformers: TransformersVersion::DEFAULT,
        liger_kernels: false,
        kernels: Kernels::default(),
        parallel: Parallel::default(),
        allocator: AllocatorConfig::default(),
        gpu: reference_gpu(),
        run: RunSpec::default(),
        left_open: Vec::new(),
    }
}

/// The device of the measurements: an H200's kernels and memory (139.80 GiB as PyTorch reports it).
fn reference_gpu() -> Gpu {
    Gpu {
        id: "reference".to_owned(),
        name: "sm_90 reference device".to_owned(),
        usable_bytes: 150_109_107_814,
        context_bytes: None,
        compute_capability: (9, 0),
        multiprocessors: 132,
        shares_host_memory: false,
        rates: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refuses_what_it_does_not_know() {
        let cases = [
            (json!({"batch": 1}), "unknown field `batch`"),
            (json!({"precision": "amp-bf16"}), "unknown variant `amp-bf16`"),
            (json!({"model": {"n_layer": 2}}), "must name its `family`"),
            (json!({"micro_batch": -1}), "invalid value: integer `-1`"),
            (json!({"kind": "trl_prm"}), "unknown kind `trl_prm`"),
            (json!({"kind": "hrm", "layers": 1}), "unknown field `layers`"),
            (json!([]), "must be a JSON object"),
            (json!(3), "must be a JSON object"),
        ];
        for (case, expected) in cases {
            let error = from_case(&case).unwrap_err().to_string();
            assert!(error.contains(expected), "{case}: {error}");
        }
    }
}
