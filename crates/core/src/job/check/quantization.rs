//! What a quantized base can be trained with, as far as it is simulated.

use crate::dtype::DType;
use crate::job::{
    FlatInit, Framework, JobError, JobSpec, Precision, QuantizedBase, QuantizedWeights, ShardInit, Strategy, Task, keys,
};

/// Refuses what transformers refuses, and what of quantized training is not simulated.
pub(super) fn check_quantization(job: &JobSpec) -> Result<(), JobError> {
    if job.quantization.is_none() {
        return Ok(());
    }
    let refused = |problem: &str| JobError::new(format!("`quantization`: {problem}")).about(&[keys::QUANTIZATION]);
    let is_four_bit = job.quantization.is_some_and(|quantization| quantization.weights.is_four_bit());
    match job.task.facts().quantized_base() {
        QuantizedBase::Refused => {
            return Err(
                refused("quantized models are simulated in plain training, DPO, KTO, ORPO and CPO").or_rehearse()
            );
        }
        // Its products at the fp32 head's side were not measured.
        QuantizedBase::Prepared if !is_four_bit => {
            return Err(refused("ORPO and CPO are simulated on bases in 4 bits, none in int8")
                .hint("set quantization = \"nf4\"")
                .or_rehearse());
        }
        QuantizedBase::Prepared | QuantizedBase::AsLoaded => (),
    }
    if job.lora.is_none() {
        return Err(refused("transformers does not train quantized weights themselves")
            .hint("train adapters on them: set lora.r, or lora.targets = \"all-linear\""));
    }
    check_packed(job)?;
    if job.quantization.is_some_and(|quantization| quantization.recast) && job.precision != Precision::Bf16Amp {
        return Err(refused("TRL casts what peft prepared to bf16 under bf16 autocast alone")
            .about(&[keys::PEFT_MODULE_CASTING_TO_BF16, keys::PRECISION])
            .hint("set precision = \"bf16-amp\""));
    }
    let packs_experts = job.quantization.is_some_and(|quantization| quantization.experts);
    if packs_experts && job.quantization.is_some_and(|quantization| quantization.prepared) {
        return Err(refused("peft's preparation would unpack quantized experts")
            .about(&[keys::QUANTIZE_MOE_EXPERTS, keys::PREPARE_FOR_KBIT_TRAINING])
            .hint("set prepare_for_kbit_training = false, or leave it out"));
    }
    check_gptqmodel(job)?;
    match PackedShards::of_strategy(job.parallel.strategy) {
        Some(shards) => shards.check(job),
        None if matches!(job.parallel.strategy, Strategy::None | Strategy::Ddp(_)) => Ok(()),
        None => Err(refused("of several ranks only DDP and FSDP are simulated with quantized bases").or_rehearse()),
    }
}

/// Refuses what of checkpoints that have their weights packed was not measured.
fn check_packed(job: &JobSpec) -> Result<(), JobError> {
    let Some(weights) = job.quantization.map(|quantization| quantization.weights) else { return Ok(()) };
    let refused = |problem: &str| JobError::new(format!("`quantization`: {problem}")).about(&[keys::QUANTIZATION]);
    let stored = job.model.beside.stored.as_ref();
    if stored.is_some_and(|stored| !stored.is_of(weights)) {
        return Err(refused("the checkpoint's weights are packed otherwise already, as its config says")
            .hint("leave `quantization` out, or name the whole model"));
    }
    let of_next_tokens = job.task == Task::CausalLm;
    // Of stacks of experts no checkpoint of GPTQ or AWQ was seen.
    let has_stacks = job.model.facts().has_experts && !job.transformers.loops_over_experts();
    let in_trl = job.framework == Framework::Trl && weights == QuantizedWeights::Gptq;
    if !weights.is_stored_packed() || !(in_trl || !of_next_tokens || has_stacks) {
        return Ok(());
    }
    let problem = "bases of GPTQ and AWQ are simulated in plain training on next tokens, without stacks of experts";
    let error = refused(problem);
    Err(match (has_stacks, of_next_tokens) {
        (true, _) => error.or_rehearse(),
        (_, true) => error.hint("set framework = \"trainer\"").or_rehearse(),
        (_, false) if stored.is_some() => error.or_rehearse(),
        (_, false) => error.hint("set quantization = \"nf4\", whose weights take about as much").or_rehearse(),
    })
}

