//! The guard with commands that print what a trainer prints.

use super::{Home, OOM};

const JOB: &str = "model = \"gpt2\"\nmicro_batch_size = 32\ngradient_accumulation_steps = 2\nseq_len = 128\nprecision = \
                   \"bf16\"\ngpu = \"8GiB,sm_90\"\n";

/// Fails like a trainer that is out of memory where its micro-batch, `$1`, is more than `limit`.
fn trainer(limit: u64) -> String {
    format!("if [ $1 -gt {limit} ]; then echo \"{OOM}\" >&2; exit 1; fi; echo trained $1 x $2")
}

#[test]
fn too_big_ends_trained_at_the_same_effective_batch() {
    let home = Home::new("too-big");
    let job = home.write("job.toml", &JOB.replace("8GiB", "3GiB"));
    let script = trainer(16);
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    let output = home.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let run = home.last();
    // The plan knew it, so that nothing failed.
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{run}");
    assert_eq!(run["effective_batch_size"], 64);
    let batch = &run["attempts"][0]["attempt"]["batch"];
    let (rows, passes) =
        (batch["micro_batch_size"].as_u64().unwrap(), batch["gradient_accumulation_steps"].as_u64().unwrap());
    assert!(rows < 32 && rows * passes == 64, "{batch}");
}

#[test]
fn what_the_plan_did_not_know_is_learnt_from_the_message() {
    let home = Home::new("refit");
    let job = home.write("job.toml", JOB);
    let script = trainer(16);
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    assert_eq!(home.run(&words).status.code(), Some(0));
    let run = home.last();
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts[0]["attempt"]["batch"]["micro_batch_size"], 32);
    assert_eq!(attempts[0]["failure"]["class"], "gpu_memory");
    assert_eq!((attempts.len(), &run["effective_batch_size"]), (2, &64.into()), "{run}");
    assert!(run["correction"]["offset_bytes"].as_u64().unwrap() > 1 << 30, "{}", run["correction"]);
    let (before, after) = (&attempts[0]["attempt"]["predicted"], &attempts[1]["attempt"]["predicted"]);
    assert!(after["corrected_bytes"].as_u64() <= after["usable_bytes"].as_u64(), "{before} {after}");
}

#[test]
fn a_command_that_cannot_be_told_is_not_started_in_vain() {
    let home = Home::new("untold");
    let job = home.write("job.toml", &JOB.replace("8GiB", "3GiB"));
    let output = home.run(&["run", &job, "--", "sh", "-c", "echo started > started"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!home.path("started").exists());
    let run = home.last();
    assert_eq!(run["result"]["outcome"], "refused");
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.contains("the same effective batch and needs"), "{reason}");
    let forced = home.run(&["run", &job, "--force", "--", "sh", "-c", "echo started > started"]);
    assert!(forced.status.success() && home.path("started").exists());
}

#[test]
fn growth_is_told_from_size() {
    let home = Home::new("growth");
    let job = home.write("job.toml", JOB);
    let script = format!("for i in 1 2 3 4 5 6 7; do echo step $i/100; done; echo \"{OOM}\" >&2; exit 1");
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    assert_eq!(home.run(&words).status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "a smaller batch would not help");
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("memory grows: 7 steps fitted"), "{}", run["result"]);
}

#[test]
fn a_pointless_retry_is_not_made() {
    let home = Home::new("pointless");
    let script = "echo 'OSError: [Errno 28] No space left on device' >&2; exit 1";
    assert_eq!(home.run(&["run", "--", "sh", "-c", script]).status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1);
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("the disk is full"), "{}", run["result"]);
}

#[test]
fn a_preempted_command_goes_on_from_its_newest_whole_checkpoint() {
    let home = Home::new("preempted");
    let script = r#"
        if [ "$1" = "" ]; then
            mkdir -p out/checkpoint-5 out/checkpoint-6
            printf '\1\0\0\0\0\0\0\0 ' > /dev/null
            printf '\2\0\0\0\0\0\0\0{}' > out/checkpoint-5/model.safetensors
            printf '{"global_step": 5}' > out/checkpoint-5/trainer_state.json
            printf '{"global_' > out/checkpoint-6/trainer_state.json
            kill -15 $$
        fi
        echo from $1"#;
    let words = ["run", "--checkpoints", "out", "--", "sh", "-c", script, "sh", "{resume_from_checkpoint}"];
    let output = home.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"from out/checkpoint-5\n");
    assert_eq!(home.last()["attempts"][0]["failure"]["class"], "preempted");
}
