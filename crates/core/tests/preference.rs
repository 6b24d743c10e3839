//! What KTO, ORPO, CPO and RLOO refuse, and what must hold of them whatever their sizes.

use tonnage_core::job::{JobError, JobSource, JobSpec};
use tonnage_core::step::simulate;

const LLAMA: &str = "gpu = \"h100\"\nprompt_len = 24\ncompletion_len = 16\nmicro_batch_size = 4\nmodel = { model_type = \"llama\", \
                     num_hidden_layers = 2, hidden_size = 64, intermediate_size = 160, num_attention_heads = 4, vocab_size = 900 }\n";
const MIXTRAL: &str = "gpu = \"h100\"\nprompt_len = 24\ncompletion_len = 16\nmodel = { model_type = \"mixtral\", num_hidden_layers = 2, \
                       hidden_size = 64, intermediate_size = 96, num_attention_heads = 4, num_key_value_heads = 2, vocab_size = 900, \
                       num_local_experts = 4, output_router_logits = true }\n";
const T5: &str = "task = \"seq2seq_lm\"\ngpu = \"h100\"\nmodel = \"t5-small\"\n";

fn job(base: &str, more: &str) -> Result<JobSpec, JobError> {
    JobSource::from_file("job.toml", format!("{base}{more}")).resolve(&[]).map(|resolved| resolved.job)
}

/// All that is ever allocated, and how many times.
fn allocations(more: &str) -> (u64, usize) {
    let simulation = simulate(&job(LLAMA, more).unwrap()).unwrap();
    let allocations = &simulation.trace.allocations;
    (allocations.iter().map(|allocation| allocation.bytes).sum(), allocations.len())
}

#[test]
fn what_the_trainers_refuse_is_refused_with_the_key_and_the_way_out() {
    let cases = [
        (LLAMA, "task = \"kto\"\nmicro_batch_size = 1\n", "kto.loss"),
        (LLAMA, "task = \"kto\"\nkto.desirable_rows = 5\n", "kto.desirable_rows"),
        (LLAMA, "task = \"kto\"\nworld_size = 2\nparallel = \"fsdp2\"\n", "world_size"),
        (LLAMA, "task = \"rloo\"\nworld_size = 2\nparallel = \"deepspeed\"\ndeepspeed.stage = 3\n", "world_size"),
        (T5, "world_size = 2\nparallel = \"deepspeed\"\ndeepspeed.stage = 2\n", "under parallel = \"ddp\" alone"),
        (LLAMA, "task = \"orpo\"\nquantization = \"int8\"\nlora.r = 4\n", "quantization"),
        (MIXTRAL, "task = \"cpo\"\n", "output_router_logits"),
        (LLAMA, "task = \"rloo\"\nnum_generations = 1\n", "num_generations"),
        (LLAMA, "task = \"rloo\"\ngrpo.log_probs = \"full_logits\"\n", "grpo.log_probs"),
        (LLAMA, "task = \"ppo\"\n", "ppo.reward_model"),
    ];
    for (base, more, key) in cases {
        let base = if more.contains("micro_batch_size") {
            base.replace("micro_batch_size = 4\n", "")
        } else {
            base.to_owned()
        };
        let error = job(&base, more)
            .and_then(|job| simulate(&job).map(|_| job).map_err(|error| JobError::new(error.to_string())));
        let error = error.expect_err(more);
        let text = format!("{error} {:?} {:?}", error.keys, error.hint);
        assert!(text.contains(key), "{more}: {text}");
    }
}

#[test]
fn passes_that_are_left_out_allocate_nothing() {
    let (kto, kto_count) = allocations("task = \"kto\"\n");
    let (without_divergence, count) = allocations("task = \"kto\"\nkto.loss = \"apo_zero_unpaired\"\n");
    assert!(without_divergence < kto && count < kto_count);
    let (with_nll, _) = allocations("task = \"cpo\"\n");
    let (without_nll, _) = allocations("task = \"cpo\"\ncpo.alpha = 0.0\n");
    assert!(without_nll < with_nll);
    let (with_reference, _) = allocations("task = \"rloo\"\n");
    let (without_reference, _) = allocations("task = \"rloo\"\ngrpo.beta = 0.0\n");
    assert!(without_reference < with_reference);
}
