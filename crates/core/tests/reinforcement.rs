//! Swarm nodes and DPO against their reference cases, and what must hold for every size of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tonnage_core::alloc::{AllocatorConfig, CachingAllocator, replay_trace};
use tonnage_core::estimate::estimate;
use tonnage_core::job::from_case;
use tonnage_core::step::simulate;

fn read(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/truth").join(file);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Peaks of all phases but the last, whose peak is not that of the job.
fn predicted(case: &Value) -> BTreeMap<String, u64> {
    let estimate = estimate(&from_case(case).unwrap()).unwrap();
    estimate.peak_per_phase.iter().map(|peak| (peak.phase.label(), peak.allocated)).collect()
}

fn compare_phases(set: &str) {
    let truth = read(&format!("{set}_truth.json"));
    for case in read(&format!("{set}_cases.json")).as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let measured = truth["cases"][id]["peak_per_phase"].as_object().unwrap();
        let predicted = predicted(case);
        let (mut equal, mut wrong) = (0, Vec::new());
        for (label, peak) in measured {
            match predicted.get(label) {
                Some(predicted) if Some(*predicted) == peak.as_u64() => equal += 1,
                Some(predicted) => wrong.push(format!("{label} {predicted} instead of {peak}")),
                None => {}
            }
        }
        assert!(wrong.is_empty(), "{id}: {wrong:?}");
        assert!(equal >= 8, "{id}: only {equal} phases in common");
    }
}

#[test]
fn every_phase_of_a_swarm_node_peaks_where_it_was_measured() {
    compare_phases("swarm_mixed");
}

#[test]
fn every_phase_of_dpo_peaks_where_it_was_measured() {
    compare_phases("dpo");
}

#[test]
fn every_phase_of_a_reward_model_peaks_where_it_was_measured() {
    compare_phases("../families/reward");
}

#[test]
fn every_phase_of_dpo_on_a_quantized_base_peaks_where_it_was_measured() {
    compare_phases("../families/dpo_quantized");
}

fn node(changes: &[(&str, u64)]) -> Value {
    let mut case = json!({
        "kind": "swarm_node", "prompt_len": 12, "completion_len": 10, "questions": 2, "group": 4,
        "model": {"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2, "vocab_size": 900}
    });
    for (key, value) in changes {
        case[key] = json!(value);
    }
    case
}

#[test]
fn a_stretch_recorded_once_costs_what_it_costs_every_time() {
    let trace = simulate(&from_case(&node(&[("group", 9)])).unwrap()).unwrap().trace;
    assert!(!trace.repeats.is_empty());
    let figures = |trace: &_| {
        let mut allocator = CachingAllocator::new(AllocatorConfig::default(), None);
        replay_trace(&mut allocator, trace).unwrap().total
    };
    let unrolled = trace.unrolled();
    assert!(unrolled.events.len() > 2 * trace.events.len());
    assert_eq!(
        (figures(&trace).peak_allocated, figures(&trace).peak_reserved, figures(&trace).allocated),
        (figures(&unrolled).peak_allocated, figures(&unrolled).peak_reserved, figures(&unrolled).allocated)
    );
}

fn peak(case: &Value) -> u64 {
    estimate(&from_case(case).unwrap()).unwrap().peak_allocated_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn more_rows_or_longer_completions_never_lower_the_peak(rows in 1u64..24, tokens in 2u64..40, more in 1u64..20) {
        let base = peak(&node(&[("train_rows", rows), ("completion_len", tokens)]));
        prop_assert!(peak(&node(&[("train_rows", rows + more), ("completion_len", tokens)])) >= base);
        prop_assert!(peak(&node(&[("train_rows", rows), ("completion_len", tokens + more)])) >= base);
    }
}
