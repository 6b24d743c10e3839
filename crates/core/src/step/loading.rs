//! What `from_pretrained(device_map=...)` takes before the weights come (transformers 5.17, modeling_utils.py).

use std::rc::Rc;

use crate::alloc::{CachingAllocator, replay_trace};
use crate::building::{BuildError, Builder, FourBit, Mode, Quantization};
use crate::dtype::DType;
use crate::family::Family;
use crate::job::{CheckpointPolicy, Framework, JobSpec, ModelSpec, QuantizedBase, QuantizedWeights};
use crate::model::family::RunOptions;
use crate::op::full;
use crate::tensor::{Context, Tensor};

/// 1.2 GiB of the device, which `caching_allocator_warmup` leaves free.
const NOT_WARMED: u64 = 1_288_490_188;
/// 1.5 GiB: less than that is not warmed where the allocator has the rest already.
const NOT_WORTH_IT: u64 = 3 << 29;

/// Whether models are loaded by a `device_map`, or by a plan that divides their layers, which goes the same way. TRL's trainers take it back where there are several ranks (trl 1.16,
/// sft_trainer.py, dpo_trainer.py and grpo_trainer.py).
pub(super) fn is_by_device_map(job: &JobSpec) -> bool {
    // bitsandbytes' quantizer puts it back.
    let is_taken_back = job.framework == Framework::Trl && job.parallel.world_size > 1 && job.quantization.is_none();
    (job.device_map && !is_taken_back) || job.parallel.ranks_of_layers().is_some()
}

/// Whether weights then come in the order of their names.
pub(super) fn is_by_name(job: &JobSpec) -> bool {
    is_by_device_map(job) && job.transformers.loads_by_name()
}

/// The builder of the job's model, whose base may be quantized.
pub(super) fn quantized(builder: Builder, job: &JobSpec) -> Builder {
    let Some(spec) = job.quantization else { return builder };
    let form = match spec.weights {
        QuantizedWeights::Int8 => Quantization::Int8,
        QuantizedWeights::Gptq => Quantization::Gptq { group: spec.group_size },
        QuantizedWeights::GptqModel => Quantization::GptqModel { bits: spec.bits, group: spec.group_size },
        QuantizedWeights::Awq => Quantization::Awq { group: spec.group_size },
        QuantizedWeights::Nf4 | QuantizedWeights::Fp4 => {
            Quantization::FourBit(FourBit { double: spec.double, compute: spec.compute.dtype() })
        }
    };
    let adapters = casts_adapters(job).then_some(DType::Bfloat16);
    let heads = casts_heads(job).then_some(DType::Bfloat16);
    let builder = builder.quantized(Some(form)).quantizing_experts(spec.experts).prepared(spec.prepared);
    builder.adapters_in(adapters).heads_in(heads)
}

/// Whether TRL's trainer casts adapters on a quantized base.
pub(super) fn casts_adapters(job: &JobSpec) -> bool {
    // By `is_loaded_in_4bit` and `is_loaded_in_8bit`, which models of GPTQ and AWQ do not have.
    let is_bitsandbytes = !job.quantization.is_some_and(|spec| spec.weights.is_stored_packed());
    job.framework == Framework::Trl && is_bitsandbytes && job.task.facts().quantized_base() == QuantizedBase::AsLoaded
}

/// Whether TRL's trainer casts embeddings and head back that peft's preparation cast to fp32 (trl 1.16, experimental/utils.py,
/// `peft_module_casting_to_bf16`).
fn casts_heads(job: &JobSpec) -> bool {
    let is_four_bit = job.quantization.is_some_and(|spec| spec.weights.is_four_bit());
    if job.quantization.is_some_and(|spec| spec.recast) {
        return true;
    }
    let is_trainers = job.framework == Framework::Trl && job.task.facts().quantized_base() == QuantizedBase::Prepared;
    is_four_bit && is_trainers && job.precision.autocast_dtype() == Some(DType::Bfloat16)
}

/// `caching_allocator_warmup`: one block of the size of all parameters, without what the allocator has unused, given back to it at
/// once.
pub(super) fn warm_up(
    job: &JobSpec,
    context: &Rc<Context>,
    (model, family): (&ModelSpec, Family),
    dtype: DType,
) -> Result<(), BuildError> {
    // Axolotl switches it off where experts are quantized (monkeypatch/moe_quant.py).
    if !job.transformers.warms_allocator_up() || job.quantization.is_some_and(|quantization| quantization.experts) {
        return Ok(());
    }
    let elsewhere = Context::new(job.gpu.device());
    elsewhere.install_transformers(job.transformers);
    let builder = Builder::new(&elsewhere, dtype, None, Mode::new(false, CheckpointPolicy::Off));
    let builder = quantized(builder, job).prepared(false).over_ranks(job.parallel.ranks_of_layers());
    let options = RunOptions { attention: job.attention, mode: builder.mode(), frozen_base: false, tower: None };
    family.build_language_model(model, &builder, &options)?;
    let bytes: u64 = builder.parameters().iter().map(Tensor::bytes).sum();
    // TRL loads with device_map="auto" (trainer/utils.py, `create_model_from_path`): accelerate first asks each device how much it
    // has, with a tensor of its own (utils/modeling.py, `get_max_memory`).
    if job.framework == Framework::Trl && job.parallel.world_size == 1 {
        full(context, "empty.memory_format", &[1], DType::Int64);
    }
    let bytes = bytes_to_warm(bytes, unused_bytes(job, context)).min(job.gpu.usable_bytes.saturating_sub(NOT_WARMED));
    full(context, "empty.memory_format", &[bytes / 2], DType::Float16);
    Ok(())
}

/// Of a model of so many bytes, where so many are reserved and unused.
fn bytes_to_warm(bytes: u64, unused: u64) -> u64 {
    let missing = bytes.saturating_sub(unused);
    if missing > unused {
        missing
    } else if missing > NOT_WORTH_IT {
        unused + 1
    } else {
        0
    }
}

/// What the allocator holds and nothing uses, by what was recorded so far.
fn unused_bytes(job: &JobSpec, context: &Context) -> u64 {
    let mut allocator = CachingAllocator::new(job.allocator.clone(), None);
    // Without a capacity nothing is refused.
    let _replayed = replay_trace(&mut allocator, &context.trace_so_far());
    let stats = allocator.stats();
    stats.reserved.saturating_sub(stats.allocated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unused_is_not_asked_for_again() {
        const GIB: u64 = 1 << 30;
        assert_eq!(bytes_to_warm(10 * GIB, 0), 10 * GIB);
        assert_eq!(bytes_to_warm(10 * GIB, GIB), 9 * GIB);
        // A block of 3 GiB would come out of the 7 that are there.
        assert_eq!(bytes_to_warm(10 * GIB, 7 * GIB), 7 * GIB + 1);
        assert_eq!(bytes_to_warm(8 * GIB, 7 * GIB), 0);
    }
}
