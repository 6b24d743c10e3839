//! What GKD refuses, and what must hold of it whatever its sizes.

use tonnage_core::job::{JobError, JobSource, JobSpec};
use tonnage_core::step::simulate;
use tonnage_core::trace::PhaseKind;

const LLAMA: &str = "task = \"gkd\"\ngpu = \"h100\"\nprompt_len = 24\ncompletion_len = 16\nmicro_batch_size = 2\ngkd.max_new_tokens = 12\n\
                     gkd.teacher_model = \"distilgpt2\"\nmodel = { model_type = \"llama\", num_hidden_layers = 2, hidden_size = 64, \
                     intermediate_size = 160, num_attention_heads = 4, vocab_size = 50257 }\n";

fn job(base: &str, more: &[(&str, &str)]) -> Result<JobSpec, JobError> {
    let source =
        more.iter().fold(JobSource::from_file("job.toml", base), |source, (key, value)| source.set(key, *value));
    source.resolve(&[]).map(|resolved| resolved.job)
}

/// How many allocations fall in phases in which something is generated, and in all.
fn allocations(more: &[(&str, &str)]) -> (usize, usize) {
    let trace = simulate(&job(LLAMA, more).unwrap()).unwrap().trace.unrolled();
    let generates = |phase: u32| trace.phases[phase as usize].kind == PhaseKind::Generate;
    let generated = trace.allocations.iter().filter(|allocation| generates(allocation.phase)).count();
    (generated, trace.allocations.len())
}

#[test]
fn what_the_trainer_refuses_is_refused_with_the_key_and_the_way_out() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[("gkd.teacher_model", "llama-3.2-1b")], "a vocabulary of 50257 tokens, the teacher"),
        (&[("gkd.teacher_model", "bert-base-uncased")], "writes no text"),
        (&[("gkd.max_new_tokens", "4096"), ("gradient_checkpointing", "true")], "without a cache"),
        (&[("world_size", "2"), ("parallel", "deepspeed"), ("deepspeed.stage", "2")], "under parallel = \"ddp\" alone"),
        (&[("quantization", "nf4"), ("lora.r", "4")], "quantized"),
        (&[("gkd.lmbda", "1.5")], "gkd.lmbda"),
    ];
    for (more, said) in cases {
        let refused = |job: JobSpec| simulate(&job).map(|_| ()).map_err(|error| JobError::new(error.to_string()));
        let error = job(LLAMA, more).and_then(refused).expect_err(said).to_string();
        assert!(error.contains(said), "{said}: {error}");
    }
    let without = LLAMA.replace("gkd.teacher_model = \"distilgpt2\"\n", "");
    assert!(job(&without, &[]).unwrap_err().to_string().contains("learns from a teacher"));
}

#[test]
fn who_generates_is_what_the_keys_say() {
    let (never, _) = allocations(&[("gkd.lmbda", "0")]);
    let (always, _) = allocations(&[("gkd.lmbda", "1")]);
    let (by_teacher, _) = allocations(&[("gkd.lmbda", "0"), ("gkd.seq_kd", "true")]);
    let (drawn, _) = allocations(&[]);
    assert_eq!(never, 0);
    assert!(by_teacher > 0 && drawn > 0 && drawn < always);
}

#[test]
fn recomputing_generates_without_a_cache() {
    let generated = |checkpointing: &str, tokens: &str| {
        let more = [("gradient_checkpointing", checkpointing), ("gkd.max_new_tokens", tokens), ("gkd.lmbda", "1")];
        let trace = simulate(&job(LLAMA, &more).unwrap()).unwrap().trace.unrolled();
        let generates = |phase: u32| trace.phases[phase as usize].kind == PhaseKind::Generate;
        let of_phase = trace.allocations.iter().filter(|allocation| generates(allocation.phase));
        of_phase.map(|allocation| allocation.bytes as i64).sum::<i64>()
    };
    // Each token runs all before it.
    let grown = |checkpointing: &str| generated(checkpointing, "40") - 2 * generated(checkpointing, "20");
    assert!(grown("true") > grown("false"));
    assert!(generated("true", "20") > generated("false", "20"));
}
