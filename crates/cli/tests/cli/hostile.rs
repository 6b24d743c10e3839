//! Texts that others wrote: no command lets a terminal obey them, however they come in.

use std::fs;
use std::path::{Path, PathBuf};

use super::command;

/// A colour, a window's title, the start of a sequence in one character, a return, and a turn of the writing.
const HOSTILE: &str = "\u{1b}[35mA\u{1b}]0;pwn\u{7}B\u{9b}2JC\rD\u{202e}";
/// The same in TOML and in JSON.
const ESCAPED: &str = "\\u001b[35mA\\u001b]0;pwn\\u0007B\\u009b2JC\\rD\\u202e";

/// A folder with hostile names in it, which goes when this goes.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tonnage-hostile-{}", std::process::id()));
        fs::create_dir_all(path.join(HOSTILE)).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Left over, it harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn fill(folder: &Folder) {
    let config = |model_type: &str| {
        format!(
            "{{\"model_type\": \"{model_type}\", \"hidden_size\": 64, \"intermediate_size\": 64, \"num_hidden_layers\": 1, \
             \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 100, \"max_position_embeddings\": 64, \
             \"_name_or_path\": \"{ESCAPED}\", \"architectures\": [\"{ESCAPED}\"]}}"
        )
    };
    folder.write(&format!("{HOSTILE}/config.json"), &config("llama"));
    folder.write("type.json", &config(ESCAPED));
    folder.write("key.toml", &format!("model = \"gpt2\"\n\"{ESCAPED}\" = 1\n"));
    folder.write("gpu.toml", &format!("model = \"gpt2\"\ngpu = \"{ESCAPED}\"\n"));
    folder.write("value.toml", &format!("model = \"gpt2\"\nprecision = \"{ESCAPED}\"\n"));
    folder.write("raw.toml", &format!("model = \"gpt2\"\n{HOSTILE} = 1\n"));
    folder.write("run.toml", &format!("model = \"gpt2\"\n[run]\ncommand = [\"{ESCAPED}\", \"x\"]\n"));
    folder.write(&format!("{HOSTILE}.toml"), "model = \"gpt2\"\nsurprise = 1\n");
    folder.write(
        "log.txt",
        &format!("{HOSTILE}\ntorch.OutOfMemoryError: {HOSTILE} CUDA out of memory. Tried to allocate 2.00 GiB.\n"),
    );
    let event = format!("[\"a\",1,512,\"{ESCAPED}\",\"{ESCAPED}|{ESCAPED}\",\"{ESCAPED}\"]");
    folder.write("timeline.jsonl", &format!("{{}}\n[\"p\",\"{ESCAPED}\",1]\n{event}\n[\"f\",1]\n"));
    folder.write("bad.jsonl", &format!("{{}}\n{event}\n[\"{ESCAPED}\"]\n"));
}

#[test]
fn no_text_of_others_is_obeyed() {
    let folder = Folder::new();
    fill(&folder);
    let file = format!("{HOSTILE}.toml");
    let (flag, set) = (format!("--{HOSTILE}"), format!("{HOSTILE}=1"));
    let commands: Vec<Vec<&str>> = vec![
        vec!["estimate", HOSTILE, "--explain"],
        vec!["estimate", HOSTILE, "--json"],
        vec!["estimate", HOSTILE, "--compare", "precision=fp32,bf16"],
        vec!["fit", HOSTILE, "--gpus", "l4"],
        vec!["plan", HOSTILE, "--gpu", "l4"],
        vec!["cost", HOSTILE],
        vec!["estimate", "type.json"],
        vec!["estimate", "key.toml"],
        vec!["estimate", "gpu.toml"],
        vec!["estimate", "value.toml"],
        vec!["estimate", "raw.toml"],
        vec!["estimate", &file],
        vec!["estimate", "gpt2", "--gpu", HOSTILE],
        vec!["estimate", "gpt2", "--set", &set],
        vec!["estimate", "gpt2", &flag],
        vec!["estimate", "gpt2", "--optimizer", HOSTILE],
        vec!["fit", "gpt2", "--gpus", HOSTILE],
        vec!["cost", "--suite", "key.toml"],
        vec![HOSTILE],
        vec!["run", "run.toml"],
        vec!["run", "--", "true", HOSTILE],
        vec!["run", "--", HOSTILE],
        vec!["list"],
        vec!["show"],
        vec!["status"],
        vec!["stop", HOSTILE],
        vec!["doctor", "log.txt"],
        vec!["doctor", HOSTILE],
        vec!["trace", "replay", "timeline.jsonl"],
        vec!["trace", "replay", "bad.jsonl"],
        vec!["trace", "compare", "gpt2", "timeline.jsonl"],
        vec!["watch", "--replay", HOSTILE],
        vec!["keys", HOSTILE],
        vec!["models", HOSTILE],
        vec!["gpus", HOSTILE],
        vec!["rehearse", "--gpu", "l4", "--", HOSTILE],
    ];
    commands.iter().for_each(|words| check(&folder.0, words));
}

fn check(folder: &Path, words: &[&str]) {
    let mut command = command(words);
    command.current_dir(folder).env("CLICOLOR_FORCE", "1").env("TONNAGE_HOME", folder.join("home"));
    let output = command.output().expect("the binary runs");
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(bytes);
        let obeyed =
            ["\u{1b}[35m", "\u{1b}]", "\u{7}", "\u{9b}", "\r", "\u{202e}"].iter().find(|sign| text.contains(**sign));
        assert_eq!(obeyed, None, "{words:?}: {text:?}");
    }
}

#[test]
fn long_keys_are_shortened() {
    let file = std::env::temp_dir().join(format!("tonnage-long-{}.toml", std::process::id()));
    fs::write(&file, format!("{} = 1\n", "k".repeat(100_000))).unwrap();
    let output = command(&["estimate", "gpt2", "--gpu", file.to_str().unwrap()]).output().unwrap();
    fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.len() < 2000 && text.contains("more characters"), "{text}");
}
