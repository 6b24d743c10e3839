//! FLOPs of simulated steps against `torch.utils.flop_counter` (testdata/flops/measure.py), exactly, by phase and dtype.
//!
//! Conventions are the counter's: two for a multiplication with its addition, biases and elementwise ops not at all, the
//! recomputation of checkpointed layers in the backward pass, attention kernels in full. What a causal kernel skips of that
//! is kept apart ([`tonnage_core::work::Amount::skipped_flops`]).

use std::collections::BTreeMap;

use serde_json::Value;
use tonnage_core::job;
use tonnage_core::step::simulate;
use tonnage_core::work::{Flops, Work};

type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// What the counter would say, phase by phase, without empty entries.
fn counts(work: &Work) -> Counts {
    let mut counts = Counts::new();
    for phase in &work.phases {
        let Flops { float32, bfloat16, float16 } = phase.total().counted_flops();
        for (dtype, flops) in [("float32", float32), ("bfloat16", bfloat16), ("float16", float16)] {
            if flops > 0 {
                *counts.entry(phase.phase.label()).or_default().entry(dtype.to_owned()).or_default() += flops;
            }
        }
    }
    counts
}

#[test]
fn steps_count_as_torch_counts_them() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../../../testdata/flops/cases.json")).unwrap();
    let recorded: BTreeMap<String, Counts> =
        serde_json::from_str(include_str!("../../../testdata/flops/flops.json")).unwrap();
    assert_eq!(cases.len(), recorded.len());
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let simulation = simulate(&job::from_case(case).unwrap()).unwrap();
        assert_eq!(counts(&simulation.work), recorded[id], "{id}");
    }
}
