//! Decides how a frozen base is quantized.

use super::chooser::Chooser;
use super::ranks;
use crate::dtype::DType;
use crate::job::{ComputeDtype, Framework, JobError, JobSpec, QuantizationSpec, QuantizedBase, QuantizedWeights, keys};

/// The quantization of the base, if somebody asked for one.
pub(super) fn resolve_quantization(
    choose: &mut Chooser<'_>,
    job: &JobSpec,
) -> Result<Option<QuantizationSpec>, JobError> {
    let stored = take_stored(choose, job);
    if !stored && !choose.is_said(keys::QUANTIZATION) {
        return Ok(None);
    }
    let weights: QuantizedWeights = choose.take_word(keys::QUANTIZATION)?;
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
    let is_awq = weights == QuantizedWeights::Awq;
    let why_prepared = if is_awq { "peft's guide does it for bitsandbytes" } else { why_prepared };
    let is_prepared = is_trainers || (!is_trl && !is_sharded && !experts && !is_awq);
    let prepared =
        weights.is_cast_by_peft() && choose.switch_or(keys::PREPARE_FOR_KBIT_TRAINING, is_prepared, why_prepared);
    Ok(Some(QuantizationSpec {
        group_size: if weights.is_stored_packed() { choose.take_size(keys::GPTQ_GROUP_SIZE) } else { 0 },
        bits: if weights == QuantizedWeights::GptqModel { choose.take_size(keys::GPTQ_BITS) } else { 4 },
        recast: prepared && is_four_bit && choose.take_switch(keys::PEFT_MODULE_CASTING_TO_BF16),
        experts,
        weights,
        double: is_four_bit && choose.take_switch(keys::BNB_4BIT_USE_DOUBLE_QUANT),
        compute: if is_four_bit { take_compute(choose, compute, why)? } else { ComputeDtype::Bf16 },
        prepared,
    }))
}

/// Puts what the checkpoint's config says of its weights before other defaults; whether it says anything.
fn take_stored(choose: &mut Chooser<'_>, job: &JobSpec) -> bool {
    let Some(stored) = &job.model.beside.stored else { return false };
    let why = || stored.origin().to_owned();
    let rows = stored.rows(job.transformers.is_before_5()).map(|(key, value)| (key, value.to_owned(), why()));
    choose.trainer.splice(0..0, rows);
    true
}

/// `bnb_4bit_compute_dtype`, as the checkpoint has it or by default.
fn take_compute(choose: &mut Chooser<'_>, default: &str, why: &str) -> Result<ComputeDtype, JobError> {
    let key = keys::BNB_4BIT_COMPUTE_DTYPE;
    if choose.trainer.iter().any(|row| row.0 == key) {
        choose.take_word(key)
    } else {
        choose.word_or(key, default, why)
    }
}
