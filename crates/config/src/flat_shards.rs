//! FSDP's first version: simulated as it is where its flat parameters are, else as the second.

use tonnage_core::job::{JobSource, Origin, Override, keys};

use crate::kinds::fsdp;

const MIXED: &str = "accelerate's mixed precision";

/// The job in FSDP1's flat parameters, where what it was told is simulated with them; else FSDP2 stands for it.
pub fn with_flat_shards(source: JobSource, told: &[(&'static str, String)]) -> JobSource {
    let mut flat = source.clone();
    flat.left_open.retain(|left| left.text != fsdp::FIRST);
    for given in &mut flat.overrides {
        let (key, value) = match (given.key.as_str(), given.value.as_str()) {
            (keys::PARALLEL, "fsdp2") => (keys::PARALLEL, "fsdp1".to_owned()),
            (keys::FSDP2_RESHARD_AFTER_FORWARD, "false") => (keys::FSDP1_SHARDING_STRATEGY, "shard_grad_op".to_owned()),
            (keys::FSDP2_RESHARD_AFTER_FORWARD, _) => (keys::FSDP1_SHARDING_STRATEGY, "full_shard".to_owned()),
            (keys::FSDP2_CPU_OFFLOAD, value) => (keys::FSDP1_CPU_OFFLOAD, value.to_owned()),
            (keys::FSDP2_PARAM_DTYPE, value) => (keys::FSDP1_PARAM_DTYPE, value.to_owned()),
            (keys::FSDP2_REDUCE_DTYPE, value) => (keys::FSDP1_REDUCE_DTYPE, value.to_owned()),
            _ => continue,
        };
        key.clone_into(&mut given.key);
        given.value = value;
    }
    flat.overrides.retain(|given| given.key != keys::FSDP2_CPU_OFFLOAD_PIN_MEMORY);
    let is_mixed = |given: &Override| given.key == keys::PRECISION && matches!(&*given.value, "amp-bf16" | "bf16-amp");
    let mixed = flat.overrides.iter().any(is_mixed).then_some([keys::FSDP1_PARAM_DTYPE, keys::FSDP1_REDUCE_DTYPE]);
    let of_accelerate = |key| Override::new(key, "bf16", Origin::Default(MIXED.to_owned()));
    let told = told.iter().map(|(key, value)| Override::new(*key, value, Origin::Caller));
    let beneath = mixed.into_iter().flatten().map(of_accelerate).chain(told).collect();
    flat.overrides = [beneath, flat.overrides].concat();
    if flat.resolve(&[]).is_ok() { flat } else { source }
}
