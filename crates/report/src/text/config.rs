//! What became of the keys of trainers' configs.

use tonnage_config::{Became, FileRead, KeyRead, Reading};

use super::paint::{BOLD, DIM, WARN, paint_text, wrap_text};
use super::table::{Align, Table, styled_cell};
use crate::look::Look;

/// More names than these are not read on a line.
const MOST_NAMES: usize = 12;

/// A line a file: how many keys became what, and which were not understood.
pub fn config_lines(reading: &Reading, look: &Look) -> String {
    reading.files.iter().map(|file| file_line(file, look)).collect()
}

fn file_line(file: &FileRead, look: &Look) -> String {
    let tally = file.tally();
    let mut parts = vec![
        format!("{} used", keys_counted(tally.used)),
        format!("{} {} no memory", tally.no_memory, if tally.no_memory == 1 { "costs" } else { "cost" }),
    ];
    if tally.noted > 0 {
        parts.push(format!(
            "{} allowed for: {}",
            tally.noted,
            key_names(file, |became| matches!(became, Became::Noted(..)))
        ));
    }
    if tally.refused > 0 {
        parts.push(format!(
            "{} refused: {}",
            tally.refused,
            key_names(file, |became| matches!(became, Became::Refused(_)))
        ));
    }
    let unknown = key_names(file, |became| *became == Became::NotUnderstood);
    let not = if tally.not_understood == 0 { String::new() } else { format!(": {unknown}") };
    let last = paint_text(
        if tally.not_understood == 0 { DIM } else { WARN },
        &format!("{} not understood{not}", tally.not_understood),
    );
    let text = format!("from {} ({}): {}, {last}", file.name, file.kind.name(), parts.join(", "));
    wrap_text(&text, look.width, 2) + "\n"
}

fn keys_counted(count: usize) -> String {
    if count == 1 { "1 key".to_owned() } else { format!("{count} keys") }
}

fn key_names(file: &FileRead, is_one: impl Fn(&Became) -> bool) -> String {
    let of: Vec<&str> = file.keys.iter().filter(|read| is_one(&read.became)).map(|read| read.key.as_str()).collect();
    let shown = of.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
    if of.len() > MOST_NAMES { format!("{shown} and {} more", of.len() - MOST_NAMES) } else { shown }
}

/// Every key with what became of it.
pub fn config_keys(reading: &Reading, look: &Look) -> String {
    let mut screen = String::new();
    for file in &reading.files {
        screen.push_str(&format!("{}\n", paint_text(BOLD, &format!("what became of the keys of {}", file.name))));
        let mut table =
            Table::new(&[("key", Align::Left), ("value", Align::Left), ("became", Align::Left)]).wrapped().flexible(2);
        for read in &file.keys {
            table.row(vec![
                read.key.as_str().into(),
                styled_cell(value_text(read), DIM),
                styled_cell(became_words(&read.became), BOLD),
            ]);
        }
        screen.push_str(&table.render(look));
        screen.push('\n');
    }
    screen
}

fn value_text(read: &KeyRead) -> String {
    let text = read.value.to_string();
    match text.char_indices().nth(30) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn became_words(became: &Became) -> String {
    match became {
        Became::Used(key) => (*key).to_owned(),
        Became::NoMemory(why) => format!("no memory: {why}"),
        Became::Noted(text, _) => format!("allowed for: {text}"),
        Became::Refused(why) => format!("refused: {why}"),
        Became::NotUnderstood => "not understood".to_owned(),
    }
}
