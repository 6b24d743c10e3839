//! Absurd jobs: each is answered or refused with an error that names the key, in bounded time, and never panics.

use std::time::{Duration, Instant};

use tonnage_core::estimate::{EstimateError, SimulatedJob, estimate};
use tonnage_core::job::{JobError, JobSource, JobSpec, Override, Resolved};

/// An answer or a refusal takes less, even in a build without optimizations on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn resolved(file: &str, assignments: &[&str]) -> Result<Resolved, JobError> {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    JobSource::from_file("job.toml", file).resolve(&overrides)
}

/// What is said of a job that cannot be; `None` when it is estimated.
fn refusal(file: &str, assignments: &[&str]) -> Option<String> {
    let begun = Instant::now();
    let problem = match resolved(file, assignments) {
        Ok(resolved) => estimate(&resolved.job).err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    assert!(begun.elapsed() < PATIENCE, "{assignments:?} took {:?}", begun.elapsed());
    problem
}

fn config(fields: &str) -> String {
    format!("model = {{ {fields} }}\nseq_len = 16\nmicro_batch_size = 1\ngpu = \"h100\"\n")
}

#[test]
fn job_keys_beyond_reason_are_refused_by_name() {
    let cases = [
        ("micro_batch_size=0", "`micro_batch_size` must be a whole number from 1"),
        ("micro_batch_size=-1", "`micro_batch_size` must be a whole number from 1"),
        ("micro_batch_size=1099511627776", "`micro_batch_size` must be"),
        ("micro_batch_size=99999999999999999999999999", "`micro_batch_size` must be"),
        ("micro_batch_size=1.5", "`micro_batch_size` must be"),
        ("seq_len=0", "`seq_len` must be"),
        ("seq_len=1025", "1025 tokens are more than the 1024 positions"),
        ("seq_len=18446744073709551615", "`seq_len` must be"),
        ("max_new_tokens=1000000000", "`max_new_tokens` must be"),
        ("steps=0", "`steps` must be"),
        ("gradient_accumulation_steps=0", "`gradient_accumulation_steps` must be"),
        ("dropout=1.0", "`dropout` must be"),
        ("dropout=nan", "`dropout` must be"),
        ("clip_grad_norm=-1", "`clip_grad_norm` must be"),
        ("lora.r=0", "`lora.r` must be"),
        ("lora.r=65537", "`lora.r` must be"),
        ("lora.targets=nothing", "`lora.targets`: no module is called nothing"),
        ("lora.targets=mlp", "`lora.targets`: `transformer.h.0.mlp` is no linear layer"),
        ("task=masked_lm", "`gpt2` has no masked-LM head"),
        ("loss=liger", "Liger has no fused loss for `gpt2`"),
        ("attention=flash", "No available kernel"),
        ("logits_to_keep=1", "`logits_to_keep` leaves training without logits"),
        ("gpu=0GiB", "`gpu`"),
        ("gpu=24GiB,sm_80,multiprocessors=0", "`gpu`"),
        ("allocator=max_split_size_mb:1", "`allocator`"),
    ];
    for (assignment, problem) in cases {
        let found = refusal("model = \"gpt2\"\n", &[assignment]).unwrap_or_default();
        assert!(found.contains(problem), "{assignment}: {found:?}");
    }
}

#[test]
fn errors_name_the_line_of_the_key() {
    let cases = [
        ("model = \"gpt2\"\nseq_len = 2000\n", "job.toml:2:1: 2000 tokens"),
        ("model = \"gpt2\"\n\nloss = \"liger\"\n", "job.toml:3:1: loss = \"liger\""),
        ("model = \"gpt2\"\nattention = \"flash\"\n", "job.toml:2:1: attention = \"flash\": No available kernel"),
        ("model = \"gpt2\"\n[lora]\ntargets = [\"x\"]\n", "job.toml:3:1: `lora.targets`: no module is called x"),
        ("model = \"gpt2\"\nlogits_to_keep = 1\n", "job.toml:2:1: `logits_to_keep`"),
        ("seq_len = 8\n[model]\nmodel_type = \"llama\"\nvocab_size = 0\n", "job.toml:4:1: config key `vocab_size`"),
        (
            "task = \"generate\"\nmax_new_tokens = 131072\n[model]\nmodel_type = \"llama\"\nnum_hidden_layers = 640\n",
            "job.toml:2:1: `max_new_tokens`",
        ),
    ];
    for (file, problem) in cases {
        let error = resolved(file, &[]).map_or_else(
            |error| error.to_string(),
            |resolved| {
                let error = estimate(&resolved.job).unwrap_err();
                let located = error.field().map(|field| resolved.locate(field));
                located.or_else(|| Some(resolved.locate_job(error.job()?.clone()))).unwrap().to_string()
            },
        );
        assert!(error.starts_with(problem), "{error}");
    }
}

#[test]
fn configs_that_no_model_has_are_refused_by_field() {
    let llama = "model_type = \"llama\", hidden_size = 64, intermediate_size = 64, num_attention_heads = 4, \
                 num_hidden_layers = 2, vocab_size = 100";
    let cases = [
        ("num_hidden_layers = 1000000", "config key `num_hidden_layers`: must be at most 1024"),
        ("num_hidden_layers = 0", "config key `num_hidden_layers`: must be at least 1"),
        ("num_hidden_layers = -3", "config key `num_hidden_layers`: must be a positive integer"),
        ("vocab_size = 0", "config key `vocab_size`"),
        ("vocab_size = 9223372036854775807", "config key `vocab_size`"),
        ("hidden_size = 65", "config key `num_attention_heads`: 4 does not divide hidden_size = 65"),
        ("hidden_size = 2147483648, intermediate_size = 2147483648", "2^50"),
        ("num_attention_heads = 0", "config key `num_attention_heads`"),
        ("num_key_value_heads = 3", "config key `num_key_value_heads`: 3 does not divide"),
        ("head_dim = 7", "config key `head_dim`"),
        ("attention_dropout = 2", "config key `attention_dropout`"),
        ("tie_word_embeddings = 1", "config key `tie_word_embeddings`"),
        ("hidden_act = \"swoosh\"", "config key `hidden_act`"),
        ("hidden_size = \"big\"", "config key `hidden_size`"),
    ];
    for (field, problem) in cases {
        let overridden: Vec<&str> = field.split(" = ").take(1).collect();
        let kept = llama.split(", ").filter(|entry| !overridden.iter().any(|key| entry.trim().starts_with(*key)));
        let fields = [kept.collect::<Vec<_>>().join(", ").as_str(), field].join(", ");
        let fields = if field.contains("intermediate_size") {
            fields.replacen("intermediate_size = 64, ", "", 1)
        } else {
            fields
        };
        let found = refusal(&config(&fields), &[]).unwrap_or_default();
        assert!(found.contains(problem), "{field}: {found:?}");
    }
    let deepseek = config("model_type = \"deepseek_v2\", num_hidden_layers = 2");
    let found = refusal(&deepseek, &[]).unwrap_or_default();
    assert!(found.contains("`num_experts_per_tok`: is missing"), "{found}");
    let bert = config("model_type = \"bert\", num_hidden_layers = 1");
    let found = refusal(&bert, &["seq_len=513"]).unwrap_or_default();
    assert!(found.contains("513 tokens are more than the 512 positions"), "{found}");
}

#[test]
fn rows_beyond_rotary_positions_are_answered_with_a_note() {
    let file = config(
        "model_type = \"llama\", hidden_size = 64, num_attention_heads = 4, num_hidden_layers = 1, \
                       max_position_embeddings = 8",
    );
    let resolved = resolved(&file, &[]).unwrap();
    assert!(estimate(&resolved.job).is_ok());
    assert!(resolved.notes.iter().any(|note| note.contains("beyond the 8 positions")), "{:?}", resolved.notes);
}

#[test]
fn long_jobs_take_bounded_time_and_say_what_was_run() {
    let small = config("model_type = \"gpt2\", n_layer = 1, n_embd = 16, n_head = 2, vocab_size = 50");
    for assignment in ["gradient_accumulation_steps=1000000", "steps=1000000"] {
        let begun = Instant::now();
        let estimate = estimate(&resolved(&small, &[assignment]).unwrap().job).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{assignment} took {:?}", begun.elapsed());
        assert!(estimate.caveats.iter().any(|caveat| caveat.code == "repetition_left_out"), "{assignment}");
    }
    let deep = config(
        "model_type = \"llama\", hidden_size = 8, intermediate_size = 8, num_attention_heads = 2, \
                       num_hidden_layers = 1024, vocab_size = 50",
    );
    assert_eq!(refusal(&deep, &["steps=1", "optimizer=sgd"]), None);
    let told = refusal(
        &config("model_type = \"llama\", num_hidden_layers = 640"),
        &["task=generate", "max_new_tokens=131072"],
    )
    .unwrap();
    assert!(told.contains("131070 tokens; of this model and this job at most"), "{told}");
}

/// A job that was never resolved: a library's caller may write any number into it.
fn unchecked(change: impl Fn(&mut JobSpec)) -> Result<u64, EstimateError> {
    let file = config(
        "model_type = \"qwen2\", hidden_size = 64, intermediate_size = 64, num_attention_heads = 4, \
                       num_key_value_heads = 2, num_hidden_layers = 1, vocab_size = 100",
    );
    let mut job = resolved(&file, &[]).unwrap().job;
    change(&mut job);
    let begun = Instant::now();
    let answer = SimulatedJob::new(&job).and_then(|simulated| simulated.estimate());
    assert!(begun.elapsed() < PATIENCE);
    answer.map(|estimate| estimate.peak_reserved_bytes)
}

#[test]
fn jobs_that_were_never_resolved_are_checked_too() {
    type Change = fn(&mut JobSpec);
    let refused: [(Change, &str); 10] = [
        (|job| job.micro_batch_size = 0, "`micro_batch_size` must be at least 1"),
        (|job| job.micro_batch_size = 1 << 40, "more than a GPU can hold"),
        (|job| job.seq_len = u64::MAX, "more than a GPU can hold"),
        (|job| job.seq_len = 0, "`seq_len` must be at least 1"),
        (|job| job.gradient_accumulation_steps = 0, "`gradient_accumulation_steps` must be at least 1"),
        (|job| job.steps = 0, "`steps` must be at least 1"),
        (|job| job.gpu.multiprocessors = 0, "`gpu.multiprocessors` must be at least 1"),
        (|job| job.model.model_type = "musicgen".to_owned(), "model type `musicgen` is not known"),
        (|job| job.logits.logits_to_keep = Some(u64::MAX), "`logits_to_keep`"),
        (|job| drop(job.model.config.0.insert("vocab_size".to_owned(), 0.into())), "config key `vocab_size`"),
    ];
    for (change, problem) in refused {
        let found = unchecked(change).unwrap_err().to_string();
        assert!(found.contains(problem), "{problem}: {found}");
    }
    // The most tokens at once: more than any GPU holds, and no overflow on the way.
    let huge = unchecked(|job| (job.micro_batch_size, job.seq_len) = (1 << 16, 1 << 16));
    assert!(huge.is_err() || huge.is_ok_and(|reserved| reserved > 1 << 40));
}

/// A trainer of rows that are generated, of pairs, and a node of a swarm: each with a key at its greatest.
#[test]
fn no_size_makes_a_trainer_run_for_ever() {
    let model = "model = { model_type = \"llama\", num_hidden_layers = 1, hidden_size = 16, intermediate_size = 16, \
                 num_attention_heads = 2, num_key_value_heads = 2, vocab_size = 50 }\ngpu = \"h100\"\n";
    let lengths = "prompt_len = 8\ncompletion_len = 4\n";
    let grpo = format!("{model}task = \"grpo\"\nmicro_batch_size = 2\nnum_generations = 2\n{lengths}");
    let dpo = format!("{model}task = \"dpo\"\nmicro_batch_size = 2\n{lengths}");
    let swarm = format!("{model}task = \"swarm\"\nnum_generations = 2\n{lengths}");
    let answered = [
        (&grpo, "gradient_accumulation_steps=100000"),
        (&grpo, "steps=4294967295"),
        (&grpo, "grpo.num_iterations=65536"),
        (&dpo, "gradient_accumulation_steps=50000"),
        (&swarm, "steps=4294967295"),
    ];
    for (file, assignment) in answered {
        assert_eq!(refusal(file, &[assignment]), None, "{assignment}");
    }
    let deep = grpo.replace("num_hidden_layers = 1,", "num_hidden_layers = 640,");
    let told = refusal(&deep, &["completion_len=131072"]).unwrap_or_default();
    assert!(told.contains("`completion_len`: 131070 tokens; of this model and this job at most"), "{told:?}");
    let refused = [
        (
            &grpo,
            &["gradient_accumulation_steps=4294967295"][..],
            "`grpo.steps_per_generation` must be from 1 to 131072",
        ),
        (&grpo, &["micro_batch_size=1048576", "gradient_accumulation_steps=131072"], "more than a GPU can hold"),
        (&dpo, &["gradient_accumulation_steps=4294967295"], "`gradient_accumulation_steps` must be from 1 to 65536"),
        (
            &swarm,
            &["num_generations=65536", "swarm.log_probs=chunked", "swarm.rows_per_chunk=1"],
            "`swarm.rows_per_chunk` 1",
        ),
    ];
    for (file, assignments, problem) in refused {
        let told = refusal(file, assignments).unwrap_or_default();
        assert!(told.contains(problem), "{assignments:?}: {told:?}");
    }
}

#[test]
fn hints_do_not_name_what_is_set_or_cannot_be() {
    let hint = |assignments: &[&str]| resolved("model = \"llama-3.2-1b\"\n", assignments).unwrap_err().hint.unwrap();
    assert!(hint(&["logits_to_keep=1"]).contains("set loss = \"liger\""));
    assert_eq!(hint(&["logits_to_keep=1", "loss=liger"]), "leave it out");
    assert!(hint(&["loss=liger", "framework=trl"]).contains("use_liger_kernel = true"));
    assert_eq!(hint(&["logits_to_keep=1", "model=gpt2", "seq_len=64"]), "leave it out");
}
