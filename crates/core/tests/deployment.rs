//! Jobs of several processes: the sum over processes equals the parts, and leases hold what they promise.

use serde_json::json;
use tonnage_core::estimate::{Deployment, Fit, SimulatedJob};
use tonnage_core::job::{Counted, JobSpec, JudgePlace, Task, from_case};

fn deployment(job: &JobSpec) -> Deployment {
    let simulated = SimulatedJob::new(job).unwrap();
    let estimate = simulated.estimate().unwrap();
    Deployment::new(&simulated, estimate).unwrap()
}

fn swarm(nodes: u64, gpus: u64, lease: Option<u64>) -> JobSpec {
    let model = json!({"family": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 50257});
    let case = json!({"kind": "swarm_node", "model": model, "prompt_len": 8, "completion_len": 64, "questions": 2});
    let mut job = from_case(&case).unwrap();
    if let Task::Swarm(swarm) = &mut job.task {
        (swarm.nodes, swarm.gpus, swarm.lease) = (nodes, gpus, lease);
    }
    job
}

#[test]
fn nodes_are_dealt_in_turn_and_add_up() {
    let spread = deployment(&swarm(7, 3, None));
    let node = spread.processes[0].estimate.total_bytes;
    let loads: Vec<_> = spread.gpus.iter().map(|gpu| (gpu.first, gpu.count, gpu.processes[0].1)).collect();
    assert_eq!(loads, [(0, 1, 3), (1, 2, 2)]);
    assert!(spread.gpus.iter().all(|gpu| gpu.total_bytes == node * gpu.processes[0].1));
    let nodes: u64 = spread.gpus.iter().map(|gpu| gpu.count * gpu.processes[0].1).sum();
    assert_eq!(nodes, 7);
}

#[test]
fn a_lease_never_needs_more_and_room_is_what_fits() {
    let needs = |lease| deployment(&swarm(6, 1, lease)).gpus[0].total_bytes;
    assert!(needs(Some(1)) < needs(Some(2)) && needs(Some(2)) < needs(Some(4)));
    assert_eq!(needs(Some(6)), needs(None));
    for room in deployment(&swarm(6, 1, None)).room {
        let fits = |nodes| deployment(&swarm(nodes, 1, room.lease)).gpus[0].fit;
        assert_eq!(fits(room.processes), Fit::Fits, "{room:?}");
        assert_ne!(fits(room.processes + 1), Fit::Fits, "{room:?}");
    }
}

#[test]
fn ranks_have_a_gpu_each() {
    let case = json!({"kind": "parallel", "world": 4, "seq_len": 64, "model": {"family": "gpt2", "n_layer": 2}});
    let spread = deployment(&from_case(&case).unwrap());
    assert_eq!((spread.processes[0].name, spread.processes[0].count, spread.gpus[0].count), ("rank", 4, 4));
    assert_eq!(spread.gpus[0].total_bytes, spread.processes[0].estimate.total_bytes);
}

#[test]
fn a_judge_elsewhere_is_on_a_gpu_of_its_own() {
    let model = json!({"family": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000});
    let case =
        json!({"kind": "trl_grpo", "model": model, "completion_len": 8, "judge": {"model": model, "new_tokens": 4}});
    let mut job = from_case(&case).unwrap();
    let together = deployment(&job);
    if let Task::Grpo(grpo) = &mut job.task
        && let Some(judge) = &mut grpo.judge
    {
        judge.place = JudgePlace::OtherGpu;
    }
    // What a publisher counts of the policy says nothing of the judge.
    let parameters = SimulatedJob::new(&job).unwrap().parameter_count();
    job.model.beside.counted = Some(Counted { parameters, who: "its publisher counts" });
    if let Task::Grpo(grpo) = &mut job.task
        && let Some(judge) = &mut grpo.judge
    {
        judge.model.config.0.insert("num_hidden_layers".to_owned(), json!(3));
    }
    let apart = deployment(&job);
    assert_eq!(apart.gpus[1].fit, Fit::Fits);
    assert!(apart.processes[1].estimate.caveats.iter().all(|caveat| caveat.code != "parameter_count"));
    assert_eq!(together.processes.len(), 1);
    let names: Vec<_> = apart.processes.iter().map(|process| process.name).collect();
    assert_eq!(names, ["process", "judge"]);
    assert_eq!((apart.gpus[1].first, &apart.gpus[1].processes), (1, &vec![(1, 1)]));
    assert!(apart.processes[0].estimate.peak_allocated_bytes < together.processes[0].estimate.peak_allocated_bytes);
}
