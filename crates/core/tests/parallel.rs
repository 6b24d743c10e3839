//! What must hold of jobs on several ranks, whatever the figures.

use serde_json::{Value, json};
use tonnage_core::estimate::{Caveat, Deployment, Estimate, SimulatedJob, Verdict, estimate};
use tonnage_core::job::{
    Attention, Counted, DeepSpeed, JobSpec, LoraSpec, OptimizerKind, Parallel, Precision, Schedule, Strategy,
    TensorPlan, from_case,
};
use tonnage_core::step::{parameter_count, simulate};
use tonnage_core::trace::Category;

fn case(changes: &Value) -> JobSpec {
    let mut case = json!({
        "id": "tiny", "kind": "parallel", "micro_batch": 2, "seq_len": 128, "strategy": "single", "world": 1,
        "model": {
            "family": "llama", "vocab_size": 4000, "hidden_size": 256, "intermediate_size": 512, "head_dim": 32,
            "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": true,
        },
    });
    case.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    from_case(&case).unwrap()
}

fn spread(world_size: u64, rank: u64, strategy: Strategy) -> JobSpec {
    JobSpec { parallel: Parallel { world_size, rank, strategy }, ..case(&json!({})) }
}

fn answer(job: &JobSpec) -> Estimate {
    estimate(job).unwrap()
}

fn peak(job: &JobSpec) -> u64 {
    answer(job).peak_allocated_bytes
}

/// Bytes of optimizer state that the job ever makes.
fn state_bytes(job: &JobSpec) -> u64 {
    let trace = simulate(job).unwrap().trace;
    trace.allocations.iter().filter(|a| a.category == Category::OptimizerState).map(|a| a.bytes).sum()
}

#[test]
fn a_single_rank_is_no_spread_at_all() {
    let alone = answer(&case(&json!({})));
    let same = [
        Strategy::Zero1 { ddp: None, parameters_as_bucket_view: false },
        Strategy::TensorParallel { size: 1, plan: TensorPlan::Megatron },
        Strategy::PipelineParallel { stages: 1, schedule: Schedule::OneForwardOneBackward, replicas: None },
    ];
    for strategy in same {
        let spread = answer(&spread(1, 0, strategy));
        assert_eq!(spread.peak_allocated_bytes, alone.peak_allocated_bytes, "{strategy:?}");
        assert_eq!(spread.peak_reserved_bytes, alone.peak_reserved_bytes, "{strategy:?}");
    }
    let ddp = |world: u64| peak(&case(&json!({"strategy": "ddp", "world": world})));
    assert_eq!(ddp(1), ddp(8), "DDP holds the same whatever the number of ranks");
}

#[test]
fn more_ranks_never_raise_the_optimizer_state_of_the_first() {
    let strategies =
        [Strategy::Zero1 { ddp: None, parameters_as_bucket_view: true }, Strategy::DeepSpeed(DeepSpeed::stage(2))];
    for strategy in strategies {
        let bytes: Vec<u64> = [1, 2, 3, 4, 8, 16, 64].map(|world| state_bytes(&spread(world, 0, strategy))).to_vec();
        assert!(bytes.windows(2).all(|pair| pair[1] <= pair[0]), "{strategy:?} {bytes:?}");
        assert!(bytes[3] < bytes[0], "{strategy:?} {bytes:?}");
    }
}

#[test]
fn the_shares_of_all_ranks_are_the_whole_state() {
    let zero1 = |rank| spread(4, rank, Strategy::Zero1 { ddp: None, parameters_as_bucket_view: false });
    let shares: u64 = (0..4).map(|rank| state_bytes(&zero1(rank))).sum();
    assert_eq!(shares, state_bytes(&case(&json!({}))));
}

#[test]
fn the_first_gpu_of_data_parallel_needs_the_most() {
    let gpu = |rank| peak(&spread(4, rank, Strategy::DataParallel));
    assert!(gpu(0) > gpu(1));
    assert_eq!(gpu(1), gpu(3));
}

#[test]
fn later_stages_hold_fewer_micro_batches_than_earlier_ones() {
    let job = |rank, schedule| JobSpec {
        gradient_accumulation_steps: 8,
        ..spread(4, rank, Strategy::PipelineParallel { stages: 4, schedule, replicas: None })
    };
    let steady = |rank| peak(&job(rank, Schedule::OneForwardOneBackward));
    assert!(steady(1) > steady(2), "middle stages have the same layers");
    assert!(peak(&job(0, Schedule::GPipe)) > steady(0));
}

