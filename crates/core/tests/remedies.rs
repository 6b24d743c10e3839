//! Every remedy, over jobs that among them make each applicable, lowers the estimate or declines with a reason; and every
//! change is said in the words of every framework.

use std::collections::BTreeMap;

use tonnage_core::job::{Framework, JobSource, Override};
use tonnage_core::plan::proposal::{Proposals, consider_remedies};
use tonnage_core::plan::remedy::REMEDIES;

const LLAMA: &str = "model = { model_type = \"llama\", num_hidden_layers = 2, hidden_size = 256, intermediate_size = 512, \
    num_attention_heads = 4, num_key_value_heads = 4, vocab_size = 32000 }\n";
const GPT2: &str = "model = { model_type = \"gpt2\", n_layer = 2, n_embd = 128, n_head = 4, vocab_size = 50257, n_positions = 1024 }\n";
const CLIP: &str = "model = \"clip-vit-base-patch32\"\n";

/// Name, job file, assignments.
const JOBS: [(&str, &str, &[&str]); 13] = [
    (
        "states larger than activations",
        LLAMA,
        &[
            "framework=loop",
            "gpu=1GiB,sm_90",
            "micro_batch_size=2",
            "seq_len=64",
            "model.num_hidden_layers=12",
            "model.hidden_size=512",
        ],
    ),
    (
        "plain",
        LLAMA,
        &["gpu=2GiB,sm_90", "micro_batch_size=16", "seq_len=1024", "attention=eager", "gradient_accumulation_steps=2"],
    ),
    ("ranks", LLAMA, &["gpu=1GiB,sm_90", "micro_batch_size=1", "seq_len=128", "world_size=4", "precision=amp-bf16"]),
    ("shards", LLAMA, &["gpu=1GiB,sm_90", "micro_batch_size=1", "seq_len=128", "world_size=4", "parallel=fsdp2"]),
    ("stages", LLAMA, &["gpu=1GiB,sm_90", "micro_batch_size=1", "seq_len=128", "world_size=4", "parallel=deepspeed"]),
    (
        "grpo, judged",
        LLAMA,
        &[
            "task=grpo",
            "gpu=4GiB,sm_90",
            "micro_batch_size=16",
            "num_generations=4",
            "prompt_len=64",
            "completion_len=192",
            "trl=0.25",
            "grpo.beta=0.04",
            "judge.model=gpt2-medium",
            "judge.new_tokens=8",
            "gradient_checkpointing=false",
        ],
    ),
    (
        "grpo, a judge in half precision",
        LLAMA,
        &[
            "task=grpo",
            "gpu=2GiB,sm_90",
            "micro_batch_size=16",
            "num_generations=4",
            "prompt_len=64",
            "completion_len=64",
            "judge.model=gpt2-medium",
            "judge.weights=int8",
            "grpo.beta=0.04",
            "judge.new_tokens=8",
        ],
    ),
    (
        "grpo, vLLM",
        LLAMA,
        &[
            "task=grpo",
            "gpu=4GiB,sm_90",
            "micro_batch_size=8",
            "num_generations=4",
            "prompt_len=64",
            "completion_len=64",
            "vllm.gpu_memory_utilization=0.5",
        ],
    ),
    ("dpo", LLAMA, &["task=dpo", "gpu=1GiB,sm_90", "micro_batch_size=8", "prompt_len=64", "completion_len=192"]),
    (
        "swarm",
        GPT2,
        &[
            "task=swarm",
            "gpu=8GiB,sm_90",
            "swarm.nodes=4",
            "prompt_len=64",
            "completion_len=64",
            "swarm.logits_to_keep=false",
            "gradient_checkpointing=false",
        ],
    ),
    ("generation", GPT2, &["task=generate", "gpu=1GiB,sm_90", "seq_len=64", "max_new_tokens=8"]),
    ("embeddings", LLAMA, &["task=embedding", "gpu=1GiB,sm_90", "micro_batch_size=64", "seq_len=128"]),
    ("images and their texts", CLIP, &["gpu=1GiB,sm_90", "micro_batch_size=64"]),
];

