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
    let listed = String::from_utf8(home.run(&["list", "--json"]).stdout).unwrap();
    assert!(!listed.contains("{micro_batch_size}") && listed.contains(" 16 4"), "what was started last: {listed}");
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
    let script = format!("for i in 1 2 3 4 5 6 7; do echo step $i/100; sleep 0.05; done; echo \"{OOM}\" >&2; exit 1");
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    assert_eq!(home.run(&words).status.code(), Some(1));
    let run = home.last();
    assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "a smaller batch would not help");
    assert!(run["result"]["reason"].as_str().unwrap().starts_with("memory grows: 6 steps fitted"), "{}", run["result"]);
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
    assert_eq!(home.last()["attempts"][0]["failure"]["class"], "terminated");
}

/// A job that prints `lines` and then fails with `error`, told its batch.
fn says(home: &Home, lines: &str, error: &str) -> serde_json::Value {
    let job = home.write("job.toml", JOB);
    let script = format!("[ $1 -lt 32 ] && exit 0; {lines} echo '{error}' >&2; exit 1");
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    home.run(&words);
    home.last()
}

#[test]
fn headings_are_no_steps() {
    let home = Home::new("headings");
    let lines = "for i in 'Step 1: loading tokenizer' 'Step 2: loading model' 'Step 3: building 2 sets' 'Step 4: training'; do \
                 echo \"$i\"; sleep 0.05; done;";
    let run = says(&home, lines, OOM);
    let attempts = run["attempts"].as_array().unwrap();
    assert_eq!(attempts[0]["failure"]["at_start"], true, "{run:#}");
    assert_eq!((attempts.len(), &run["result"]["outcome"]), (2, &"succeeded".into()), "{run:#}");
}

#[test]
fn lines_written_in_pieces_are_read_whole() {
    for (name, write) in
        [("pieces", "printf 'step '; sleep 0.02; printf \"$i/100\\n\""), ("whole", "echo step $i/100; sleep 0.02")]
    {
        let home = Home::new(&format!("lines-{name}"));
        let run = says(&home, &format!("for i in 1 2 3 4 5 6 7; do {write}; sleep 0.02; done;"), OOM);
        assert_eq!(run["attempts"].as_array().unwrap().len(), 1, "{name}: a smaller batch would only put it off");
        assert!(
            run["result"]["reason"].as_str().unwrap().starts_with("memory grows: 6 steps fitted"),
            "{}",
            run["result"]
        );
        assert_eq!(
            (&run["nodes"][0]["progress"]["step"], &run["nodes"][0]["progress"]["total"]),
            (&7.into(), &100.into())
        );
    }
}

#[test]
fn a_time_limit_is_cured_by_a_checkpoint() {
    let home = Home::new("time-limit");
    let limit = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T05:00:00 DUE TO TIME LIMIT ***";
    let output = home.run(&["run", "--", "sh", "-c", &format!("echo '{limit}' >&2; exit 1")]);
    assert_eq!(output.status.code(), Some(1));
    let run = home.last();
    let reason = run["result"]["reason"].as_str().unwrap();
    assert!(reason.starts_with("the scheduler's time limit was reached: a longer one cures it"), "{reason}");
    assert!(reason.contains("--checkpoints") && !reason.contains("time_limit"), "{reason}");
    assert_eq!(run["nodes"][0]["progress"], serde_json::Value::Null, "SLURM's STEP is none");
    let script = format!(
        r#"
        if [ "$1" = "" ]; then
            mkdir -p out/checkpoint-5
            printf '\2\0\0\0\0\0\0\0{{}}' > out/checkpoint-5/model.safetensors
            printf '{{"global_step": 5}}' > out/checkpoint-5/trainer_state.json
            echo '{limit}' >&2; exit 1
        fi
        echo from $1"#
    );
    let words = ["run", "--checkpoints", "out", "--", "sh", "-c", &script, "sh", "{resume_from_checkpoint}"];
    assert_eq!(home.run(&words).stdout, b"from out/checkpoint-5\n");
}

#[test]
fn sentences_hold_no_raw_names() {
    let home = Home::new("raw-names");
    for (script, wanted) in [
        ("kill -11 $$", "a process crashed in native code"),
        ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "the disk is full"),
        ("kill -9 $$", "a process was killed"),
    ] {
        let output = home.run(&["run", "--", "sh", "-c", script]);
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(wanted) && !said.contains("crashed,") && !said.contains("disk_full"), "{said}");
    }
}