/// Where PyTorch's schedules are not run, as with eager attention: beside them the last of 4 stages with 8 micro-batches was 39 % low in reserved
/// memory, as it keeps all logits.
#[test]
fn the_last_stage_allows_for_the_logits_of_all_micro_batches() {
    let codes = |rank| {
        let job = spread(
            4,
            rank,
            Strategy::PipelineParallel { stages: 4, schedule: Schedule::OneForwardOneBackward, replicas: None },
        );
        let job = JobSpec { gradient_accumulation_steps: 8, attention: Attention::Eager, ..job };
        let of_outputs = |caveat: &Caveat| caveat.code == "pipeline_outputs";
        answer(&job).caveats.into_iter().find(of_outputs).map(|caveat| caveat.widens_bytes)
    };
    assert_eq!(codes(3), Some(2 * 8 * 2 * 128 * 4000 * 4));
    assert_eq!(codes(2), None);
}

fn adapters() -> LoraSpec {
    let targets = vec!["q_proj".to_owned()];
    LoraSpec { r: 4, alpha: 8.0, dropout: 0.0, targets, use_dora: false, modules_to_save: Vec::new() }
}

/// All stages together have the model's parameters, each end its own matrix of the vocabulary.
#[test]
fn stages_share_the_layers_between_them() {
    let of_rank = |rank, schedule, stages| {
        let job = spread(2, rank, Strategy::PipelineParallel { stages, schedule, replicas: None });
        simulate(&JobSpec { gradient_accumulation_steps: 4, ..job }).unwrap().parameter_count
    };
    let whole = parameter_count(&case(&json!({})).model).unwrap();
    for (schedule, stages) in [(Schedule::GPipe, 2), (Schedule::OneForwardOneBackward, 2), (Schedule::Interleaved, 4)] {
        let all: u64 = (0..2).map(|rank| of_rank(rank, schedule, stages)).sum();
        assert_eq!(all, whole + 4000 * 256, "{schedule:?}");
    }
}

#[test]
fn interleaved_stages_are_refused_where_pytorch_refuses_them_or_nobody_measured_them() {
    let refused = |change: &dyn Fn(JobSpec) -> JobSpec, stages| {
        let job = spread(2, 0, Strategy::PipelineParallel { stages, schedule: Schedule::Interleaved, replicas: None });
        estimate(&change(JobSpec { gradient_accumulation_steps: 4, ..job })).err().map(|error| error.to_string())
    };
    assert_eq!(refused(&|job| job, 4), None);
    let said =
        |error: Option<String>, word: &str| assert!(error.as_ref().is_some_and(|e| e.contains(word)), "{error:?}");
    said(refused(&|job| job, 2), "several stages on each rank");
    said(refused(&|job| job, 6), "does not make 6 pipeline stages");
    said(refused(&|job| JobSpec { gradient_accumulation_steps: 5, ..job }, 4), "in 2 rounds");
    assert_eq!(refused(&|job| JobSpec { lora: Some(adapters()), ..job }, 4), None);
    said(refused(&|job| JobSpec { attention: Attention::Eager, ..job }, 4), "SDPA was measured");
    let gpipe = spread(2, 0, Strategy::PipelineParallel { stages: 4, schedule: Schedule::GPipe, replicas: None });
    assert!(estimate(&gpipe).unwrap_err().to_string().contains("one stage on each rank"));
    let endless = spread(2, 0, Strategy::PipelineParallel { stages: 2, schedule: Schedule::GPipe, replicas: None });
    let endless = JobSpec { gradient_accumulation_steps: 1 << 40, ..endless };
    assert!(estimate(&endless).unwrap_err().to_string().contains("open at once"));
}

/// A mesh of two stages by two ranks that each have one.
fn mesh(rank: u64, data_parallel: &str, changes: &Value) -> JobSpec {
    let mut all = json!({
        "strategy": "pp", "world": 4, "rank": rank, "schedule": "gpipe", "grad_accum": 4, "replicas": 2, "data_parallel": data_parallel,
    });
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    case(&all)
}

