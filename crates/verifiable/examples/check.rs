//! Questions and checkers for programs in other languages, a JSON object a line:
//!
//! ```sh
//! cargo run -p tonnage-verifiable --example check -- bf 3          # three questions of every level, with their answers
//! cargo run -p tonnage-verifiable --example check < foreign.jsonl  # {"kind": "bf", "question": "...", "answer": "d", "tried": ["d", "e"]}
//! ```
//!
//! The second answers `{"taken": true, "right": [true, false]}`: whether the kind takes the question, and which answers it pays.

use std::error::Error;
use std::io::{BufRead, stdin};

use serde_json::{Value, json};
use tonnage_verifiable::{Kind, find_kind};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, count] = arguments.as_slice() {
        print_questions(find_kind(name).ok_or("no such kind")?, count.parse()?);
        return Ok(());
    }
    for line in stdin().lock().lines() {
        let asked: Value = serde_json::from_str(&line?)?;
        println!("{}", check_question(&asked).ok_or("kind, question and tried are needed")?);
    }
    Ok(())
}

fn print_questions(kind: &Kind, count: u64) {
    for level in 1..=kind.levels {
        for seed in 0..count {
            let question = kind.question(level, seed);
            println!("{}", json!({"level": level, "question": question.text, "answer": question.answer}));
        }
    }
}

fn check_question(asked: &Value) -> Option<Value> {
    let kind = find_kind(asked["kind"].as_str()?)?;
    let question = kind.foreign_question(asked["question"].as_str()?, asked["answer"].as_str());
    let tried: Option<Vec<&str>> = asked["tried"].as_array()?.iter().map(Value::as_str).collect();
    let right: Vec<bool> = match &question {
        Some(question) => tried?.iter().map(|answer| kind.is_right(question, answer.trim())).collect(),
        None => Vec::new(),
    };
    Some(json!({"taken": question.is_some(), "right": right}))
}
