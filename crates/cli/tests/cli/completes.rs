//! What shells complete: bash itself is asked, with the script as users install it.

use std::process::Command;

use super::tonnage;

/// What bash offers for the last of `words`.
fn offered(words: &[&str]) -> Option<Vec<String>> {
    let script =
        Command::new("bash").args(["-c", "type complete compgen"]).output().ok().filter(|bash| bash.status.success());
    script?;
    // Longer than an argument may be.
    let completions = std::env::temp_dir().join(format!("tonnage-completions-{}", std::process::id()));
    std::fs::write(&completions, tonnage(&["completions", "bash"]).stdout).unwrap();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let (last, before) = words.split_last().unwrap();
    let ask = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD={}; _tonnage tonnage '{last}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        completions.display(),
        quoted.join(" "),
        words.len() - 1,
        before.last().unwrap_or(&"")
    );
    let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn models_and_gpus_complete() {
    let cases: [(&[&str], &str); 6] = [
        (&["tonnage", "estimate", "Qwen/Qwen2.5-7"], "Qwen/Qwen2.5-7B"),
        (&["tonnage", "estimate", "llama-3.1-8"], "llama-3.1-8b"),
        (&["tonnage", "estimate", "gpt2", "--gpu", "h1"], "h100"),
        (&["tonnage", "plan", "gpt2", "--gpu", "li"], "live"),
        (&["tonnage", "fit", "gpt2", "--gpus", "a100-80"], "a100-80"),
        (&["tonnage", "estimate", "gpt2", "--optimizer", "adafac"], "adafactor"),
    ];
    for (words, wanted) in cases {
        let Some(found) = offered(words) else { return };
        assert!(found.iter().any(|word| word == wanted), "{words:?}: {found:?}");
    }
}

#[test]
fn other_names_and_paths_are_taken_as_before() {
    let said = tonnage(&["estimate", "config.json", "--gpu", "12GiB,sm_86", "-b", "1", "-s", "64"]);
    assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
}
