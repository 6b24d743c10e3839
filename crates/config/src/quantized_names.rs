//! Names of models whose weights somebody else has quantized.

use tonnage_core::job::{Allowance, JobSource, LeftOpen, Override, Preset, keys};

use crate::text::brief_text;

/// How names of checkpoints end that the job itself knows as packed.
const PACKED_ENDS: [&str; 2] = ["-gptq", "-awq"];

/// Whether a model is called as a checkpoint of GPTQ or AWQ, which the job may know by its name.
pub(crate) fn is_packed(name: &str) -> bool {
    let name = name.to_lowercase();
    PACKED_ENDS.iter().any(|end| name.ends_with(end))
}

/// How names of weights end that somebody quantized to 4 bits.
const QUANTIZED_ENDS: [&str; 5] = ["-gptq", "-awq", "-nvfp4", "-bnb-4bit", "-bnb-nf4-bf16"];

/// What stands before that where stacks of experts were taken apart into linear layers, which bitsandbytes packs.
const LINEARIZED: &str = "-linearized";

/// A published model whose weights somebody else has quantized is taken for that model in 4 bits; what to say of it.
pub(crate) fn name_quantized(sets: &mut Vec<Override>, base: &JobSource) -> Vec<LeftOpen> {
    let Some(given) = sets.iter_mut().find(|given| given.key == keys::MODEL) else { return Vec::new() };
    let lower = given.value.to_lowercase();
    let is_here = base.configs.iter().any(|(name, config)| *name == given.value && config.text.is_ok());
    let end = QUANTIZED_ENDS.iter().find(|end| lower.ends_with(*end)).filter(|_| !is_here);
    let short = lower.rsplit('/').next().unwrap_or_default();
    let Some(short) = end.and_then(|end| short.strip_suffix(end)) else { return Vec::new() };
    let whole = short.strip_suffix(LINEARIZED);
    let Some(preset) = Preset::find(whole.unwrap_or(short)) else { return Vec::new() };
    let text = format!(
        "`{}` is by its name {} in 4 bits: it is simulated in bitsandbytes' nf4, and how these weights are kept and unpacked was not \
         measured",
        brief_text(&given.value),
        preset.name
    );
    preset.name.clone_into(&mut given.value);
    let origin = given.origin.clone();
    if !sets.iter().any(|given| given.key == keys::QUANTIZATION) {
        sets.push(Override::new(keys::QUANTIZATION, "nf4", origin.clone()));
    }
    let has_experts = ["num_experts\"", "num_local_experts\""].iter().any(|key| preset.config.contains(key));
    let are_packed = whole.is_some() || !lower.contains("-bnb-");
    if has_experts && are_packed && !sets.iter().any(|given| given.key == keys::QUANTIZE_MOE_EXPERTS) {
        sets.push(Override::new(keys::QUANTIZE_MOE_EXPERTS, "true", origin.clone()));
        // peft's preparation would unpack stacks; what it casts of the rest is what the answer leaves open.
        sets.retain(|given| given.key != keys::PREPARE_FOR_KBIT_TRAINING);
        sets.push(Override::new(keys::PREPARE_FOR_KBIT_TRAINING, "false", origin));
    }
    vec![
        LeftOpen { text: text.clone(), allowance: Allowance::Less },
        LeftOpen { text: format!("{text}: they may take more"), allowance: Allowance::Unknown },
    ]
}
