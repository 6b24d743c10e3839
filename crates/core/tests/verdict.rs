//! Verdicts on GPUs of every size: more memory never makes a job stop fitting, more rows never need less.

use proptest::prelude::*;
use serde_json::{Value, json};
use tonnage_core::alloc::AllocatorConfig;
use tonnage_core::estimate::{Deployment, SimulatedJob, Verdict};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{JobSpec, from_case};
use tonnage_core::plan::fit::verdicts_on;
use tonnage_core::units::MIB;

/// Small models, so that many cases run; their peaks are from some 50 MiB to a few GiB.
fn cases() -> impl Strategy<Value = Value> {
    let model = prop::sample::select(vec![
        json!({"family": "gpt2", "n_layer": 2, "n_embd": 256, "n_head": 4}),
        json!({"family": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 32000}),
        json!({"family": "gpt2", "n_layer": 1, "n_embd": 512, "n_head": 8, "vocab_size": 1000}),
    ]);
    let precision = prop::sample::select(vec!["fp32", "bf16", "amp_bf16", "amp_fp16"]);
    let optimizer = prop::sample::select(vec!["adamw", "adamw_fused", "sgd"]);
    (model, precision, optimizer, 1..6_u64, 1..5_u64, any::<bool>(), 1..3_u64).prop_map(
        |(model, precision, optimizer, rows, lengths, checkpointing, passes)| {
            json!({
                "model": model, "precision": precision, "optimizer": optimizer, "micro_batch": rows * 3,
                "seq_len": lengths * 96, "gradient_checkpointing": checkpointing, "grad_accum": passes,
            })
        },
    )
}

fn settings() -> impl Strategy<Value = AllocatorConfig> {
    const TEXTS: [&str; 4] =
        ["", "expandable_segments:True", "max_split_size_mb:40", "per_process_memory_fraction:0.7"];
    prop::sample::select(&TEXTS[..]).prop_map(|text| AllocatorConfig::parse(text).unwrap())
}

const fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::DoesNotFit(_) => 0,
        Verdict::Tight { .. } => 1,
        Verdict::Fits => 2,
    }
}

fn on(job: &JobSpec, usable_bytes: u64) -> Gpu {
    Gpu { usable_bytes, context_bytes: Some(100 * MIB), ..job.gpu.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn more_memory_never_makes_a_job_stop_fitting(case in cases(), allocator in settings()) {
        let job = JobSpec { allocator, ..from_case(&case).unwrap() };
        let simulated = SimulatedJob::new(&job).unwrap();
        let plenty = simulated.brief_on(&on(&job, 1 << 40)).unwrap();
        prop_assert_eq!(&plenty.verdict, &Verdict::Fits);
        let mut before = 0;
        for share in 70..170 {
            let gpu = on(&job, plenty.total_bytes / 100 * share);
            let estimate = simulated.brief_on(&gpu).unwrap();
            prop_assert!(rank(&estimate.verdict) >= before, "{} %: {:?}", share, estimate.verdict);
            before = rank(&estimate.verdict);
            if job.allocator.per_process_memory_fraction.is_none() {
                prop_assert_eq!(estimate.verdict == Verdict::Fits, estimate.safe_bytes <= gpu.usable_bytes);
            }
        }
        prop_assert!(before > 0);
    }

    // Of the live requests: PyTorch's counter also holds what blocks are larger than asked, which may fall by a little.
    #[test]
    fn more_rows_never_allocate_less(case in cases()) {
        let mut before = 0;
        for rows in [1, 2, 3, 5, 8, 13] {
            let job = JobSpec { micro_batch_size: rows, ..from_case(&case).unwrap() };
            let allocated = SimulatedJob::new(&job).unwrap().estimate().unwrap().rounded512_peak_bytes;
            prop_assert!(allocated >= before, "{} rows allocate {} of {}", rows, allocated, before);
            before = allocated;
        }
    }
}

#[test]
fn the_least_goes_through_and_a_segment_less_does_not() {
    let job = from_case(&json!({"micro_batch": 8, "model": {"family": "gpt2", "n_layer": 4}})).unwrap();
    let simulated = SimulatedJob::new(&job).unwrap();
    let least = simulated.least_reserved().unwrap();
    let (allocated, reserved) = simulated.replay_peaks().unwrap();
    assert!(least <= reserved && least >= allocated / 10 * 9, "{allocated} {least} {reserved}");
    assert!(simulated.run_within(least).is_ok());
    let failed = simulated.run_within(least - 2 * MIB).unwrap_err();
    assert!(failed.requested > 0 && failed.phase.is_some());
}

/// Eight nodes on one GPU: what the processes hold adds up, and more memory never lowers the verdict.
#[test]
fn shared_gpus_are_judged_alike() {
    let job =
        from_case(&json!({"kind": "swarm_node", "questions": 2, "model": {"family": "gpt2", "n_layer": 2}})).unwrap();
    let simulated = SimulatedJob::new(&job).unwrap();
    let fit = |usable: u64| Deployment::new(&simulated, simulated.brief_on(&on(&job, usable)).unwrap()).unwrap().fit();
    let total = simulated.estimate().unwrap().total_bytes;
    let fits: Vec<_> = (1..40).map(|tenths| fit(total * tenths / 10)).collect();
    assert!(fits.windows(2).all(|pair| pair[1] <= pair[0]), "{fits:?}");
}

#[test]
fn gpus_of_one_device_share_a_simulation_and_differ_in_memory() {
    let job = from_case(&json!({"micro_batch": 4, "model": {"family": "gpt2", "n_layer": 2}})).unwrap();
    let gpus: Vec<Gpu> = [1_u64, 2, 8, 64].map(|gib| on(&job, gib << 30)).to_vec();
    let fits: Vec<_> = verdicts_on(&job, &gpus).into_iter().map(|answer| answer.unwrap().fit).collect();
    assert!(fits.windows(2).all(|pair| pair[1] <= pair[0]), "{fits:?}");
}

/// Of a long generation as one of very many replays tokens are left out in leaps of more than a segment's step: nothing is
/// said to fit then, and alone the same job has an upper bound.
#[test]
fn leaps_over_segments_leave_the_range_open() {
    let job = |tokens: u64| {
        from_case(&json!({
            "model": {"family": "llama", "hidden_size": 512, "intermediate_size": 640, "num_hidden_layers": 6,
                "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 512},
            "task": "generate", "micro_batch": 16, "seq_len": 40, "max_new_tokens": tokens, "precision": "bf16",
        }))
        .unwrap()
    };
    let of_replays =
        |job: &JobSpec, replays: u64| SimulatedJob::with_other_devices(job, &[], replays).unwrap().estimate().unwrap();
    let (long, short) = (job(3000), job(400));
    for has_bound in [of_replays(&long, 1), of_replays(&short, 1 << 18)] {
        assert!(has_bound.safe_bytes < u64::MAX && has_bound.verdict == Verdict::Fits, "{:?}", has_bound.caveats);
    }
    let open = of_replays(&long, 1 << 18);
    assert!(open.safe_bytes == u64::MAX && open.verdict != Verdict::Fits, "{:?}", open.caveats);
}
