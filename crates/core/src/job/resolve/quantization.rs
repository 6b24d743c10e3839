//! Decides how a frozen base is quantized.

use super::chooser::Chooser;
use super::ranks;
use crate::dtype::DType;
use crate::job::{Framework, JobError, JobSpec, QuantizationSpec, QuantizedBase, QuantizedWeights, keys};

/// The quantization of the base, if somebody asked for one.
pub(super) fn resolve_quantization(
    choose: &mut Chooser<'_>,
    job: &JobSpec,
) -> Result<Option<QuantizationSpec>, JobError> {
    let Some(weights) = choose.word_if_said::<QuantizedWeights>(keys::QUANTIZATION)? else { return Ok(None) };
    let is_trl = job.framework == Framework::Trl;
    let (compute, why) = match job.precision.weight_dtype() {
        _ if !is_trl => ("fp32", "BitsAndBytesConfig's default"),
        DType::Bfloat16 => ("bf16", "the weights' dtype, as TRL's get_quantization_config has it"),
        DType::Float16 => ("fp16", "the weights' dtype, as TRL's get_quantization_config has it"),
        _ => ("fp32", "the weights' dtype, as TRL's get_quantization_config has it"),
    };
    let is_four_bit = weights.is_four_bit();
    let is_sharded = ranks::is_fsdp(choose);
    let is_trainers = job.task.facts().quantized_base() == QuantizedBase::Prepared;
    let why_prepared = match (is_trl, is_sharded) {
        _ if is_trainers => "the trainer does it itself",
        (true, _) => "SFTTrainer does not",
        (_, true) => "FSDP wants one dtype",
        _ => "as peft's guide does it",
    };
    let experts = choose.take_switch(keys::QUANTIZE_MOE_EXPERTS);
    let why_prepared = if experts { "experts would be unpacked" } else { why_prepared };
    // peft's preparation casts nothing of a model that GPTQ quantized.
    let is_gptq = weights == QuantizedWeights::Gptq;
    let is_prepared = is_trainers || (!is_trl && !is_sharded && !experts);
    let prepared = !is_gptq && choose.switch_or(keys::PREPARE_FOR_KBIT_TRAINING, is_prepared, why_prepared);
    Ok(Some(QuantizationSpec {
        group_size: if is_gptq { choose.take_size(keys::GPTQ_GROUP_SIZE) } else { 0 },
        recast: prepared && is_four_bit && choose.take_switch(keys::PEFT_MODULE_CASTING_TO_BF16),
        experts,
        weights,
        double: is_four_bit && choose.take_switch(keys::BNB_4BIT_USE_DOUBLE_QUANT),
        compute: if is_four_bit {
            choose.word_or(keys::BNB_4BIT_COMPUTE_DTYPE, compute, why)?
        } else {
            crate::job::ComputeDtype::Bf16
        },
        prepared,
    }))
}
