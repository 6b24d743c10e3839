//! Properties of every job: any family, any mix of keys.

use proptest::prelude::*;
use serde_json::{Value, json};
use tonnage_core::estimate::{Estimate, EstimateError, SimulatedJob, estimate};
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{
    Attention, CheckpointPolicy, ClipSpec, Ema, Fields, Framework, JobSpec, Kernels, LogitsPath, LoraSpec, LossKernel,
    LowRankSpec, ModelSpec, OptimizerKind, Precision, PreconditionerSpec, Task,
};
use tonnage_core::model_type::language_model_types;
use tonnage_core::step::simulate;
use tonnage_core::trace::{Category, Event, PhaseKind, Trace};

/// Few and many of each size, so that kernels with thresholds are met on both sides.
fn models() -> impl Strategy<Value = ModelSpec> {
    let sizes = (1..4_u64, prop::sample::select(vec![1, 2, 4_u64]), prop::sample::select(vec![8, 16, 40, 64_u64]));
    let others = (1..3_u64, prop::sample::select(vec![7, 100, 1000, 5003_u64]), any::<bool>(), 0..2_u64);
    (prop::sample::select(language_model_types()), sizes, others).prop_map(|(model_type, sizes, others)| {
        let ((layers, heads, head_dim), (groups, vocabulary, tied, dropout)) = (sizes, others);
        let hidden = heads * head_dim;
        let dropout = dropout as f64 / 8.0;
        let config = json!({
            "num_hidden_layers": layers, "n_layer": layers, "num_attention_heads": heads, "n_head": heads,
            "num_key_value_heads": if heads % groups == 0 { heads / groups } else { heads },
            "hidden_size": hidden, "n_embd": hidden, "head_dim": head_dim, "intermediate_size": 2 * hidden,
            "vocab_size": vocabulary, "tie_word_embeddings": tied, "pad_token_id": 0,
            "sliding_window": 16, "attention_dropout": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout,
            "embd_pdrop": dropout, "hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout,
        });
        let Value::Object(fields) = config else { return named(model_type, Fields::default()) };
        named(model_type, Fields(fields))
    })
}

fn named(model_type: &str, config: Fields) -> ModelSpec {
    ModelSpec { name: model_type.to_owned(), model_type: model_type.to_owned(), config, beside: Default::default() }
}

fn precisions() -> impl Strategy<Value = Precision> {
    use Precision::{AmpBf16, AmpFp16, Bf16, Fp16, Fp32};
    prop::sample::select(vec![Fp32, Bf16, Fp16, AmpBf16, AmpFp16])
}

fn optimizers() -> impl Strategy<Value = OptimizerKind> {
    use OptimizerKind::{
        Adafactor, Adam, AdamAtan2, Adamw, Adamw8bit, AdamwForloop, AdamwFused, AdamwTorch4bit, AdamwTorch8bit,
        AoAdamw4bit, Lion, Muon, PagedAdamw8bit, PagedAdamw32bit, ScheduleFreeAdamw, Sgd, SgdMomentum,
    };
    prop::sample::select(vec![
        Adafactor,
        Adam,
        Adamw,
        Adamw8bit,
        AdamwForloop,
        AdamwFused,
        AdamwTorch4bit,
        AdamwTorch8bit,
        AoAdamw4bit,
        Lion,
        AdamAtan2,
        Muon,
        PagedAdamw8bit,
        PagedAdamw32bit,
        ScheduleFreeAdamw,
        Sgd,
        SgdMomentum,
    ])
}

fn loras() -> impl Strategy<Value = Option<LoraSpec>> {
    let targets = prop::sample::select(vec!["all-linear", "q_proj", "c_attn", "query", "nothing"]);
    let lora = (1..9_u64, targets, 0..2_u64).prop_map(|(r, target, dropout)| LoraSpec {
        alpha: 8.0,
        r,
        dropout: dropout as f64 / 10.0,
        targets: vec![target.to_owned()],
        use_dora: false,
        modules_to_save: Vec::new(),
    });
    prop::option::weighted(0.25, lora)
}

const GPUS: [&str; 5] = ["h100", "a100-80", "t4", "l4", "24GiB,sm_120,multiprocessors=100"];

