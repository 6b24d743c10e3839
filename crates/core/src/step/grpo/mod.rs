//! GRPO as TRL's `GRPOTrainer` runs it (trl 1.16, transformers 5.17, accelerate 1.15): rollout, rewards, log-probabilities
//! of frozen models, then training passes on what was generated.

mod batch;
mod full_logits;
mod judge;
mod logps;
mod loss;
mod rloo;
mod rollout;
mod scoring;
mod statistics;
mod trainer;
mod vllm;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::building::BuildError;
use crate::job::{GrpoSpec, JobSpec, JudgePlace};
use crate::tensor::Context;

use super::gathered::Processes;
use super::liger::apply_liger_kernels;
use super::models::{Policy, load_reference};
use super::repetition::Repetition;
use super::trainer as hf_trainer;
use super::wrapped::Wrapped;
use judge::Judge;
pub use judge::simulate_judge;
use trainer::{HEAD_OUTPUTS, Trainer};

/// Puts the other models beside the policy and trains.
pub(super) fn train_grpo(
    job: &JobSpec,
    spec: &GrpoSpec,
    context: &Rc<Context>,
    policy: Policy,
) -> Result<Repetition, BuildError> {
    if spec.padded {
        context.pad_rows();
    }
    policy.builder.load_buffers_last();
    let resident = spec.judge.as_ref().filter(|judge| judge.place == JudgePlace::SameGpu);
    let judge_model = resident.map(|judge| Judge::load_judge(job, context, judge)).transpose()?;
    policy.builder.load_adapters_last();
    let reference = reference_of(job, spec, context)?;
    policy.builder.cast_head()?;
    apply_liger_kernels(job, &policy.builder.mode());
    let trainer = Trainer {
        job,
        spec,
        context,
        model: Rc::clone(&policy.model),
        mode: policy.builder.mode(),
        reference,
        judge_model,
        parameters: policy.builder.trainable(),
        adapters: policy.builder.adapters(),
        processes: Processes::of(job),
        wrapped: Wrapped::new(job, context, policy.into_loaded(), HEAD_OUTPUTS),
        last_loaded_step: Cell::new(None),
        buffered_inputs: RefCell::default(),
    };
    Ok(hf_trainer::run_trainer(job, context, &trainer.parameters, &trainer))
}

/// The policy's twin that the divergence is measured from; adapters that can be switched off make one unnecessary.
fn reference_of<'a>(
    job: &'a JobSpec,
    spec: &GrpoSpec,
    context: &'a Rc<Context>,
) -> Result<Option<Wrapped<'a>>, BuildError> {
    let is_needed = spec.beta != 0.0 && job.lora.is_none();
    is_needed.then(|| load_reference(job, context, spec.cast_lm_head_to_fp32)).transpose()
}
