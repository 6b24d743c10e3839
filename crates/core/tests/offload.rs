//! What offloading keeps on the host, against what PyTorch's caching host allocator and its tensors say of it.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use serde_json::Value;
use tonnage_core::estimate::estimate;
use tonnage_core::job::{JobSource, Override, from_case};
use tonnage_core::trace::Category;

/// Tables of kernels over many tensors are pinned for the moment in which they are copied: at most so many bytes of them stay cached.
const TABLES: u64 = 1 << 15;
/// Batches of the measured jobs, which a data loader pins, two of three int64 tensors: at most so many bytes of blocks.
const BATCHES: u64 = 1 << 17;
/// Counters of steps, four bytes a tensor.
const COUNTERS: u64 = 256;

fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn compare_hosts(set: &str, beside_pinned: u64) {
    let truth = read(&format!("{set}_truth.json"));
    for case in read(&format!("{set}_cases.json")).as_array().unwrap() {
        let measured = &truth["cases"][case["id"].as_str().unwrap()];
        let host = estimate(&from_case(case).unwrap()).unwrap().host;
        for (kind, bytes, beside) in
            [("pinned", host.pinned_bytes, beside_pinned), ("pageable", host.pageable_bytes, COUNTERS)]
        {
            let Some(measured) = measured[format!("host_{kind}_bytes")].as_u64() else { continue };
            assert!(
                (bytes..=bytes + beside).contains(&measured),
                "{}: {kind} {bytes}, measured {measured}",
                case["id"]
            );
        }
    }
}

#[test]
fn the_host_holds_what_was_measured_under_fsdp2() {
    compare_hosts("fsdp_offload", TABLES);
}

#[test]
fn the_host_holds_what_was_measured_under_fsdp1() {
    ["fsdp1", "fsdp1_lora", "fsdp1_qlora"].into_iter().for_each(|name| compare_hosts(name, TABLES));
}

#[test]
fn the_host_holds_what_was_measured_under_deepspeed() {
    ["deepspeed_offload", "deepspeed_stage3_offload"].into_iter().for_each(|name| compare_hosts(name, TABLES));
}

#[test]
fn the_host_holds_what_was_measured_of_activations() {
    compare_hosts("activation_offload", BATCHES);
}

#[test]
fn the_gpu_keeps_neither_shards_nor_states() {
    let ranks = |changes: &[(&str, &str)]| {
        let changes: Vec<Override> = changes.iter().map(|(key, value)| Override::caller(*key, *value)).collect();
        let source = JobSource::model("gpt2").set("world_size", 4).set("parallel", "fsdp2").set("seq_len", 64);
        estimate(&source.resolve(&changes).unwrap().job).unwrap()
    };
    let (on_gpu, on_host) = (ranks(&[]), ranks(&[("fsdp2.cpu_offload", "true")]));
    assert_eq!((on_gpu.host.bytes(), on_host.at_peak.by_category[Category::OptimizerState as usize]), (0, 0));
    // 124,439,808 fp32 parameters on four ranks, padded by less than a row each: shard, gradient and two moments.
    let at_least = 124_439_808 / 4 * 4 * 4;
    assert!((at_least..2 * at_least).contains(&on_host.host.bytes()), "{}", on_host.host.bytes());
    assert!(on_gpu.steady_state_bytes > on_host.steady_state_bytes + 124_439_808 * 3);
}
