//! The hierarchical reasoning model: every phase of every reference case, and what its users are told about memory.

use serde_json::{Value, json};
use tonnage_core::estimate::{Estimate, estimate};
use tonnage_core::job::from_case;

fn estimated(case: &Value) -> Estimate {
    estimate(&from_case(case).unwrap()).unwrap_or_else(|error| panic!("{case}: {error}"))
}

fn sudoku(changes: &Value) -> Estimate {
    let mut case = json!({"kind": "hrm", "batch": 32, "steps": 2});
    case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    estimated(&case)
}

#[test]
fn every_phase_of_every_case_is_exact() {
    let pairs = [
        (
            include_str!("../../../testdata/truth/hrm_cases.json"),
            include_str!("../../../testdata/truth/hrm_truth.json"),
        ),
        (
            include_str!("../../../testdata/truth/hrm_mixed_cases.json"),
            include_str!("../../../testdata/truth/hrm_mixed_truth.json"),
        ),
    ];
    for (cases, truth) in pairs {
        let cases: Vec<Value> = serde_json::from_str(cases).unwrap();
        let truth: Value = serde_json::from_str(truth).unwrap();
        for case in &cases {
            let measured = &truth["cases"][case["id"].as_str().unwrap()];
            let found = estimated(case);
            assert_eq!(measured["peak_reserved_bytes"], found.peak_reserved_bytes, "{case}");
            let phases = measured["peak_per_phase"].as_object().unwrap();
            for phase in found.peak_per_phase.iter().filter(|phase| !phase.phase.label().ends_with(":end")) {
                let label = phase.phase.label();
                assert_eq!(phases[&label], phase.allocated, "{label} of {case}");
            }
        }
    }
}

#[test]
fn the_published_model_has_its_published_parameters() {
    let found = sudoku(&json!({}));
    assert_eq!((found.parameter_count, found.trainable_count), (27_275_266, 27_275_266));
}

#[test]
fn thinking_longer_costs_no_memory() {
    // Live bytes; blocks that the allocator did not split may differ by where they lie.
    let peak = |h, l| sudoku(&json!({"H_cycles": h, "L_cycles": l})).rounded512_peak_bytes;
    assert_eq!(peak(2, 2), peak(4, 4));
    assert_eq!(peak(2, 2), peak(2, 8));
    // A single cycle begins at the carry itself, so that two states of a level never meet.
    assert!(peak(1, 1) < peak(2, 2));
}

#[test]
fn more_rows_never_lower_the_peak() {
    let peaks: Vec<u64> =
        (1..=40).step_by(3).map(|batch| sudoku(&json!({"batch": batch, "steps": 1})).rounded512_peak_bytes).collect();
    assert!(peaks.windows(2).all(|pair| pair[0] <= pair[1]), "{peaks:?}");
}

#[test]
fn the_target_of_halting_is_what_the_forward_pass_peaks_with() {
    let thinks_ahead = sudoku(&json!({}));
    let halts_at_once = sudoku(&json!({"halt_max_steps": 1}));
    assert!(thinks_ahead.peak_phase.label().ends_with(":forward"));
    assert!(halts_at_once.peak_phase.label().ends_with(":backward"));
    assert!(halts_at_once.peak_allocated_bytes < thinks_ahead.peak_allocated_bytes);
}

#[test]
fn a_model_without_puzzle_embeddings_has_no_optimizer_for_them() {
    let without = sudoku(&json!({"puzzle_emb_ndim": 0}));
    assert!(without.peak_per_phase.iter().all(|phase| !phase.phase.label().ends_with("emb_optimizer")));
    assert!(without.caveats.iter().any(|caveat| caveat.code == "hrm_eager"));
}
