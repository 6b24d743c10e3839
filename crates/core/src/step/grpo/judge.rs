//! A judge in the reward phase: on the policy's GPU all the time or for that phase only, or on a GPU of its own.

use std::rc::Rc;

use crate::building::{BuildError, FourBit, Quantization};
use crate::dtype::DType;
use crate::host::HostMemory;
use crate::job::{GrpoSpec, JobError, JobSpec, JudgePhase, JudgePlace, JudgeSpec, JudgeWeights, Task};
use crate::model::family::{ForwardCall, Model};
use crate::op::full;
use crate::tensor::{Context, Tensor};
use crate::trace::PhaseKind;
use crate::work::Work;

use super::trainer::Trainer;
use crate::step::calls::Calls;
use crate::step::generate::{GenerateCall, GenerationConfig, SpecialTokens, generate};
use crate::step::inputs::has_begin_token;
use crate::step::models::{Kind, load_model};
use crate::step::simulation::{SimulateError, Simulation};

/// How often a judge on its own GPU scores: the second time shows what the first leaves behind.
const BATCHES: u32 = 2;

/// The second model.
pub(super) struct Judge {
    model: Box<dyn Model>,
    spec: JudgeSpec,
    has_begin_token: bool,
    parameter_count: u64,
}

impl Judge {
    /// Puts the judge on the device.
    ///
    /// # Errors
    /// When its config is not one its family can build.
    pub(super) fn load_judge(job: &JobSpec, context: &Rc<Context>, judge: &JudgeSpec) -> Result<Self, BuildError> {
        let kind = match judge.weights {
            JudgeWeights::Fp32 => Kind::of(DType::Float32),
            JudgeWeights::Bf16 => Kind::of(DType::Bfloat16),
            JudgeWeights::Int8 => Kind::quantized(Quantization::Int8),
            JudgeWeights::Nf4 => {
                Kind::quantized(Quantization::FourBit(FourBit { double: false, compute: DType::Bfloat16 }))
            }
        };
        let (model, builder) = load_model(job, context, ("judge", &judge.model), kind)?;
        let has_begin_token = has_begin_token(&judge.model);
        Ok(Self { model, spec: judge.clone(), has_begin_token, parameter_count: builder.parameter_count() })
    }

    /// Scores so many completions, some at a time.
    fn score_completions(&self, context: &Rc<Context>, grpo: &GrpoSpec, rows: u64) {
        let at_once = self.spec.rows.unwrap_or(rows).max(1);
        let mut calls = Calls::default();
        for (rows, times) in [(at_once, rows / at_once), (rows % at_once, 1)] {
            if rows > 0 && times > 0 {
                calls.run(context, rows, times, || self.score_rows(context, grpo, rows));
            }
        }
    }

    fn score_rows(&self, context: &Rc<Context>, grpo: &GrpoSpec, rows: u64) {
        let tokens = self.spec.extra_prompt_tokens + grpo.prompt_len + grpo.completion_len;
        let ids = full(context, "_to_copy.default", &[rows, tokens], DType::Int64);
        let attention_mask = ids.ones_like();
        let _no_grad = context.set_grad_enabled(false);
        match self.spec.phase {
            JudgePhase::Generate => self.answer_rows(context, &ids, attention_mask),
            JudgePhase::Forward => self.score_answers(&ids, attention_mask),
        }
    }

    /// `generate`, then the answer to the host, for which it is made contiguous.
    fn answer_rows(&self, context: &Rc<Context>, ids: &Tensor, attention_mask: Tensor) {
        let config = GenerationConfig {
            max_new_tokens: self.spec.new_tokens,
            sampling: None,
            special_tokens: SpecialTokens { begin: self.has_begin_token, end: false, pad: true },
            use_cache: true,
            output_scores: false,
        };
        let call = GenerateCall { input_ids: ids, attention_mask: &attention_mask, config: &config };
        let out = generate(context, self.model.as_ref(), &call);
        drop(attention_mask);
        out.narrow_any(1, self.spec.new_tokens).clone_contiguous();
    }

    /// One forward pass with the cache that a model makes by default; the last position's logits are the score.
    fn score_answers(&self, ids: &Tensor, attention_mask: Tensor) {
        let output = self.model.forward(&ForwardCall {
            attention_mask: Some(&attention_mask),
            cache: Some(self.model.new_cache()),
            logits_to_keep: Some(1),
            ..ForwardCall::new(ids)
        });
        drop((output, attention_mask));
    }
}

impl Trainer<'_> {
    /// The reward function, which asks a judge on this GPU; weights that were offloaded come and go.
    pub(super) fn judge_rows(&self, rows: u64) {
        let offloaded = self.spec.judge.as_ref().filter(|judge| judge.place == JudgePlace::Offload);
        if let Some(judge) = offloaded {
            match Judge::load_judge(self.job, self.context, judge) {
                Ok(judge) => judge.score_completions(self.context, self.spec, rows),
                Err(error) => self.context.fail(&[], || error.to_string()),
            }
        }
        if let Some(judge) = &self.judge_model {
            judge.score_completions(self.context, self.spec, rows);
        }
    }
}

/// A job's judge alone on a GPU of its own; `None` where it has none there.
///
/// # Errors
/// When the judge's config is not one its family can build.
pub fn simulate_judge(job: &JobSpec) -> Result<Option<Simulation>, SimulateError> {
    let Task::Grpo(grpo) = &job.task else { return Ok(None) };
    let Some(spec) = grpo.judge.as_ref().filter(|judge| judge.place == JudgePlace::OtherGpu) else { return Ok(None) };
    let context = Context::new(job.gpu.device());
    let judge = Judge::load_judge(job, &context, spec)?;
    let rows = job.micro_batch_size.saturating_mul(grpo.steps_per_generation);
    for step in 1..=BATCHES {
        context.begin_step(step);
        context.phase(PhaseKind::Reward);
        judge.score_completions(&context, grpo, rows);
    }
    context.end();
    if let Some(failure) = context.take_failure() {
        return Err(JobError::from(failure).into());
    }
    let parameter_count = judge.parameter_count;
    drop(judge);
    let work = Work { phases: context.take_work(), cycle: 1 };
    Ok(Some(Simulation {
        work,
        trace: context.take_trace(),
        parameter_count,
        trainable_count: 0,
        managed_bytes: 0,
        host: HostMemory::default(),
        repetition: None,
        other_sizes: Vec::new(),
    }))
}