fn source(file: &str, assignments: &[&str]) -> JobSource {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    JobSource::from_file("job.toml", file).with(&overrides)
}

fn considered((name, file, assignments): &(&str, &str, &[&str])) -> Proposals {
    let source = source(file, assignments);
    let job = source.resolve(&[]).unwrap_or_else(|error| panic!("{name}: {error}")).job;
    consider_remedies(&job, &source).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_remedy_lowers_some_job_and_declines_with_a_reason_elsewhere() {
    let mut helped: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &JOBS {
        let proposals = considered(job);
        let base = proposals.base.verdict.total_bytes;
        for proposal in &proposals.alone {
            assert!(proposal.appraisal.verdict.total_bytes + proposal.saves_bytes == base && proposal.saves_bytes > 0);
            assert!(!proposal.slowdown.basis.is_empty() && proposal.slowdown.factor.typical > 0.0);
            *helped.entry(proposal.remedy.name).or_default() += 1;
        }
        for (remedy, why) in &proposals.declined {
            assert!(!why.reason().is_empty() && why.reason().len() < 400, "{}: {why:?}", remedy.name);
        }
        assert_eq!(proposals.alone.len() + proposals.declined.len(), REMEDIES.len(), "{}", job.0);
        let worth: Vec<f64> =
            proposals.alone.iter().map(|one| one.saves_bytes as f64 / (one.gpu_time() - 1.0).max(0.01)).collect();
        assert!(worth.is_sorted_by(|a, b| a >= b), "{}: {worth:?}", job.0);
    }
    let idle: Vec<_> =
        REMEDIES.iter().filter(|remedy| !helped.contains_key(remedy.name)).map(|remedy| remedy.name).collect();
    assert!(idle.is_empty(), "no job is helped by {idle:?}");
}

#[test]
fn the_combination_is_no_larger_than_any_of_its_remedies() {
    for job in &JOBS {
        let proposals = considered(job);
        let Some(together) = &proposals.together else { continue };
        for remedy in &together.remedies {
            let alone = proposals.alone.iter().find(|proposal| proposal.remedy.name == remedy.name).unwrap();
            let (all, one) = (together.appraisal.verdict.total_bytes, alone.appraisal.verdict.total_bytes);
            assert!(all <= one, "{}: {} alone {one}, together {all}", job.0, remedy.name);
        }
    }
}

#[test]
fn every_change_is_said_in_the_words_of_the_tasks_framework() {
    for job in &JOBS {
        let (_, file, assignments) = job;
        let base = source(file, assignments).resolve(&[]).unwrap().job;
        for remedy in REMEDIES {
            let Ok(changes) = (remedy.apply)(&base) else { continue };
            for framework in [base.framework, Framework::Loop] {
                let patch = framework.patch(&base, &changes);
                let silent = patch.lines.iter().find(|line| line.text().starts_with("no option does it"));
                let own = framework == base.framework;
                assert!(
                    !own || (silent.is_none() && !patch.lines.is_empty()),
                    "{}: {}: {silent:?}",
                    job.0,
                    remedy.name
                );
            }
        }
    }
}

/// Negatives are the other rows of a pass: neither fewer rows nor more GPUs are the same training.
#[test]
fn rows_that_a_loss_compares_stay_together() {
    for (file, task) in [(LLAMA, "task=embedding"), (CLIP, "task=contrastive")] {
        let source = source(file, &[task, "gpu=1GiB,sm_90", "micro_batch_size=64"]);
        let job = source.resolve(&[]).unwrap().job;
        for name in ["smaller_micro_batch", "twice_the_gpus"] {
            let remedy = REMEDIES.iter().find(|remedy| remedy.name == name).unwrap();
            assert!((remedy.apply)(&job).is_err(), "{task}: {name}");
        }
    }
}