#[test]
fn ranks_that_have_the_same_stage_hold_the_same() {
    for wrapper in ["ddp", "fsdp2"] {
        let peaks = [0, 1, 2, 3].map(|rank| peak(&mesh(rank, wrapper, &json!({}))));
        assert_eq!((peaks[0], peaks[2]), (peaks[1], peaks[3]), "{wrapper}");
        assert_ne!(peaks[0], peaks[2], "the stages differ");
        let job = mesh(0, wrapper, &json!({}));
        let simulated = SimulatedJob::new(&job).unwrap();
        let deployment = Deployment::new(&simulated, answer(&job)).unwrap();
        let counts: Vec<u64> = deployment.gpus.iter().map(|gpu| gpu.count).collect();
        assert_eq!(counts, [2, 2], "{wrapper}");
    }
    let alone = |changes| peak(&case(&changes));
    let pipeline = json!({"strategy": "pp", "world": 2, "rank": 0, "schedule": "gpipe", "grad_accum": 4});
    assert!(peak(&mesh(0, "ddp", &json!({}))) > alone(pipeline), "buckets come to it");
    assert!(peak(&mesh(0, "fsdp2", &json!({}))) < peak(&mesh(0, "ddp", &json!({}))), "shards are less");
}

#[test]
fn a_mesh_is_refused_where_it_was_not_measured_or_is_none() {
    let refused = |wrapper: &str, changes: Value, change: &dyn Fn(JobSpec) -> JobSpec| {
        estimate(&change(mesh(0, wrapper, &changes))).unwrap_err().to_string()
    };
    let same = |job| job;
    let eager = |job| JobSpec { attention: Attention::Eager, ..job };
    for (said, error) in [
        ("3 ranks are no stages of 2 ranks each", refused("ddp", json!({"world": 3}), &same)),
        ("one rank has no pipeline", refused("ddp", json!({"world": 2}), &same)),
        ("one stage on each rank", refused("ddp", json!({"stages_per_rank": 2}), &same)),
        (
            "as many micro-batches as there are stages",
            refused("ddp", json!({"schedule": "1f1b", "grad_accum": 1}), &same),
        ),
        ("static graphs", refused("ddp", json!({"static_graph": true}), &same)),
        ("SDPA was measured", refused("ddp", json!({}), &eager)),
        ("three dimensions", refused("fsdp2", json!({"replicate": 2}), &same)),
        ("one by one", refused("fsdp2", json!({"shard_root_only": true}), &same)),
        ("on the host", refused("fsdp2", json!({"cpu_offload": {"pin_memory": true}}), &same)),
        ("sharded on the meta device", refused("fsdp2", json!({"init": "full"}), &same)),
        ("over shards in fp32", refused("fsdp2", json!({"precision": "bf16_mp"}), &same)),
    ] {
        assert!(error.contains(said), "{error}");
    }
}

/// PyTorch's checkpoint compares what a layer saves when it runs with what it saves when it runs again.
#[test]
fn tables_that_fsdp2_casts_are_not_recomputed() {
    let model = json!({
        "family": "olmo", "vocab_size": 4000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "tie_word_embeddings": false, "pad_token_id": 1, "eos_token_id": 2,
    });
    let job = |recomputes: bool| {
        let changes = json!({"precision": "mp_bf16", "gradient_checkpointing": recomputes, "model": model});
        estimate(&mesh(0, "fsdp2", &changes)).map_err(|error| error.to_string())
    };
    assert!(job(false).is_ok());
    assert!(job(true).unwrap_err().contains("PyTorch's checkpoint fails"));
}

fn shares_tokens(ranks: u64, rank: u64) -> JobSpec {
    case(
        &json!({"strategy": "cp", "world": ranks, "rank": rank, "precision": "bf16", "seq_len": 512 * ranks, "gradient_checkpointing": true}),
    )
}

/// Only the first of them is simulated for an answer.
#[test]
fn no_rank_that_shares_tokens_needs_more_than_the_first_one_allows_for() {
    for ranks in [2, 3, 4, 8] {
        let first = answer(&shares_tokens(ranks, 0));
        let allowed = first.caveats.iter().find(|caveat| caveat.code == "context_parallel_ranks").unwrap().widens_bytes;
        for rank in 1..ranks {
            let other = answer(&shares_tokens(ranks, rank));
            let more = other.peak_reserved_bytes.saturating_sub(first.peak_reserved_bytes);
            assert!(more <= allowed, "rank {rank} of {ranks}: {more} more, {allowed} allowed");
        }
    }
}