/// Refuses what gptqmodel's layers are not, or not yet.
fn check_gptqmodel(job: &JobSpec) -> Result<(), JobError> {
    let Some(quantization) = job.quantization.filter(|quantization| quantization.weights.is_gptqmodels()) else {
        return Ok(());
    };
    let refused = |problem: &str, beside| {
        JobError::new(format!("`quantization`: {problem}")).about(&[keys::QUANTIZATION, beside])
    };
    let is_awq = quantization.weights == QuantizedWeights::Awq;
    if job.transformers.is_before_5() {
        let error = refused("transformers 4 has other layers for these checkpoints", keys::TRANSFORMERS);
        return Err(if is_awq { error.or_rehearse() } else { error.hint("set quantization = \"gptq\"") });
    }
    let dtypes = [job.precision.weight_dtype(), job.precision.autocast_dtype().unwrap_or(DType::Float16)];
    if is_awq && dtypes.contains(&DType::Bfloat16) {
        let problem = "transformers casts a model of AWQ's to fp16, and bf16 over it is not simulated";
        return Err(refused(problem, keys::PRECISION)
            .hint("set precision = \"fp16-amp\" (dtype=\"float16\" and fp16=True of the Trainer), or \"fp16\""));
    }
    if !quantization.bits.is_power_of_two() {
        return Err(refused("weights in 3, 5, 6 and 7 bits lie across words, which is not simulated", keys::GPTQ_BITS)
            .hint("set gptq_bits to 2, 4 or 8")
            .or_rehearse());
    }
    Ok(())
}

/// How FSDP shards packed weights: it casts and gathers floating dtypes, of which `bnb_4bit_quant_storage` must be the one that
/// all others have.
struct PackedShards {
    /// Whether weights are on the device when they are sharded, where they are packed.
    loads_whole: bool,
    param_dtype: Option<DType>,
    init: [&'static str; 2],
    cast: &'static str,
}

impl PackedShards {
    fn of_strategy(strategy: Strategy) -> Option<Self> {
        match strategy {
            Strategy::Fsdp1(options) => Some(Self {
                loads_whole: options.init == FlatInit::Device,
                param_dtype: options.param_dtype,
                init: [keys::FSDP1_INIT, "set fsdp1.init = \"device\", or leave it out"],
                cast: keys::FSDP1_PARAM_DTYPE,
            }),
            Strategy::Fsdp2(policy) => Some(Self {
                loads_whole: policy.init == ShardInit::Full,
                param_dtype: policy.param_dtype,
                init: [keys::FSDP2_INIT, "set fsdp2.init = \"full\", or leave it out"],
                cast: keys::FSDP2_PARAM_DTYPE,
            }),
            _ => None,
        }
    }

    fn check(&self, job: &JobSpec) -> Result<(), JobError> {
        let refused = |problem: &str| JobError::new(format!("`quantization`: {problem}")).about(&[keys::QUANTIZATION]);
        let Some(quantization) = job.quantization else { return Ok(()) };
        if quantization.experts {
            return Err(refused("experts in 4 or 8 bits are not simulated under FSDP, which shards no bytes")
                .about(&[keys::QUANTIZE_MOE_EXPERTS])
                .hint("set parallel = \"ddp\"")
                .or_rehearse());
        }
        if !quantization.weights.is_shardable() {
            return Err(refused(
                "FSDP shards bitsandbytes' 4 bits and \"gptq\" alone: those of int8 and others are no floating dtype",
            )
            .hint("set quantization = \"nf4\", or parallel = \"ddp\"")
            .or_rehearse());
        }
        let [init, hint] = self.init;
        if !self.loads_whole {
            return Err(refused("weights are packed on each device before FSDP shards them").about(&[init]).hint(hint));
        }
        if quantization.prepared {
            return Err(refused("peft's preparation leaves FSDP's groups with several dtypes")
                .about(&[keys::PREPARE_FOR_KBIT_TRAINING])
                .hint("set prepare_for_kbit_training = false, or leave it out"));
        }
        let stored = job.precision.weight_dtype();
        if stored == DType::Float32 || self.param_dtype.is_some_and(|dtype| dtype != stored) {
            return Err(refused(
                "packed weights are stored in the weights' dtype, and a cast would break what they hold",
            )
            .about(&[keys::PRECISION, self.cast])
            .hint(format!("set precision = \"bf16\", with {} = \"bf16\"", self.cast)));
        }
        Ok(())
    }
}
