//! Errors: one voice, a place, a hint, exit code 2, nothing on stdout.

use super::{check, tonnage};

#[test]
fn input_that_cannot_be() {
    check("error_unknown_model", &["estimate", "gtp2"]);
    check("error_no_model", &["estimate"]);
    check("error_unknown_key", &["estimate", "gpt2", "--set", "micro_batch_sise=4"]);
    check("error_zero", &["estimate", "gpt2", "-b", "0"]);
    check("error_gpu", &["estimate", "gpt2", "--gpu", "h1000"]);
    check("error_job_file", &["estimate", "broken.toml"]);
    check("error_bad_json", &["estimate", "broken.json"]);
    check("error_no_such_file", &["estimate", "none.toml"]);
    check("error_compare", &["estimate", "gpt2", "--compare", "fp32,eager"]);
    check("error_allocator", &["estimate", "gpt2", "--allocator", "expandable_segments:maybe"]);
    check("error_not_a_recording", &["trace", "replay", "job.toml"]);
}

#[test]
fn a_config_that_cannot_be_built_is_named_with_line_and_column() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fields");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("heads.json"), "{\"model_type\": \"gpt2\",\n \"n_head\": 7}").unwrap();
    let job = folder.join("job.toml");
    std::fs::write(&job, "model = \"heads.json\"\n").unwrap();
    let stderr = |path: &std::path::Path| {
        let output = tonnage(&["estimate", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let problem = "heads.json:2:2: config key `n_head`: 7 does not divide n_embd = 768";
    for path in [&folder.join("heads.json"), &job] {
        assert!(stderr(path).contains(problem), "{}", stderr(path));
    }
    std::fs::write(&job, "[model]\nmodel_type = \"gpt2\"\nn_head = 7\n").unwrap();
    assert!(stderr(&job).contains("job.toml:3:1: config key `n_head`"), "{}", stderr(&job));
}

#[test]
fn errors_leave_stdout_empty() {
    for args in [&["estimate", "gtp2"][..], &["estimate", "gtp2", "--json"], &["trace", "replay", "none"]] {
        let output = tonnage(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(String::from_utf8(output.stderr).unwrap().starts_with("error: "), "{args:?}");
    }
}

#[test]
fn no_size_makes_it_panic() {
    let huge = ["-b", "1048576", "-s", "16777216"];
    for model in ["gpt2", "qwen2.5-72b"] {
        let output = tonnage(&[&["estimate", model], &huge[..]].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!stderr.contains("panicked"), "{model}: {stderr}");
        assert_ne!(output.status.code(), Some(0), "{model}: {stderr}");
    }
}

#[test]
fn jobs_that_pytorch_refuses_exit_with_2_and_name_the_key() {
    let cases: [(&[&str], &str); 9] = [
        (&["gpt2", "--loss", "liger"], "loss = \"liger\""),
        (&["gpt2", "--attention", "flash"], "No available kernel"),
        (&["gpt2", "--attention", "cudnn", "--precision", "bf16", "--gpu", "t4"], "No available kernel"),
        (&["gpt2", "--lora-targets", "nothing"], "`lora.targets`"),
        (&["gpt2", "-s", "1025"], "1024 positions"),
        (&["bert-base-uncased", "-s", "513"], "512 positions"),
        (&["gpt2", "-b", "1099511627776"], "`micro_batch_size`"),
        (&["gpt2", "--logits-to-keep", "1"], "`logits_to_keep`"),
        (&["llama-3.2-1b", "--task", "generate", "--max-new-tokens", "131073", "-b", "1"], "`max_new_tokens`"),
    ];
    for (args, key) in cases {
        let output = tonnage(&[&["estimate"], args].concat());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(key), "{args:?}: {stderr}");
    }
}

#[test]
fn with_json_an_error_is_text_on_stderr_and_nothing_on_stdout() {
    for words in [
        &["estimate", "nosuch", "--json"][..],
        &["fit", "gpt2", "--gpus", "nosuch", "--json"],
        &["plan", "nosuch", "--json"],
        &["cost", "nosuch", "--json"],
        &["gpus", "nosuch", "--json"],
        &["keys", "nosuch", "--json"],
        &["models", "nosuch", "--json"],
        &["show", "nosuch", "--json"],
        &["doctor", "nosuch", "--json"],
        &["rehearse", "--json", "--", "/no/such/program"],
        &["estimate", "gpt2", "--json", "--nosuch"],
    ] {
        let output = tonnage(words);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{words:?}");
        assert!(output.stderr.starts_with(b"error: "), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_is_wrong_is_said_as_it_was_written() {
    let said = |words: &[&str]| String::from_utf8_lossy(&tonnage(words).stderr).into_owned();
    let dropout = said(&["estimate", "gpt2", "--dropout", "nan"]);
    assert!(dropout.contains("found \"nan\""), "{dropout}");
    let folder = std::env::temp_dir().join(format!("tonnage-broken-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.json"), "{").unwrap();
    let broken = said(&["estimate", folder.to_str().unwrap()]);
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(broken.contains("/config.json:1:"), "{broken}");
}

#[test]
fn words_of_other_programs_are_taken_or_answered() {
    let same = [
        &["estimate", "gpt2", "-q", "-g", "l4", "--per_device_train_batch_size=2", "--max_seq_length", "128"][..],
        &["estimate", "gpt2", "-q", "-g=l4", "-s=128", "--optimizer", "adamw_torch_fused", "--precision", "bfloat16"],
        &["estimate", "gpt2", "-q", "-s", "128", "--gpu", "rtx4090", "--task", "sft", "-b", "1"],
        &["estimate", "gpt2", "-q", "-s", "128", "--gpu", "h100-1g.10gb", "-b", "1", "--set", "batch_size=1"],
    ];
    for words in &same[..3] {
        assert_eq!(tonnage(words).status.code(), Some(0), "{words:?}: {:?}", tonnage(words));
    }
    let twice = tonnage(same[3]);
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is set twice"), "{twice:?}");
    let answered = [
        (&["--load-in-4bit"][..], "set lora.r"),
        (&["--set", "load_in_8bit=true"], "set lora.r"),
        (&["--optimizer", "distributed_shampoo"], "tonnage rehearse"),
        (&["--parallel", "fsdp"], "--parallel fsdp2"),
        (&["--gpu", "4xH100"], "--gpu h100 --world-size 4"),
    ];
    for (words, said) in answered {
        let refused = tonnage(&[&["estimate", "gpt2"], words].concat());
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && text.contains(said) && !text.contains("similar"), "{text}");
    }
}

#[test]
fn a_switch_for_adapters_keeps_the_rank_of_a_file() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("rank.toml");
    for text in ["model = \"gpt2\"\n[lora]\nr = 64\n", "model = \"gpt2\"\nuse_lora = true\n[lora]\nr = 64\n"] {
        std::fs::write(&file, text).unwrap();
        let output = tonnage(&["estimate", file.to_str().unwrap(), "--gpu", "h100", "--qlora"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("LoRA r=64 on nf4"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn tight_fails_where_it_shall() {
    let tight = ["estimate", "job.toml", "--gpu", "13600MiB,sm_90,multiprocessors=132", "-q"];
    assert_eq!(tonnage(&tight).status.code(), Some(0));
    assert_eq!(tonnage(&[&tight[..], &["--fail-on", "tight"]].concat()).status.code(), Some(1));
    let fits = ["estimate", "job.toml", "--gpu", "h100", "-q", "--fail-on", "tight"];
    assert_eq!(tonnage(&fits).status.code(), Some(0));
}

#[test]
fn tables_and_plans_fail_where_nothing_has_room_to_spare() {
    let tight = ["job.toml", "--gpu", "13600MiB,sm_90,multiprocessors=132", "--json"];
    let code = |command: &str, more: &[&str]| tonnage(&[&[command][..], &tight, more].concat()).status.code();
    assert_eq!(
        (code("fit", &["--no-largest"]), code("fit", &["--no-largest", "--fail-on", "tight"])),
        (Some(0), Some(1))
    );
    let roomy = ["fit", "job.toml", "--gpus", "h100,13600MiB", "--no-largest", "--json", "--fail-on", "tight"];
    assert_eq!(tonnage(&roomy).status.code(), Some(0));
    let run = tonnage(&["run", "job.toml", "--gpu", tight[2], "--fail-on", "tight", "--", "true"]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.code() == Some(1) && said.contains("refused: the job is tight"), "{said}");
}

#[test]
fn a_batch_beyond_any_gpu_is_refused_by_its_own_key_with_one_code() {
    for rows in ["100000", "300000", "1048576", "1048577", "100000000000000000000"] {
        for tokens in ["128", "1024"] {
            let output = tonnage(&["estimate", "gpt2", "-b", rows, "-s", tokens, "--gpu", "h100", "--json"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.code() == Some(2) && output.stdout.is_empty(), "{rows} x {tokens}: {said}");
            assert!(said.contains("`micro_batch_size`") && !said.contains("config key"), "{rows} x {tokens}: {said}");
        }
    }
    let long =
        tonnage(&["estimate", "llama-3.2-1b", "-b", "1", "-s", "16000000", "--attention", "eager", "--gpu", "h100"]);
    assert!(String::from_utf8_lossy(&long.stderr).contains("`seq_len`"), "{long:?}");
}

#[test]
fn a_small_gpt_by_its_config_alone_has_its_trainers_defaults() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("agi2-config");
    std::fs::create_dir_all(&folder).unwrap();
    let config =
        r#"{"model_type": "agi2", "n_embd": 384, "n_layer": 6, "n_head": 6, "n_positions": 512, "vocab_size": 50257}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let answer = |words: &[&str]| super::json(&[&["estimate", "--gpu", "l4", "--json"], words].concat());
    let by_config = answer(&[folder.to_str().unwrap(), "-b", "24"]);
    let by_flags = answer(&[
        "--model-embd",
        "384",
        "--model-layer",
        "6",
        "--model-head",
        "6",
        "--model-positions",
        "512",
        "-b",
        "24",
    ]);
    let written = ["model_type=agi2", "n_embd=384", "n_layer=6", "n_head=6", "n_positions=512", "vocab_size=50257"];
    let sets: Vec<String> = written.iter().map(|field| format!("--set=model.{field}")).collect();
    let by_fields = answer(&[&["-b", "24"][..], &sets.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    for key in ["peak_allocated_bytes", "peak_reserved_bytes", "total_bytes"] {
        assert!(by_config[key].is_u64(), "{by_config}");
        assert_eq!((&by_config[key], &by_fields[key]), (&by_flags[key], &by_flags[key]), "{key}");
    }
}

#[test]
fn an_assignment_without_a_value_shows_its_commands_usage() {
    for command in ["estimate", "plan", "fit"] {
        let output = tonnage(&[command, "gpt2", "--set", "micro_batch_size"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("write it as `key=value`"), "{said}");
        assert!(said.contains(&format!("Usage: tonnage {command}")) && !said.contains("\n\n\n"), "{said}");
    }
}

#[test]
fn a_list_of_no_gpus_is_wrong_usage() {
    assert_eq!(tonnage(&["fit", "gpt2", "--gpus", ""]).status.code(), Some(2));
}

#[test]
fn the_phantom_library_is_written_out() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("written-library");
    let output = tonnage(&["rehearse", "--gpu", "l4", "--write-library", folder.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("LD_PRELOAD=") && said.contains("cc=8.9"), "{output:?}");
    assert!(std::fs::metadata(folder.join("libtonnage_phantom.so")).unwrap().len() > 100_000);
    assert!(folder.join("libnvidia-ml.so.1").exists());
}
