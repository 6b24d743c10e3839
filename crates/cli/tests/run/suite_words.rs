//! Names and values of suites that would harm whoever read them as code: they reach a real bash as they are.

use std::fs;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::suites::{made, text};

/// Values of a suite: each is a run.
const VALUES: usize = 24;

/// Pieces that a shell, a template, TOML or JSON would read as their own.
const PIECES: [&str; 24] = [
    " ",
    "\t",
    "\n",
    "\r",
    "'",
    "\"",
    "\\",
    "$(touch pwned)",
    "`touch pwned`",
    ";touch pwned;",
    "&touch pwned&",
    "|touch pwned",
    ">pwned",
    "$HOME",
    "${IFS}",
    "*",
    "~",
    "--",
    "-rf",
    "#",
    "{seed}",
    "{v}",
    "ü😀\u{202e}",
    "=",
];

fn word() -> impl Strategy<Value = String> {
    let piece = prop_oneof![prop::sample::select(&PIECES[..]).prop_map(str::to_owned), "\\PC{0,6}", "[-a-z0-9 ]{1,4}"];
    // Doubled braces are `{name}` itself, and are refused where they would be another's name.
    prop::collection::vec(piece, 1..7).prop_map(|pieces| pieces.concat().replace("{{", "{ {").replace("}}", "} }"))
}

#[test]
fn bash_gets_every_value_as_it_is() {
    let mut runner = TestRunner::new(Config { cases: 3, failure_persistence: None, ..Config::default() });
    let script = "printf '%s\\0' \"$1\" > \"out-$2\"\nprintf '%s\\0' \"$#\" >> \"out-$2\"\n\
                  cat \"$TONNAGE_PARAMETERS\" > \"parameters-$2\"\nprintf '%s' \"$TONNAGE_CONFIGURATION\" > \"name-$2\"\n";
    let words = prop::collection::hash_set(word(), VALUES);
    runner
        .run(&words, |words| {
            let words: Vec<String> = words.into_iter().collect();
            let mut suite =
                "name = \"s\"\ncommand = [\"bash\", \"t.sh\", \"{v}\", \"{n}\"]\n[parameters]\nv = \"\"\nn = 0\n"
                    .to_owned();
            for (at, word) in words.iter().enumerate() {
                // Names may be as hostile as values; TOML takes what JSON escapes.
                let quoted = serde_json::to_string(word).unwrap().replace('\u{7f}', "\\u007f");
                suite.push_str(&format!("[[configuration]]\nname = {quoted}\nv = {quoted}\nn = {at}\n"));
            }
            let home = made("suite-words", &suite, script);
            let output = home.run(&["suite", "run", "s.toml", "--slots", "4"]);
            prop_assert!(output.status.success(), "{} {words:?}", text(&output));
            for (at, word) in words.iter().enumerate() {
                let read = |name: &str| fs::read_to_string(home.path(&format!("{name}-{at}"))).unwrap();
                prop_assert_eq!(read("out"), format!("{word}\u{0}2\u{0}"));
                let parameters: serde_json::Value = serde_json::from_str(&read("parameters")).unwrap();
                prop_assert_eq!(parameters["v"].as_str(), Some(word.as_str()));
                prop_assert_eq!(read("name"), word.clone());
            }
            prop_assert!(!home.path("pwned").exists(), "something was run that nobody asked for");
            // What is shown of them commands no terminal.
            let shown = text(&home.run(&["suite", "status"])) + &text(&home.run(&["suite", "plan", "s.toml"]));
            prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
            prop_assert!(home.run(&["suite", "export", "--to", "csv", "--out", "out"]).status.code().is_some());
            Ok(())
        })
        .unwrap();
}
