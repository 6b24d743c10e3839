//! Models by name that are not built in: what is known of them, and configs in the hub cache.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::command;

const REVISION: &str = "0123456789abcdef0123456789abcdef01234567";
const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, "torch_dtype": "bfloat16"}"#;

/// A cache as `hf download` leaves it: the files of a snapshot are links to blobs.
fn cache(test: &str, model: &str, files: &[(&str, &[u8])]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hub_{test}"));
    let _ = fs::remove_dir_all(&root);
    let folder = root.join(format!("models--{}", model.replace('/', "--")));
    let snapshot = folder.join("snapshots").join(REVISION);
    [folder.join("refs"), folder.join("blobs"), snapshot.clone()]
        .iter()
        .for_each(|folder| fs::create_dir_all(folder).unwrap());
    fs::write(folder.join("refs/main"), REVISION).unwrap();
    for (name, bytes) in files {
        fs::write(folder.join("blobs").join(name), bytes).unwrap();
        symlink(Path::new("../../blobs").join(name), snapshot.join(name)).unwrap();
    }
    root
}

fn estimate(cache: &Path, model: &str, more: &[&str]) -> Output {
    let mut command = command(&[&["estimate", model, "--gpu", "l4"], more].concat());
    command.env("HF_HUB_CACHE", cache).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.clone(), output.stderr.clone()].concat()).unwrap()
}

fn flat(output: &Output) -> String {
    said(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_downloaded_model_is_found_by_its_name() {
    let root = cache("found", "some-org/Tiny.1", &[("config.json", CONFIG.as_bytes())]);
    let output = estimate(&root, "some-org/Tiny.1", &[]);
    let text = flat(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("revision 0123456 in the hub cache"), "{text}");
    assert!(text.contains("bf16*"), "the dtype is the config's: {text}");
    // By HF_HOME too, and as a judge or in a table.
    let home = root.join("home");
    fs::create_dir_all(&home).unwrap();
    symlink(&root, home.join("hub")).unwrap();
    let by_home =
        command(&["fit", "--models", "some-org/Tiny.1", "--gpus", "l4"]).env("HF_HOME", &home).output().unwrap();
    assert_eq!(by_home.status.code(), Some(0), "{}", said(&by_home));
}

#[test]
fn a_built_in_model_stays_what_it_is() {
    let root = cache("preset", "openai-community/gpt2", &[("config.json", CONFIG.as_bytes())]);
    let text = flat(&estimate(&root, "openai-community/gpt2", &["-b1", "-s64"]));
    assert!(text.contains("124.4M parameters") && !text.contains("hub cache"), "{text}");
}

#[test]
fn weights_in_the_cache_confirm_the_count() {
    let parameters = 2 * 100 * 64 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64);
    let index = |count: u64| {
        format!(
            r#"{{"metadata": {{"total_parameters": {count}, "total_size": {}}}, "weight_map": {{"w": "model-00001-of-00001.safetensors"}}}}"#,
            2 * count
        )
    };
    let with = |count: u64| {
        let index = index(count);
        let files = [("config.json", CONFIG.as_bytes()), ("model.safetensors.index.json", index.as_bytes())];
        flat(&estimate(&cache("count", "a/b", &files), "a/b", &["-b1", "-s64"]))
    };
    let (equal, other) = (with(parameters), with(parameters + 64));
    assert!(!equal.contains("could not be checked") && !equal.contains("safetensors"), "{equal}");
    assert!(other.contains("safetensors"), "{other}");
}

#[test]
fn what_is_broken_is_said_and_nothing_is_followed_out() {
    let root = cache("broken", "a/b", &[]);
    let snapshot = root.join("models--a--b/snapshots").join(REVISION);
    assert!(flat(&estimate(&root, "a/b", &[])).contains("has no config.json"));
    symlink("../../blobs/gone", snapshot.join("config.json")).unwrap();
    assert!(flat(&estimate(&root, "a/b", &[])).contains("a link to what is not there"));
    fs::remove_file(snapshot.join("config.json")).unwrap();
    for outside in ["/etc/passwd", "/dev/zero", "../../../../../config.json"] {
        symlink(outside, snapshot.join("config.json")).unwrap();
        let output = estimate(&root, "a/b", &[]);
        let text = flat(&output);
        assert!(output.status.code() == Some(2) && !text.contains("root:"), "{outside}: {text}");
        fs::remove_file(snapshot.join("config.json")).unwrap();
    }
    for reference in ["../../../../etc", "", &"f".repeat(10_000), "main\n"] {
        fs::write(root.join("models--a--b/refs/main"), reference).unwrap();
        fs::create_dir_all(root.join("models--a--b/snapshots/abcdef0")).unwrap();
        assert_eq!(estimate(&root, "a/b", &[]).status.code(), Some(2), "{reference}");
    }
    for name in ["../b", "a/../b", "a//b", "models--a--b", "a/b/c"] {
        assert_eq!(estimate(&root, name, &[]).status.code(), Some(2), "{name}");
    }
}

#[test]
fn well_known_names_get_an_answer() {
    let empty = Path::new("/nonexistent");
    for (name, what) in [
        ("deepseek-ai/DeepSeek-V3.2-Exp", "a mixture of experts"),
        ("microsoft/Phi-3.5-MoE-instruct", "a mixture of experts"),
        ("databricks/dbrx-instruct", "a mixture of experts"),
        ("google/t5gemma-2b-2b-ul2", "an encoder-decoder"),
    ] {
        let output = estimate(empty, name, &[]);
        let text = flat(&output);
        assert!(output.status.code() == Some(2) && text.contains(what), "{name}: {text}");
        assert!(text.contains("tonnage rehearse") && !text.contains("did you mean"), "{name}: {text}");
    }
    let config = flat(&estimate(empty, "Qwen/Qwen2.5-VL-32B-Instruct", &[]));
    assert!(
        config.contains("multimodal") && config.contains("hf download Qwen/Qwen2.5-VL-32B-Instruct config.json"),
        "{config}"
    );
}
