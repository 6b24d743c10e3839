//! What an estimate does not know, said with the estimate.

mod of_activations;
mod of_gpu;
mod of_host;
mod of_model;
mod of_optimizer;
mod of_ranks;
mod of_setup;
mod of_streams;
mod quantized;

use crate::job::JobSpec;
use crate::step::Repetition;
use crate::trace::Trace;
use of_activations::{activations_counted, inputs_in_flight};
use of_gpu::{old_gpu, shared_with_host};
pub(super) use of_host::offloaded;
use of_model::{
    context_caveat, convolution_caveat, count_caveat, cudnn_caveat, denoiser_convolutions, device_caveat,
    encoders_caveat, garbage_collection, generic_caveat, images_caveat, judge_caveat, liger_caveat, linear_attention,
    loop_of_shards, loss_scaling, math_attention, plain_loop, prefers_cudnn, towers_caveat,
};
use of_optimizer::{adafactor_of_bf16, decompositions};
use of_ranks::{kept_outputs, ring_ranks, split_caveat};
pub(super) use of_setup::paged_states;
use of_setup::{
    compiled_step, dora_segments, engine_caveat, experts_caveats, flash_attn_package, left_open, nccl_caveat,
    other_kernels, quantized_judge, repeats_caveat, replayed_tokens, silicon_caveat, transformers_caveat,
};
use of_streams::late_frees;
use quantized::{quantized_base, sizes_by_name};

/// Something the reader must know about a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caveat {
    /// A name for programs (`context_not_measured`).
    pub code: &'static str,
    /// What it is, for people.
    pub text: String,
    /// By how many bytes it widens the range, 0 if it does not.
    pub widens_bytes: u64,
    /// Whether the total may be more by them, less, or either.
    pub direction: Direction,
    /// Whether no allowance covers it, so that no GPU surely has enough.
    pub open: bool,
    /// Whether it made the figure what it is, and belongs beside the verdict.
    pub leads: bool,
}

/// Where what is not known may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The total may be more.
    More,
    /// The total may be less.
    Less,
    /// It may be more or less.
    Both,
}

impl Caveat {
    /// A remark that does not widen the range.
    pub fn remark(code: &'static str, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), widens_bytes: 0, direction: Direction::More, open: false, leads: false }
    }

    /// Something that may make the total more or less by `bytes`.
    pub fn widening(code: &'static str, text: impl Into<String>, bytes: u64) -> Self {
        Self { code, text: text.into(), widens_bytes: bytes, direction: Direction::Both, open: false, leads: false }
    }

    /// Something that may make the total more by `bytes`.
    pub fn adding(code: &'static str, text: impl Into<String>, bytes: u64) -> Self {
        Self { code, text: text.into(), widens_bytes: bytes, direction: Direction::More, open: false, leads: false }
    }

    /// Something that may make the total less by `bytes`.
    pub fn saving(code: &'static str, text: impl Into<String>, bytes: u64) -> Self {
        Self { direction: Direction::Less, ..Self::adding(code, text, bytes) }
    }

    /// The same where what it names may be more than it allows for: the job then surely fits nowhere.
    #[must_use]
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// The caveats of a job whose peak is `reserved` bytes and whose model, unsplit and without adapters, has `parameters`.
pub(super) fn all_caveats(
    job: &JobSpec,
    trace: &Trace,
    reserved: u64,
    parameters: u64,
    repetition: Option<Repetition>,
) -> Vec<Caveat> {
    let of_model = [
        math_attention(job, trace, reserved),
        loss_scaling(job),
        context_caveat(&job.gpu),
        cudnn_caveat(job, reserved),
        prefers_cudnn(job),
        count_caveat(job, parameters),
        generic_caveat(job, reserved, parameters),
        judge_caveat(job, trace),
        towers_caveat(job, reserved),
        device_caveat(&job.gpu, reserved),
        old_gpu(&job.gpu),
        shared_with_host(&job.gpu),
        garbage_collection(job),
        liger_caveat(job),
        linear_attention(job),
        convolution_caveat(job, trace),
        denoiser_convolutions(job, trace),
        encoders_caveat(job, reserved, parameters),
        images_caveat(job),
        plain_loop(job, reserved),
        loop_of_shards(job, reserved),
        late_frees(job, trace),
        inputs_in_flight(job, trace),
    ];
    let of_setup = [
        flash_attn_package(job, reserved),
        nccl_caveat(job),
        split_caveat(job, reserved),
        kept_outputs(job),
        ring_ranks(job),
        transformers_caveat(job, reserved),
        silicon_caveat(job, reserved),
        quantized_base(job, reserved),
        sizes_by_name(job, reserved),
        other_kernels(job, reserved),
        dora_segments(job, reserved),
        compiled_step(job),
        quantized_judge(job, trace),
        engine_caveat(job),
        replayed_tokens(trace, reserved),
        repetition.and_then(|run| repeats_caveat(job, run)),
    ];
    let of_model = of_model.into_iter().flatten();
    let of_setup = of_setup
        .into_iter()
        .flatten()
        .chain(experts_caveats(job, trace, reserved).into_iter().flatten())
        .chain(activations_counted(job, reserved).into_iter().flatten())
        .chain(decompositions(job, trace).into_iter().flatten())
        .chain(left_open(job, trace, reserved).chain(adafactor_of_bf16(job, reserved)));
    of_model.chain(of_task(job)).chain(of_setup).collect()
}

/// What the task's own program does otherwise.
fn of_task(job: &JobSpec) -> impl Iterator<Item = Caveat> {
    job.task.facts().remarks(&job.gpu).into_iter().map(|(code, text)| Caveat::remark(code, text))
}
