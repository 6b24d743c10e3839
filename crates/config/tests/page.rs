//! docs/from-keys.md is made of the tables.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use tonnage_config::{KINDS, Kind, Row, Rule};

fn became(rule: &Rule) -> String {
    match rule {
        Rule::Sets(key) => format!("`{key}`"),
        Rule::Free(why) => format!("no memory: {why}"),
        Rule::Notes(text, _) => format!("allowed for: {text}"),
        Rule::Refuses(why) => format!("refused: {why}"),
        Rule::Reads(_) => "by its value".to_owned(),
        Rule::Inside(_) | Rule::InsideOr(..) => String::new(),
    }
}

fn rows(page: &mut String, path: &str, rows: &[Row]) {
    for (key, rule) in rows {
        match rule {
            // A whole config in its place stands at its own kind.
            Rule::InsideOr(..) if path.is_empty() && *key == "deepspeed" => {
                writeln!(page, "| `deepspeed` | a file's name, or the keys of deepspeed in its place |").unwrap();
            }
            Rule::Inside(below) | Rule::InsideOr(below, _) => self::rows(page, &format!("{path}{key}."), below),
            rule => writeln!(page, "| `{path}{key}` | {} |", became(rule)).unwrap(),
        }
    }
}

fn page() -> String {
    let mut page =
        "# What becomes of the keys of trainers' configs\n\nMade of the tables in `crates/config/src/kinds`: \
                    `TONNAGE_BLESS=1 cargo test -p tonnage-config` writes it anew.\n"
            .to_owned();
    for (kind, name, what) in KINDS.iter().filter(|(kind, ..)| !matches!(kind, Kind::Python | Kind::Trl)) {
        write!(page, "\n## {name}\n{what}.\n\n| key | what becomes of it |\n|---|---|\n").unwrap();
        // What all of TRL's, and what TrainingArguments have, stands once.
        let own = match kind {
            Kind::TrlSft | Kind::Trainer | Kind::Verl => 2,
            _ => 1,
        };
        let also = match kind {
            Kind::TrlSft | Kind::LlamaFactory => "those of trainer",
            Kind::TrlDpo | Kind::TrlGrpo | Kind::TrlKto | Kind::TrlOrpo | Kind::TrlCpo => {
                "those of trl-sft and of trainer"
            }
            Kind::TrlRloo => "those of trl-grpo, of trl-sft and of trainer",
            _ => "",
        };
        if !also.is_empty() {
            writeln!(page, "| all others | as {also} |").unwrap();
        }
        for table in kind.tables().iter().take(own) {
            rows(&mut page, "", table.rows);
            for (why, names) in table.free {
                let names: Vec<String> = names.split_ascii_whitespace().map(|name| format!("`{name}`")).collect();
                writeln!(page, "| {} | no memory: {why} |", names.join(" ")).unwrap();
            }
        }
    }
    page
}

#[test]
fn the_page_is_made_of_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-keys.md");
    if std::env::var_os("TONNAGE_BLESS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == page(), "TONNAGE_BLESS=1 writes docs/from-keys.md anew");
}
