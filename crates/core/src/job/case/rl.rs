//! Cases of reinforcement learning: TRL's GRPO trainer, and a node of a swarm.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::sharding::{CaseSharding, ranks_of_trl};
use super::{CaseLora, CasePrecision, checkpoint_policy, clip_spec, default_model, model_of_case, plain_job};
use crate::job::words::{self, Meaning};
use crate::job::{
    Baseline, GrpoSpec, JobError, JobSpec, JudgePhase, JudgePlace, JudgeSpec, JudgeWeights, LogProbs, OptimizerKind,
    Rollout, SwarmLogProbs, SwarmSpec, keys,
};
use crate::model_type::QWEN2;

/// A case of kind `trl_grpo` or `trl_rloo`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GrpoCase {
    id: String,
    kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    prompt_len: u64,
    completion_len: u64,
    steps: u32,
    batch: u64,
    num_generations: Option<u64>,
    grad_accum: u64,
    steps_per_generation: Option<u64>,
    num_iterations: u64,
    beta: Option<f64>,
    gradient_checkpointing: bool,
    optim: Option<OptimizerName>,
    liger: bool,
    lora: Option<CaseLora>,
    padded: bool,
    judge: Option<JudgeCase>,
    max_grad_norm: f64,
    logprob: LogProbs,
    cast_lm_head_to_fp32: bool,
    world: u64,
    sharded: Option<CaseSharding>,
    #[serde(rename = "note")]
    _note: String,
}

/// An optimizer by the name that Hugging Face has for it (`OptimizerNames`), or by ours.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct OptimizerName {
    kind: OptimizerKind,
    in_backward: bool,
}

impl TryFrom<Value> for OptimizerName {
    type Error = serde_json::Error;

    fn try_from(name: Value) -> Result<Self, serde_json::Error> {
        let (ours, in_backward) = match words::meaning_of_value(keys::OPTIMIZER, &name) {
            Some(Meaning::Says([(_, ours), others @ ..])) => ((*ours).into(), !others.is_empty()),
            _ => (name, false),
        };
        Ok(Self { kind: serde_json::from_value(ours)?, in_backward })
    }
}

impl OptimizerName {
    pub(super) const fn kind(self) -> OptimizerKind {
        self.kind
    }

    /// Whether each parameter's steps in backward (`_layerwise`).
    pub(super) const fn steps_in_backward(self) -> bool {
        self.in_backward
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JudgeCase {
    model: Map<String, Value>,
    #[serde(default)]
    precision: Option<CasePrecision>,
    #[serde(default = "JudgeCase::new_tokens")]
    new_tokens: u64,
    #[serde(default = "JudgeCase::prompt_extra")]
    prompt_extra: u64,
    #[serde(default)]
    batch: Option<u64>,
}

impl JudgeCase {
    const fn new_tokens() -> u64 {
        64
    }

    const fn prompt_extra() -> u64 {
        32
    }

    fn spec(self) -> Result<JudgeSpec, JobError> {
        let half = self.precision.is_none_or(|precision| precision == CasePrecision::Bf16);
        Ok(JudgeSpec {
            model: model_of_case("judge".to_owned(), self.model)?,
            weights: if half { JudgeWeights::Bf16 } else { JudgeWeights::Fp32 },
            phase: JudgePhase::Generate,
            extra_prompt_tokens: self.prompt_extra,
            new_tokens: self.new_tokens,
            rows: self.batch,
            place: JudgePlace::SameGpu,
        })
    }
}

impl Default for GrpoCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            kind: String::new(),
            model: Map::from_iter([("family".to_owned(), Value::from(QWEN2))]),
            precision: CasePrecision::AmpBf16,
            prompt_len: 64,
            completion_len: 64,
            steps: 2,
            batch: 8,
            num_generations: None,
            grad_accum: 1,
            steps_per_generation: None,
            num_iterations: 1,
            beta: None,
            gradient_checkpointing: true,
            optim: None,
            liger: false,
            lora: None,
            padded: false,
            judge: None,
            max_grad_norm: 1.0,
            logprob: LogProbs::Fused,
            cast_lm_head_to_fp32: false,
            world: 1,
            sharded: None,
            _note: String::new(),
        }
    }
}

