//! Whether the commands of the document print the figures that stand beside them.
//!
//! A command under a table names what it prints: `→ COMMAND prints 13.18 GiB; fits`. One in a row of a table prints the sizes and
//! prices of that row.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A command and what it must print.
#[derive(Debug, PartialEq)]
struct Shown<'a> {
    line: usize,
    command: &'a str,
    figures: Vec<String>,
}

/// Runs them all.
pub fn check_document(document: &str, program: &Path) -> Result<()> {
    let all = of_document(document);
    ensure!(all.len() >= MOST_BELOW, "only {} commands were found", all.len());
    let mut wrong = Vec::new();
    for shown in &all {
        let printed = printed_by(program, shown.command)?;
        let missing: Vec<_> = shown.figures.iter().filter(|figure| !printed.contains(figure.as_str())).collect();
        if shown.figures.is_empty() || !missing.is_empty() {
            wrong.push(format!("line {}: `{}` does not print {missing:?}", shown.line, shown.command));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} commands print the figures beside them", all.len());
    Ok(())
}

/// Fewer commands mean that the document is read wrongly.
const MOST_BELOW: usize = 40;

fn printed_by(program: &Path, command: &str) -> Result<String> {
    let output = Command::new(program).args(command.split_whitespace().skip(1)).env("COLUMNS", "250").output();
    let output = output.with_context(|| program.display().to_string())?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(matches!(output.status.code(), Some(0 | 1)), "`{command}`: {error}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn of_document(document: &str) -> Vec<Shown<'_>> {
    document.lines().zip(1..).flat_map(|(text, line)| of_line(text, line)).collect()
}

fn of_line(text: &str, line: usize) -> Vec<Shown<'_>> {
    let commands: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|code| is_command(code)).collect();
    if let Some(under) = text.strip_prefix("→ `") {
        let figures = under
            .split_once("` prints ")
            .map_or_else(Vec::new, |(_, list)| list.split("; ").map(str::to_owned).collect());
        return commands.into_iter().map(|command| Shown { line, command, figures: figures.clone() }).collect();
    }
    if !text.starts_with("| ") {
        return Vec::new();
    }
    let plain: String = text.split('`').step_by(2).collect();
    let figures = sizes_in(&plain);
    commands.into_iter().map(|command| Shown { line, command, figures: figures.clone() }).collect()
}

/// Commands that estimate something; others are only named.
fn is_command(code: &str) -> bool {
    ["tonnage estimate ", "tonnage cost "].iter().any(|begin| code.starts_with(begin))
}

/// Sizes in our units and prices in dollars and cents or thousands.
fn sizes_in(text: &str) -> Vec<String> {
    let words: Vec<&str> =
        text.split_whitespace().map(|word| word.trim_matches(|c: char| "*(),;:|".contains(c))).collect();
    let is_number = |word: &str| word.parse::<f64>().is_ok();
    let sizes = words.windows(2).filter(|pair| is_number(pair[0]) && ["MiB", "GiB"].contains(&pair[1]));
    let prices = words.iter().filter(|word| word.starts_with('$'));
    sizes.map(|pair| pair.join(" ")).chain(prices.map(|word| (*word).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_their_figures() {
        let document = "→ `tonnage estimate a.toml --gpu t4` prints 12.94 GiB; does not fit\n\
            | bf16 | 8.14 GiB (-38 %) | $1.29 (V) | `tonnage estimate b.toml` |\n\
            say `tonnage estimate gpt2` or `tonnage rehearse`\n";
        let found = of_document(document);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].figures, ["12.94 GiB", "does not fit"]);
        assert_eq!((found[1].command, found[1].line), ("tonnage estimate b.toml", 2));
        assert_eq!(found[1].figures, ["8.14 GiB", "$1.29"]);
    }
}