#[test]
fn ranks_that_share_tokens_are_refused_where_rows_do_not_divide_or_nobody_measured_them() {
    let refused = |change: &dyn Fn(JobSpec) -> JobSpec| {
        estimate(&change(shares_tokens(4, 0))).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&|job| job), "");
    assert!(refused(&|job| JobSpec { seq_len: 2044, ..job }).contains("not a multiple of 8"));
    assert!(refused(&|job| JobSpec { precision: Precision::Fp32, ..job }).contains("layers in bf16"));
    assert!(refused(&|job| JobSpec { lora: Some(adapters()), ..job }).contains("adapters"));
    assert!(refused(&|job| JobSpec { padded: Some(true), ..job }).contains("no masks"));
    let odd = |job: JobSpec| JobSpec { parallel: Parallel { world_size: 6, ..job.parallel }, ..job };
    assert!(refused(&odd).contains("does not divide `world_size`"));
}

#[test]
fn tensor_parallel_ranks_need_less_and_what_does_not_divide_is_refused() {
    let with = |size| spread(size, 0, Strategy::TensorParallel { size, plan: TensorPlan::Megatron });
    assert!(peak(&with(2)) < peak(&with(1)));
    assert!(peak(&with(4)) < peak(&with(2)));
    let error = estimate(&with(3)).unwrap_err().to_string();
    assert!(error.contains("num_attention_heads"), "{error}");
}

/// transformers gathers the logits and keeps a whole embedding, unless the head is tied to it; Megatron divides both.
#[test]
fn each_plan_of_tensor_parallelism_divides_what_it_divides() {
    let job = |plan, tied: bool| {
        let mut job = spread(4, 0, Strategy::TensorParallel { size: 4, plan });
        job.model.config.0.insert("tie_word_embeddings".to_owned(), json!(tied));
        JobSpec { optimizer: OptimizerKind::AdamwForloop, ..job }
    };
    let codes = |plan| answer(&job(plan, false)).caveats.into_iter().map(|caveat| caveat.code).collect::<Vec<_>>();
    assert!(!codes(TensorPlan::Transformers).contains(&"tensor_parallel_assumed"));
    assert!(codes(TensorPlan::Megatron).contains(&"tensor_parallel_assumed"));
    for tied in [false, true] {
        let [whole, divided] = [TensorPlan::Transformers, TensorPlan::Megatron].map(|plan| peak(&job(plan, tied)));
        assert!(whole > divided, "tied {tied}: {whole} {divided}");
    }
    let parameters = |tied| simulate(&job(TensorPlan::Transformers, tied)).unwrap().parameter_count;
    assert_eq!(parameters(false) - parameters(true), 4000 * 256, "what is whole without a tie: the embedding");
}

#[test]
fn deepspeed_says_what_it_assumes() {
    for stage in [1, 2, 3] {
        let caveats = answer(&spread(8, 0, Strategy::DeepSpeed(DeepSpeed::stage(stage)))).caveats;
        let codes: Vec<_> = caveats.into_iter().map(|caveat| caveat.code).collect();
        assert!(codes.contains(&"deepspeed_version") && !codes.contains(&"deepspeed_assumed"), "{stage}: {codes:?}");
    }
}

#[test]
fn a_static_graph_must_reduce_its_first_pass() {
    let job = case(&json!({"strategy": "ddp", "world": 2, "static_graph": true, "grad_accum": 2}));
    let error = estimate(&job).unwrap_err().to_string();
    assert!(error.contains("static graph"), "{error}");
}

/// A rank's share is held against its share of the publisher's count, not against the whole.
#[test]
fn a_share_of_a_model_with_the_publishers_count_widens_nothing_by_it() {
    let strategies = [
        Strategy::TensorParallel { size: 4, plan: TensorPlan::Megatron },
        Strategy::PipelineParallel { stages: 4, schedule: Schedule::OneForwardOneBackward, replicas: None },
    ];
    for (strategy, lora) in strategies.into_iter().flat_map(|strategy| [(strategy, false), (strategy, true)]) {
        let mut job = spread(4, 0, strategy);
        job.lora = lora.then(adapters);
        let parameters = parameter_count(&job.model).unwrap();
        let counted = |parameters| Some(Counted { parameters, who: "its publisher counts" });
        job.model.beside.counted = counted(parameters);
        let right = answer(&job);
        assert!(right.caveats.iter().all(|caveat| caveat.code != "parameter_count"), "{strategy:?}");
        assert_eq!(right.verdict, Verdict::Fits, "{strategy:?}");
        job.model.beside.counted = counted(parameters + 4000);
        let wrong = answer(&job);
        let widened: Vec<u64> =
            wrong.caveats.iter().filter(|caveat| caveat.code == "parameter_count").map(|c| c.widens_bytes).collect();
        assert_eq!(widened, [16_000], "{strategy:?}: a quarter of 4000 parameters, 16 bytes each");
    }
}
