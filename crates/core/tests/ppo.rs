//! What PPO refuses, and what must hold of it whatever its sizes.

use tonnage_core::job::{JobError, JobSource, JobSpec};
use tonnage_core::step::simulate;

const LLAMA: &str = "task = \"ppo\"\ngpu = \"h100\"\nprompt_len = 24\ncompletion_len = 16\nmicro_batch_size = 2\nppo.reward_model = \"qwen2.5-0.5b\"\n\
                     model = { model_type = \"llama\", num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, \
                     vocab_size = 900, max_position_embeddings = 8192 }\n";

fn job(more: &[(&str, &str)]) -> Result<JobSpec, JobError> {
    let source =
        more.iter().fold(JobSource::from_file("job.toml", LLAMA), |source, (key, value)| source.set(key, *value));
    source.resolve(&[]).map(|resolved| resolved.job)
}

#[test]
fn what_is_not_simulated_is_refused_with_the_key_and_the_way_out() {
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[("ppo.reward_model", "bert-base-uncased")], "that scores rows is not simulated"),
        (&[("precision", "amp-bf16")], "an accelerator of its own"),
        (&[("gradient_checkpointing", "true")], "never turns it on"),
        (&[("ppo.num_mini_batches", "3")], "does not divide"),
        (&[("completion_len", "4096")], "keeps the scores of every token"),
        (&[("world_size", "2"), ("parallel", "ddp")], "not for task = \"ppo\""),
    ];
    for (more, said) in cases {
        let refused = |job: JobSpec| simulate(&job).map(|_| ()).map_err(|error| JobError::new(error.to_string()));
        let error = job(more).and_then(refused).expect_err(said).to_string();
        assert!(error.contains(said), "{said}: {error}");
    }
}

#[test]
fn every_epoch_is_one_more_training() {
    let allocations = |more: &[(&str, &str)]| simulate(&job(more).unwrap()).unwrap().trace.unrolled().allocations.len();
    let (once, twice) = (allocations(&[("ppo.num_ppo_epochs", "1")]), allocations(&[("ppo.num_ppo_epochs", "2")]));
    assert!(once < twice);
    // Adapters that can be switched off make a reference unnecessary.
    assert!(allocations(&[("lora.r", "4"), ("ppo.num_ppo_epochs", "1")]) != once);
}
