//! What ranks send each other in a step, as a rough bound: bytes of the collectives over the rate of the link.

use crate::dtype::DType;
use crate::gpu::Rates;
use crate::job::{DeepSpeed, Fsdp1, Fsdp2, JobSpec, Strategy};

use super::assumption::assumed_range;
use super::{Range, seconds_at};

/// Bytes that a rank sends in one optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communication {
    /// Bytes, in one direction.
    pub bytes_per_step: u64,
}

/// Parameters of the model and those that are trained.
#[derive(Clone, Copy)]
struct Sizes {
    parameters: u64,
    trainable: u64,
    weight: DType,
}

/// The communication of a job with so many parameters; `None` where it is not reckoned with (activations sent between the
/// parts of a layer or of a model, keys and values between ranks that share a row's tokens).
pub fn communication_of(job: &JobSpec, parameter_count: u64, trainable_count: u64) -> Option<Communication> {
    if job.parallel.ring().is_some() {
        return None;
    }
    let world_size = job.parallel.world_size.max(1);
    let passes = job.gradient_accumulation_steps.max(1);
    let sizes = Sizes { parameters: parameter_count, trainable: trainable_count, weight: job.precision.weight_dtype() };
    let whole = match job.parallel.strategy {
        Strategy::None => 0,
        Strategy::DataParallel => sizes.all_bytes().saturating_add(sizes.gradient_bytes()).saturating_mul(passes),
        Strategy::Ddp(_) | Strategy::AllReduce => all_reduce(sizes.gradient_bytes()),
        Strategy::Zero1 { .. } => all_reduce(sizes.gradient_bytes()).saturating_add(sizes.gradient_bytes()),
        Strategy::Fsdp1(Fsdp1 { param_dtype, reduce_dtype, reshard_after_forward, .. })
        | Strategy::Fsdp2(Fsdp2 { param_dtype, reduce_dtype, reshard_after_forward, .. }) => {
            let gathers = if reshard_after_forward { 2 } else { 1 };
            let gathered = bytes_of(sizes.parameters, param_dtype.unwrap_or(sizes.weight));
            let reduced = bytes_of(sizes.trainable, reduce_dtype.or(param_dtype).unwrap_or(sizes.weight));
            gathered.saturating_mul(gathers).saturating_mul(passes).saturating_add(reduced)
        }
        Strategy::DeepSpeed(DeepSpeed { stage: 3, .. }) => {
            sizes.all_bytes().saturating_mul(2).saturating_mul(passes).saturating_add(sizes.gradient_bytes())
        }
        Strategy::DeepSpeed(_) => all_reduce(sizes.gradient_bytes()),
        Strategy::TensorParallel { .. } | Strategy::PipelineParallel { .. } => return None,
    };
    let (shards, _) = job.parallel.sharding_group();
    let replicate_size = world_size / shards.max(1);
    let bytes_per_step = match job.parallel.strategy {
        Strategy::Fsdp1(_) | Strategy::Fsdp2(_) => {
            let reduced = all_reduce(sizes.gradient_bytes() / shards.max(1));
            share_of_others(whole, shards).saturating_add(share_of_others(reduced, replicate_size))
        }
        _ => share_of_others(whole, world_size),
    };
    Some(Communication { bytes_per_step })
}

impl Sizes {
    const fn all_bytes(self) -> u64 {
        bytes_of(self.parameters, self.weight)
    }

    const fn gradient_bytes(self) -> u64 {
        bytes_of(self.trainable, self.weight)
    }
}

const fn bytes_of(count: u64, dtype: DType) -> u64 {
    count.saturating_mul(dtype.size())
}

/// A reduce-scatter and an all-gather.
const fn all_reduce(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// What a rank sends round a ring of `world_size`: its own share stays.
fn share_of_others(bytes: u64, world_size: u64) -> u64 {
    (u128::from(bytes) * u128::from(world_size - 1) / u128::from(world_size)) as u64
}

impl Communication {
    /// Seconds that it adds to a step: from none, where computing hides it all, to all of it. `None` where the link's rate is
    /// not known.
    pub fn seconds_per_step(&self, rates: &Rates) -> Option<Range> {
        if self.bytes_per_step == 0 {
            return Some(Range::default());
        }
        Some(
            seconds_at(self.bytes_per_step, rates.link?, assumed_range("link"))
                .times(assumed_range("exposed_communication")),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::{self, Ddp, Parallel, TensorPlan};

    #[test]
    fn ranks_send_what_their_collectives_do() {
        let case = json!({"model": {"family": "gpt2"}, "precision": "fp32", "micro_batch": 1, "seq_len": 8});
        let mut job = job::from_case(&case).unwrap();
        let sent = |job: &JobSpec| communication_of(job, 100, 80).map(|communication| communication.bytes_per_step);
        assert_eq!(sent(&job), Some(0));
        job.parallel = Parallel { world_size: 4, rank: 0, strategy: Strategy::Ddp(Ddp::default()) };
        assert_eq!(sent(&job), Some(2 * 80 * 4 * 3 / 4));
        job.parallel.strategy = Strategy::DeepSpeed(DeepSpeed::stage(3));
        job.gradient_accumulation_steps = 5;
        assert_eq!(sent(&job), Some((5 * 2 * 400 + 320) * 3 / 4));
        job.parallel.strategy = Strategy::TensorParallel { size: 4, plan: TensorPlan::Megatron };
        assert_eq!(sent(&job), None);
    }

    #[test]
    fn groups_of_shards_gather_within_and_reduce_between() {
        let case = json!({"kind": "parallel", "strategy": "fsdp1", "world": 8, "replicate": 2, "grad_accum": 1});
        let job = job::from_case(&case).unwrap();
        let sent = communication_of(&job, 100, 80).map(|communication| communication.bytes_per_step);
        let (within, between) = ((2 * 400 + 320) * 3 / 4, 2 * (320 / 4) / 2);
        assert_eq!(sent, Some(within + between));
    }

    #[test]
    fn at_best_it_is_hidden() {
        let rates = Rates { link: Some(1_000), ..Rates::default() };
        let seconds = Communication { bytes_per_step: 700 }.seconds_per_step(&rates).unwrap();
        assert_eq!((seconds.low, seconds.high), (0.0, 1.4));
        assert!((seconds.typical - 0.5).abs() < 1e-9);
        assert_eq!(Communication { bytes_per_step: 700 }.seconds_per_step(&Rates::default()), None);
    }
}