/// What PyTorch says on 24 GiB where the job asks for `gib` more than there is.
fn oom(total: &str, allocated: &str) -> String {
    format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of {total} GiB of \
         which 200.00 MiB is free. Of the allocated memory {allocated} GiB is allocated by PyTorch, and 100.00 MiB is \
         reserved by PyTorch but unallocated."
    )
}

#[test]
fn what_grows_with_the_rows_is_not_missing_at_every_size() {
    // The job says seq_len 32; the script needs many times that.
    let home = Home::new("misdescribed");
    let job = home.write("job.toml", &JOB.replace("seq_len = 128", "seq_len = 32").replace("8GiB", "3GiB"));
    for (limit, most) in [(16, 2), (8, 3), (1, 5)] {
        let script =
            format!("if [ $1 -gt {limit} ]; then echo '{}' >&2; exit 1; fi; echo trained $1 x $2", oom("3.00", "2.60"));
        let words =
            ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
        let output = home.run(&words);
        let said = String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(0), "{limit}: {said}");
        let run = home.last();
        assert_eq!((&run["effective_batch_size"], &run["effective_batch_is_equal"]), (&64.into(), &true.into()));
        assert!(run["attempts"].as_array().unwrap().len() <= most, "{limit}: {said}");
        assert!(said.contains("times what the job comes to"), "{said}");
    }
}

#[test]
fn the_smallest_batch_is_tried_before_the_night_is_lost() {
    let home = Home::new("smallest");
    let job = home.write("job.toml", &JOB.replace("micro_batch_size = 32", "micro_batch_size = 2"));
    // Far more than the job comes to, so that no model of it leaves room.
    let script = format!("if [ $1 -gt 1 ]; then echo '{}' >&2; exit 1; fi; echo trained $1 x $2", oom("8.00", "7.60"));
    let words = ["run", &job, "--", "sh", "-c", &script, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    let output = home.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let never = format!("echo '{}' >&2; exit 1", oom("8.00", "7.60"));
    let words = ["run", &job, "--", "sh", "-c", &never, "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    assert_eq!(home.run(&words).status.code(), Some(1));
    let run = home.last();
    assert!(run["attempts"].as_array().unwrap().len() <= 3, "{run:#}");
    assert!(run["result"]["reason"].as_str().unwrap().contains("has failed too"), "{}", run["result"]);
}

#[test]
fn ranks_take_the_largest_batch_that_fits_tightly_too() {
    let home = Home::new("tight");
    let command = ["sh", "-c", "echo trained $1 x $2", "sh", "{micro_batch_size}", "{gradient_accumulation_steps}"];
    let ddp = format!("{}world_size = 2\nparallel = \"ddp\"\n", JOB.replace("8GiB", "3GiB"));
    let job = home.write("job.toml", &ddp);
    assert_eq!(home.run(&[&["run", &job, "--"], &command[..]].concat()).status.code(), Some(0));
    let run = home.last();
    let rows = run["attempts"][0]["attempt"]["batch"]["micro_batch_size"].as_u64().unwrap();
    let listed = run["run"]["command"].as_str().unwrap();
    assert!(listed.ends_with(&format!("sh {rows} {}", 64 / rows)), "a list shows what was started: {listed}");
    // The next larger equal batch is one that an estimate refuses too.
    let fits = |rows: u64| {
        let (rows, passes) = (format!("micro_batch_size={rows}"), format!("gradient_accumulation_steps={}", 64 / rows));
        home.run(&["estimate", &job, "--set", &rows, "--set", &passes]).status.success()
    };
    assert!(fits(rows) && !fits(rows * 2), "{rows}");
}

#[test]
fn a_trainer_without_a_bar_is_followed_by_what_it_saves() {
    let home = Home::new("saved");
    // As the Trainer writes with `disable_tqdm`: three checkpoints, no word of a step, and an error that a leak would end in.
    let script = "mkdir -p out; for i in 10 20 30; do mkdir out/checkpoint-$i; \
                  printf \"{\\\"global_step\\\": $i, \\\"max_steps\\\": 100}\" > out/checkpoint-$i/trainer_state.json; done; \
                  sleep 0.3; echo 'ValueError: no' >&2; exit 1";
    home.run(&["run", "--checkpoints", "out", "--", "sh", "-c", script]);
    let run = home.last();
    assert_eq!(run["nodes"][0]["progress"]["step"], 30, "{run:#}");
    assert_eq!(run["nodes"][0]["progress"]["total"], 100);
    let failure = &run["attempts"][0]["failure"];
    assert_eq!(
        (&failure["step"], &failure["steps_made"], &failure["at_start"]),
        (&30.into(), &30.into(), &false.into())
    );
}