pub(super) fn grpo_job(case: GrpoCase) -> Result<JobSpec, JobError> {
    let leaves_one_out = case.kind == "trl_rloo";
    let grpo = GrpoSpec {
        prompt_len: case.prompt_len,
        completion_len: case.completion_len,
        num_generations: case.num_generations.unwrap_or(if leaves_one_out { 2 } else { 8 }),
        steps_per_generation: case.steps_per_generation.unwrap_or(case.grad_accum),
        num_iterations: case.num_iterations,
        baseline: if leaves_one_out { Baseline::LeaveOneOut } else { Baseline::Group },
        beta: case.beta.unwrap_or(if leaves_one_out { 0.05 } else { 0.0 }),
        log_probs: case.logprob,
        rollout: Rollout::Generate,
        padded: case.padded,
        cast_lm_head_to_fp32: case.cast_lm_head_to_fp32,
        judge: case.judge.map(JudgeCase::spec).transpose()?,
    };
    let is_peft = case.lora.is_some();
    Ok(JobSpec {
        micro_batch_size: case.batch,
        seq_len: case.prompt_len.saturating_add(case.completion_len),
        gradient_accumulation_steps: case.grad_accum,
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optim.map_or(OptimizerKind::AdamwFused, OptimizerName::kind),
        clip_grad_norm: clip_spec(Some(case.max_grad_norm).filter(|norm| *norm > 0.0)),
        lora: case.lora.map(Into::into),
        steps: case.steps,
        liger_kernels: case.liger,
        parallel: ranks_of_trl(
            (case.world, case.sharded),
            case.precision.precision(),
            is_peft,
            case.gradient_checkpointing,
        ),
        ..plain_job(model_of_case(case.id, case.model)?, grpo.into())
    })
}

/// A case of kind `swarm_node`.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SwarmCase {
    id: String,
    #[serde(rename = "kind")]
    _kind: String,
    model: Map<String, Value>,
    precision: CasePrecision,
    prompt_len: u64,
    completion_len: u64,
    steps: u32,
    questions: u64,
    group: u64,
    train_rows: Option<u64>,
    gradient_checkpointing: bool,
    optimizer: OptimizerKind,
    #[serde(rename = "temperature")]
    _temperature: f64,
    logprob: SwarmLogProbCase,
    rows_per_chunk: u64,
    logits_to_keep: bool,
    generate: bool,
    generate_rows: Option<u64>,
    empty_cache: bool,
    #[serde(rename = "note")]
    _note: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SwarmLogProbCase {
    Full,
    Chunked,
    ChunkedHead,
}

impl Default for SwarmCase {
    fn default() -> Self {
        Self {
            id: "case".to_owned(),
            _kind: String::new(),
            model: default_model(),
            precision: CasePrecision::Fp32,
            prompt_len: 64,
            completion_len: 256,
            steps: 2,
            questions: 8,
            group: 8,
            train_rows: None,
            gradient_checkpointing: false,
            optimizer: OptimizerKind::Adam,
            _temperature: 1.0,
            logprob: SwarmLogProbCase::Full,
            rows_per_chunk: 8,
            logits_to_keep: true,
            generate: true,
            generate_rows: None,
            empty_cache: true,
            _note: String::new(),
        }
    }
}

pub(super) fn swarm_job(case: SwarmCase) -> Result<JobSpec, JobError> {
    let train_rows = case.train_rows.unwrap_or(case.questions.saturating_mul(case.group));
    let swarm = SwarmSpec {
        prompt_len: case.prompt_len,
        completion_len: case.completion_len,
        local_questions: case.questions,
        external_questions: 0,
        num_generations: case.group,
        train_rows,
        generate_rows: case.generate_rows.unwrap_or(case.questions),
        log_probs: match case.logprob {
            SwarmLogProbCase::Full => SwarmLogProbs::Full,
            SwarmLogProbCase::Chunked => SwarmLogProbs::Chunked { rows: case.rows_per_chunk },
            SwarmLogProbCase::ChunkedHead => SwarmLogProbs::ChunkedHead { rows: case.rows_per_chunk },
        },
        logits_to_keep: case.logits_to_keep,
        generates: case.generate,
        empty_cache: case.empty_cache,
        nodes: 1,
        gpus: 1,
        lease: None,
    };
    Ok(JobSpec {
        micro_batch_size: train_rows,
        seq_len: case.prompt_len.saturating_add(case.completion_len),
        precision: case.precision.precision(),
        gradient_checkpointing: checkpoint_policy(case.gradient_checkpointing),
        optimizer: case.optimizer,
        steps: case.steps,
        materialized: true,
        ..plain_job(model_of_case(case.id, case.model)?, swarm.into())
    })
}
