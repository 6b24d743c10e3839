//! A training step over the phantom GPU beside what is estimated of the same job: both peaks, and every allocation and free in order.
//!
//! `TONNAGE_TORCH` names a libtorch with CUDA, `TONNAGE_TORCH_PRELOAD` the phantom's library.

#[path = "../../torch/tests/support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tonnage_core::estimate::estimate;
use tonnage_core::job::{
    Attention, CheckpointPolicy, Ddp, Fields, JobSource, JobSpec, LoraSpec, ModelSpec, OptimizerKind, Parallel,
    Precision, Strategy, Task,
};
use tonnage_core::recording::{Names, RecordedEvent, Recording, compare_recordings, read_snapshot};
use tonnage_core::step::simulate;
use tonnage_torch::{Buckets, Device, Group, Reducer, Tensor, Torch};
use tonnage_train::optimizer::{
    Adam, AdamAtan2, AdamAtan2Options, AdamOptions, Implementation, Optimizer, SparseSignSgd, SparseSignSgdOptions,
};
use tonnage_train::ranks::{Alone, Joined, Place, Ranks, ServedBy};
use tonnage_train::reasoning::{Puzzles, ReasoningModel, SegmentTrainer};
use tonnage_train::{Call, LanguageModel, Output, Weights, scalar_type};

const GPU: Device = Device::Cuda(0);
/// Which job a child runs.
const JOB: &str = "TONNAGE_TEST_JOB";
const THIS: &str = "a_step_allocates_what_is_estimated";

fn decoder(more: Value) -> Value {
    let mut config = json!({
        "vocab_size": 4000, "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "max_position_embeddings": 512,
    });
    let more = more.as_object().expect("an object").clone();
    config.as_object_mut().expect("an object").extend(more);
    config
}

fn job(model_type: &str, config: Value, change: &dyn Fn(&mut JobSpec)) -> JobSpec {
    let mut job = JobSource::model("gpt2")
        .set("gpu", "h200")
        .set("micro_batch_size", 4)
        .set("seq_len", 128)
        .set("steps", 2)
        .set("framework", "loop")
        .resolve(&[])
        .expect("a job")
        .job;
    let Value::Object(config) = config else { panic!("an object") };
    job.model = ModelSpec {
        name: model_type.to_owned(),
        model_type: model_type.to_owned(),
        config: Fields(config),
        ..job.model.clone()
    };
    if model_type == "bert" {
        job.task = Task::MaskedLm;
    }
    change(&mut job);
    job
}