fn jobs() -> impl Strategy<Value = JobSpec> {
    use Attention::{Cudnn, Eager, Flash, Math, MemEfficient, Sdpa};
    let tasks = prop_oneof![6 => Just(true), 1 => Just(false)];
    let sizes = (1..4_u64, 1..80_u64, 1..5_u64, 1..4_u64, 1..4_u32);
    let how = (
        precisions(),
        prop::sample::select(vec![Sdpa, Sdpa, Sdpa, Eager, Math, Flash, MemEfficient, Cudnn]),
        optimizers(),
        loras(),
        prop::sample::select(GPUS.to_vec()),
    );
    let switches = prop::array::uniform8(any::<bool>());
    (models(), tasks, sizes, how, switches).prop_map(|(model, trains, sizes, how, on)| {
        let (micro_batch_size, seq_len, max_new_tokens, gradient_accumulation_steps, steps) = sizes;
        let (precision, attention, optimizer, lora, gpu) = how;
        let bert = model.model_type == "bert";
        let task = match (trains, bert, on[0]) {
            (true, true, _) => Task::MaskedLm,
            (true, false, _) => Task::CausalLm,
            (false, false, true) => Task::Generate,
            (false, ..) => Task::InferenceForward,
        };
        let liger = on[1] && trains && !["bert", "gpt2"].contains(&model.model_type.as_str());
        JobSpec {
            task,
            framework: if on[2] { Framework::Trainer } else { Framework::Loop },
            micro_batch_size,
            seq_len,
            max_new_tokens,
            gradient_accumulation_steps,
            materialized: false,
            places_first: false,
            device_map: false,
            quantization: None,
            precision,
            attention,
            gradient_checkpointing: if on[2] { CheckpointPolicy::EveryLayer } else { CheckpointPolicy::Off },
            optimizer,
            clip_grad_norm: on[3].then_some(ClipSpec { max_norm: 1.0 }),
            decays: on[5],
            low_rank: LowRankSpec::default(),
            preconditioner: PreconditionerSpec::default(),
            optimizer_in_backward: false,
            ema: Ema::Off,
            zero_grad_set_to_none: on[4],
            train_mode: trains && on[5],
            own_labels: trains && on[3],
            padded: on[1].then_some(on[2]),
            padding_free: false,
            use_reentrant: false,
            activation_offload: None,
            row_growth: None,
            lora,
            logits: LogitsPath {
                keep_outputs: on[6],
                logits_to_keep: None,
                loss: if liger { LossKernel::Liger } else { LossKernel::Full },
            },
            use_cache: on[7],
            steps,
            transformers: Default::default(),
            liger_kernels: false,
            kernels: Kernels::default(),
            parallel: Default::default(),
            allocator: Default::default(),
            gpu: Gpu::parse(gpu).unwrap_or_else(|error| panic!("{gpu}: {error}")),
            run: Default::default(),
            left_open: Vec::new(),
            model,
        }
    })
}

