//! Files that people write, damaged: every reader answers or says in a sentence what is wrong.

mod damage;

use damage::{damage, damaged};
use proptest::prelude::*;
use tonnage_core::gpu::Gpu;

const GPU: &str = "like = \"h100\"\nname = \"mine\"\nusable_gib = 79.1\ncompute_capability = [9, 0]\nmultiprocessors = 132\n\
    bandwidth_gb_s = 3350\nwatts = 700\ntflops = { fp32 = 67, bf16 = 989 }\n";
const GPU_JSON: &str = "{\"like\": \"a100-80\", \"name\": \"mine\", \"usable_bytes\": 80000000000, \"context_bytes\": 500000000, \
    \"link_gb_s\": 300, \"tflops\": {\"fp32\": 19.5, \"tf32\": 156, \"fp16\": 312}}";

fn text(valid: &str, damages: &[damage::Damage]) -> String {
    String::from_utf8_lossy(&damaged(valid.as_bytes().to_vec(), damages)).into_owned()
}

/// A sentence of some lines at most, without what a terminal would obey.
fn is_clear(error: &str) -> bool {
    !error.is_empty() && error.len() < 2_000 && !error.contains('\u{1b}')
}

#[test]
fn the_seeds_are_valid() {
    assert!(Gpu::from_toml(GPU).is_ok() && Gpu::from_json(GPU_JSON).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gpu_files(damages in damage(), is_json in any::<bool>()) {
        let read = if is_json { Gpu::from_json(&text(GPU_JSON, &damages)) } else { Gpu::from_toml(&text(GPU, &damages)) };
        match read {
            // What is taken has bounds that the simulation relies on.
            Ok(gpu) => prop_assert!(gpu.usable_bytes <= 1 << 50 && gpu.multiprocessors > 0),
            Err(error) => prop_assert!(is_clear(&error.to_string()), "{}", error),
        }
    }
}