fn jobs() -> Vec<JobSpec> {
    let gpt2 = || json!({"vocab_size": 5000, "n_positions": 256, "n_embd": 256, "n_layer": 3, "n_head": 4});
    let bert = || json!({"vocab_size": 4000, "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4});
    let checkpointed = |job: &mut JobSpec| job.gradient_checkpointing = CheckpointPolicy::EveryLayer;
    let amp = |job: &mut JobSpec| job.precision = Precision::AmpBf16;
    let eager = |job: &mut JobSpec| job.attention = Attention::Eager;
    let plain = |_: &mut JobSpec| ();
    let wrapped =
        |job: &mut JobSpec, ddp| job.parallel = Parallel { strategy: Strategy::Ddp(ddp), ..Parallel::default() };
    vec![
        job("gpt2", gpt2(), &|job| wrapped(job, Ddp::default())),
        job("qwen2", decoder(json!({})), &|job| {
            job.precision = Precision::Bf16;
            wrapped(job, Ddp { bucket_cap_mb: Some(1), gradient_as_bucket_view: true, ..Ddp::default() });
        }),
        job("gpt2", gpt2(), &plain),
        job("gpt2", gpt2(), &|job| {
            amp(job);
            job.optimizer = OptimizerKind::AdamwFused;
        }),
        job("gpt2", gpt2(), &|job| {
            amp(job);
            checkpointed(job);
        }),
        job("gpt2", gpt2(), &eager),
        job("llama", decoder(json!({})), &eager),
        job("qwen2", decoder(json!({})), &|job| {
            amp(job);
            checkpointed(job);
        }),
        job("qwen2", decoder(json!({"tie_word_embeddings": true})), &|job| job.precision = Precision::Bf16),
        job("qwen2", decoder(json!({})), &|job| {
            let targets = ["q_proj", "v_proj"].map(str::to_owned).to_vec();
            job.lora = Some(LoraSpec {
                r: 8,
                alpha: 16.0,
                dropout: 0.05,
                targets,
                use_dora: false,
                modules_to_save: Vec::new(),
            });
        }),
        job("qwen3", decoder(json!({"head_dim": 32})), &plain),
        job("mistral", decoder(json!({"sliding_window": 64})), &amp),
        job("phi3", decoder(json!({"pad_token_id": 0})), &checkpointed),
        job("gemma2", decoder(json!({"head_dim": 32, "sliding_window": 64})), &eager),
        job("gemma3_text", decoder(json!({"head_dim": 32, "sliding_window": 64})), &amp),
        job("bert", bert(), &checkpointed),
        job("bert", bert(), &amp),
        puzzles(json!({})),
        puzzles(json!({"puzzle_emb_ndim": 0, "pos_encodings": "learned", "loss_type": "softmax_cross_entropy"})),
        puzzles(json!({"puzzle_emb_ndim": 200, "H_cycles": 3, "L_cycles": 1, "halt_max_steps": 1})),
    ]
}

/// A job of the reasoning model.
fn puzzles(more: Value) -> JobSpec {
    let mut job = JobSource::model("sapientinc/HRM-checkpoint-sudoku-extreme")
        .set("task", "hrm")
        .set("gpu", "h200")
        .set("micro_batch_size", 24)
        .set("seq_len", 81)
        .set("steps", 3)
        .resolve(&[])
        .expect("a job")
        .job;
    let small = json!({"hidden_size": 256, "num_heads": 4, "H_layers": 2, "L_layers": 2, "num_puzzle_identifiers": 100,
        "puzzle_emb_ndim": 256});
    for changes in [small, more] {
        job.model.config.0.extend(changes.as_object().expect("an object").clone());
    }
    job
}

/// The loop that core/src/step/hrm.rs mirrors; `at_the_end` runs before the model goes.
fn train_puzzles<R>(
    torch: &'static Torch,
    job: &JobSpec,
    joined: Option<&Joined>,
    at_the_end: impl FnOnce() -> R,
) -> R {
    let model = ReasoningModel::build(torch, GPU, job, Weights::Initial).expect("the model");
    let table = model.puzzle_table().map(|table| {
        let mut options = SparseSignSgdOptions::default();
        options.takes_ids_as_distinct = true;
        SparseSignSgd::new(torch, table, options)
    });
    let optimizer = Box::new(AdamAtan2::new(torch, model.trained(), AdamAtan2Options::default()));
    let ranks: &dyn Ranks = joined.map_or(&Alone, |joined| joined);
    let trainer = SegmentTrainer::new(torch, &model, table, optimizer, job.micro_batch_size, ranks);
    let mut trainer = trainer.expect("the only rank is there");
    let [rows, tokens] = [job.micro_batch_size, job.seq_len].map(|size| i64::try_from(size).expect("a size"));
    for _ in 0..job.steps {
        let load = |sizes: &[i64]| {
            let ones = vec![1_i32; usize::try_from(sizes.iter().product::<i64>()).expect("a count")];
            torch.tensor(&ones, sizes).and_then(|batch| batch.to_device(GPU)).expect("room")
        };
        let batch =
            Puzzles { inputs: load(&[rows, tokens]), labels: load(&[rows, tokens]), puzzle_identifiers: load(&[rows]) };
        trainer.step(&batch).expect("a segment");
    }
    at_the_end()
}

fn load() -> (&'static Torch, PathBuf) {
    let (found, shim) = support::compile_shim();
    let ranks = shim.ranks(&found, &mut |report| eprintln!("{report}")).expect("what ranks need compiles");
    (support::load_torch(true), ranks)
}

/// The only rank of a group, over the phantom's NCCL.
fn join(library: &Path) -> Joined {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let place = Place {
        rank: 0,
        ranks: 1,
        local_rank: 0,
        local_ranks: 1,
        host: "127.0.0.1".to_owned(),
        port,
        served_by: ServedBy::Listener(listener.into_raw_fd()),
        restarts: 0,
    };
    Joined::join_ranks(library, place, GPU, "a step").expect("it meets itself")
}

/// What `DistributedDataParallel(model)` does.
fn wrap(group: &Group, model: &LanguageModel, ddp: Ddp) -> Reducer {
    let parameters = model.parameters().iter().map(|parameter| parameter.tensor.clone());
    let states: Vec<Tensor> = parameters.chain(model.buffers().iter().cloned()).collect();
    group.broadcast(&states).expect("nobody has gone");
    let buckets = Buckets { cap_mb: ddp.bucket_cap_mb, hold_gradients: ddp.gradient_as_bucket_view };
    group.reducer(&model.trained(), buckets).expect("room for buckets")
}

/// Python variables that live from one step to the next.
#[derive(Default)]
struct Variables {
    ids: Option<Tensor>,
    loss: Option<Tensor>,
    outputs: Option<Output>,
}

/// The loop that the estimate mirrors (core/src/step/train.rs); `at_the_end` runs before the model goes.
fn train<R>(torch: &'static Torch, job: &JobSpec, joined: Option<&Joined>, at_the_end: impl FnOnce() -> R) -> R {
    let model = LanguageModel::build_model(torch, GPU, job, Weights::Initial).expect("the model");
    let group = joined.and_then(Joined::group);
    let reducer = match (group, job.parallel.strategy) {
        (Some(group), Strategy::Ddp(ddp)) => Some(wrap(group, &model, ddp)),
        _ => None,
    };
    let fused = job.optimizer == OptimizerKind::AdamwFused;
    let implementation = if fused { Implementation::Fused } else { Implementation::Foreach };
    let mut options = AdamOptions::default();
    options.implementation = implementation;
    let mut optimizer = Adam::new(torch, model.trained(), options);
    let mut variables = Variables::default();
    let recomputes = job.gradient_checkpointing == CheckpointPolicy::EveryLayer;
    let sizes = [job.micro_batch_size, job.seq_len].map(|size| i64::try_from(size).expect("a size"));
    for _ in 0..job.steps {
        let ones = vec![1_i64; usize::try_from(sizes.iter().product::<i64>()).expect("a count")];
        let ids = torch.tensor(&ones, &sizes).and_then(|ids| ids.to_device(GPU)).expect("room");
        variables.ids = Some(ids.clone());
        {
            let dtype = job.precision.autocast_dtype();
            let autocast = dtype.map(|dtype| torch.autocast(GPU, Some(scalar_type(dtype))).expect("autocast"));
            let caches = job.use_cache && job.task == Task::CausalLm && !recomputes;
            let cache = caches.then(|| model.new_cache());
            let call = Call { labels: Some(&ids), cache: cache.as_ref(), ..Call::of_tokens(&ids) };
            if let (Some(reducer), Some(group)) = (&reducer, group) {
                reducer.before_forward(true).expect("buckets");
                if !model.buffers().is_empty() {
                    group.broadcast(model.buffers()).expect("nobody has gone");
                }
            }
            let output = model.forward(call).expect("a pass");
            reducer.as_ref().map_or(Ok(()), Reducer::before_backward).expect("all gradients came");
            drop(cache);
            let loss = output.loss.clone();
            variables.outputs = job.logits.keep_outputs.then_some(output);
            variables.loss = loss;
            drop(autocast);
        }
        drop(ids);
        torch.backward(variables.loss.as_ref().expect("a loss")).expect("gradients");
        optimizer.step().expect("a step");
        optimizer.zero_grad().expect("leaves");
    }
    at_the_end()
}

fn without_phases(recording: Recording) -> Recording {
    let events = recording.events.into_iter().filter(|event| !matches!(event, RecordedEvent::Phase(_)));
    Recording { events: events.collect(), ..recording }
}

#[test]
#[ignore = "needs PyTorch and the phantom: TONNAGE_TORCH, TONNAGE_TORCH_PRELOAD"]
fn a_step_allocates_what_is_estimated() {
    let Ok(at) = std::env::var(JOB) else { return over_the_phantom() };
    let job = jobs().swap_remove(at.parse().expect("a number"));
    let what = format!("job {at}, {} {:?} {:?}", job.model.model_type, job.precision, job.gradient_checkpointing);
    let (torch, ranks) = load();
    torch.initialise(GPU).expect("the phantom");
    let joined = matches!(job.parallel.strategy, Strategy::Ddp(_)).then(|| join(&ranks));
    let history = torch.record_history(1_000_000).expect("a history");
    let file = std::env::temp_dir().join(format!("tonnage-step-{}.pickle", std::process::id()));
    let at_the_end = || {
        history.write_snapshot(&file).expect("a snapshot");
        torch.memory(GPU).expect("figures")
    };
    let memory = if job.task == Task::Hrm {
        train_puzzles(torch, &job, joined.as_ref(), at_the_end)
    } else {
        train(torch, &job, joined.as_ref(), at_the_end)
    };
    let bytes = std::fs::read(&file).expect("it was written");
    std::fs::remove_file(&file).expect("it is ours");
    let recorded = without_phases(read_snapshot(&bytes, 0).expect("a snapshot"));
    let predicted = without_phases(Recording::from(&simulate(&job).expect("it is simulated").trace));
    let comparison = compare_recordings(&predicted, &recorded, Names::Ignore);
    assert!(comparison.first.is_none(), "{what}: {:?} after {}", comparison.first, comparison.equal_allocations);
    assert!(comparison.equal_allocations > 500, "{what}: {} allocations", comparison.equal_allocations);
    let estimated = estimate(&job).expect("it is estimated");
    let peaks = (memory.peak_allocated, memory.peak_reserved);
    assert_eq!(peaks, (estimated.peak_allocated_bytes, estimated.peak_reserved_bytes), "{what}");
    println!("{what}: {} allocations, peaks {peaks:?}", comparison.equal_allocations);
}

/// Runs this test again for each job, each in a process of its own over an H200 that is not there.
fn over_the_phantom() {
    let preload = std::env::var_os("TONNAGE_TORCH_PRELOAD").expect("TONNAGE_TORCH_PRELOAD names the phantom's library");
    let mut failures = Vec::new();
    for at in 0..jobs().len() {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--include-ignored", "--exact", THIS, "--nocapture"])
            .env("LD_PRELOAD", &preload)
            .env("TONNAGE_PHANTOM_DEVICES", "total=150114140160,cc=9.0,sms=132")
            .env(JOB, at.to_string())
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() && text.contains("1 passed") {
            text.lines().filter(|line| line.starts_with("job ")).for_each(|line| println!("{line}"));
        } else {
            failures.push(text);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