/// The estimate; `None` for what PyTorch would refuse as well.
fn estimated(job: &JobSpec) -> Option<Estimate> {
    match estimate(job) {
        Ok(estimate) => Some(estimate),
        Err(EstimateError::Simulate(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Allocations are born once and freed at most once, after their birth.
fn check_lifetimes(trace: &Trace) -> Result<(), TestCaseError> {
    let mut alive = vec![false; trace.allocations.len()];
    let mut born = 0;
    for event in &trace.events {
        match *event {
            Event::Alloc(id) => {
                prop_assert_eq!(id, born);
                born += 1;
                alive[id as usize] = true;
            }
            Event::Free(id) => prop_assert!(std::mem::replace(&mut alive[id as usize], false), "{} freed twice", id),
            Event::Phase(phase) => prop_assert!((phase as usize) < trace.phases.len()),
            Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
        }
    }
    prop_assert_eq!(born as usize, trace.allocations.len());
    prop_assert!(trace.allocations.iter().all(|allocation| allocation.bytes > 0));
    Ok(())
}

fn parameter_bytes(trace: &Trace) -> u64 {
    let parameters = trace.allocations.iter().filter(|allocation| allocation.category == Category::Parameter);
    parameters.map(|allocation| allocation.bytes).sum()
}

/// Bytes that the first forward pass leaves for backward.
fn saved_activations(trace: &Trace) -> u64 {
    let mut alive = 0;
    for event in &trace.events {
        match *event {
            Event::Phase(phase) if trace.phases[phase as usize].kind.name() == "loss" => return alive,
            Event::Alloc(id) => alive += trace.allocations[id as usize].bytes,
            Event::Free(id) => alive -= trace.allocations[id as usize].bytes,
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
        }
    }
    alive
}

/// The events from each batch to the next, by bytes; frees name how long ago their allocation was.
fn passes(trace: &Trace) -> Vec<Vec<(bool, u64)>> {
    let mut passes = Vec::new();
    let mut born = 0;
    for event in &trace.events {
        match *event {
            Event::Phase(phase) if trace.phases[phase as usize].kind == PhaseKind::Input => passes.push(Vec::new()),
            Event::Phase(_) | Event::EmptyCache | Event::Repeat(_) | Event::Growing(_) => {}
            Event::Alloc(id) => {
                born = u64::from(id);
                passes
                    .iter_mut()
                    .rev()
                    .take(1)
                    .for_each(|pass| pass.push((true, trace.allocations[id as usize].bytes)));
            }
            Event::Free(id) => {
                passes.iter_mut().rev().take(1).for_each(|pass| pass.push((false, born - u64::from(id))));
            }
        }
    }
    passes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_job_panics_and_memory_is_freed_once(job in jobs()) {
        let Ok(simulation) = simulate(&job) else { return Ok(()) };
        check_lifetimes(&simulation.trace)?;
        prop_assert!(simulation.trainable_count <= simulation.parameter_count);
        let estimate = estimated(&job);
        prop_assert!(estimate.is_some_and(|estimate| estimate.rounded512_peak_bytes <= estimate.peak_allocated_bytes
            && estimate.peak_allocated_bytes <= estimate.peak_reserved_bytes));
    }

    #[test]
    fn no_size_panics(job in jobs(), exponents in prop::array::uniform7(0..33_u32), odd in 0..2_u64) {
        let size = |at: usize| json!((1_u64 << exponents[at]) + odd);
        let mut job = job;
        let rows = exponents[5].min(32);
        (job.micro_batch_size, job.seq_len) = (1 << rows, 1 << exponents[6].min(32 - rows));
        let keys = [
            ("hidden_size", 0), ("n_embd", 0), ("intermediate_size", 1), ("n_inner", 1), ("vocab_size", 2),
            ("head_dim", 3), ("num_attention_heads", 4), ("n_head", 4), ("num_key_value_heads", 4),
            ("n_positions", 6), ("max_position_embeddings", 6), ("sliding_window", 6),
        ];
        for (key, at) in keys {
            job.model.config.0.insert(key.to_owned(), size(at));
        }
        if let Ok(simulated) = SimulatedJob::new(&job) {
            check_lifetimes(simulated.trace())?;
            prop_assert!(simulated.estimate().is_ok_and(|estimate| estimate.peak_reserved_bytes > 0)
                || simulated.estimate().is_err());
        }
    }

    #[test]
    fn parameters_take_their_dtypes_bytes(job in jobs()) {
        let Ok(simulation) = simulate(&job) else { return Ok(()) };
        let adapters = if job.lora.is_some() { simulation.trainable_count } else { 0 };
        let base = simulation.parameter_count - adapters;
        let bytes = base * job.precision.weight_dtype().size() + adapters * 4;
        prop_assert_eq!(parameter_bytes(&simulation.trace), bytes);
    }

    #[test]
    fn a_larger_batch_never_needs_less(job in jobs(), more in 1..3_u64) {
        let larger = JobSpec { micro_batch_size: job.micro_batch_size + more, ..job.clone() };
        if let (Some(small), Some(large)) = (estimated(&job), estimated(&larger)) {
            prop_assert!(large.rounded512_peak_bytes >= small.rounded512_peak_bytes);
        }
    }

    #[test]
    fn checkpointing_never_saves_more(job in jobs()) {
        if !(job.task.trains() && job.train_mode) {
            return Ok(());
        }
        let with = |gradient_checkpointing| simulate(&JobSpec { gradient_checkpointing, ..job.clone() });
        if let (Ok(off), Ok(on)) = (with(CheckpointPolicy::Off), with(CheckpointPolicy::EveryLayer)) {
            prop_assert!(saved_activations(&on.trace) <= saved_activations(&off.trace));
        }
    }

    #[test]
    fn passes_and_steps_repeat(job in jobs(), more in 1..5_u64) {
        if !job.task.trains() {
            return Ok(());
        }
        // The Trainer brings all batches of a step first.
        let job = JobSpec { framework: Framework::Loop, ..job };
        let with = |passes, steps| JobSpec { gradient_accumulation_steps: passes, steps, ..job.clone() };
        let Ok(simulation) = simulate(&with(5, 3)) else { return Ok(()) };
        let passes = passes(&simulation.trace);
        prop_assert_eq!(passes.len(), 15);
        for step in passes.chunks(5) {
            prop_assert_eq!(&step[2], &step[3], "passes of a step");
            prop_assert_eq!(&step[2][..step[2].len() / 2], &step[4][..step[2].len() / 2], "the last pass of a step");
        }
        prop_assert_eq!(&passes[6..10], &passes[11..15], "steps");
        // Blocks may lie elsewhere each time, so only what is asked for is the same.
        let peak = |job| estimated(&job).map(|estimate| estimate.rounded512_peak_bytes);
        prop_assert_eq!(peak(with(4, 3)), peak(with(4 + more, 3 + more as u32)));
    }
}
