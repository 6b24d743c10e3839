//! `cargo xtask configs FOLDER`: how many of the configs below a folder are answered, and which of their keys nobody knows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use tonnage_config::{Became, ConfigText, Kind, Reading, read_files};
use tonnage_core::estimate::estimate;
use tonnage_core::job::{JobSource, keys};

/// What is read.
#[derive(clap::Args)]
pub struct Args {
    /// Below which configs are looked for.
    folder: PathBuf,
    /// Reads every file as this kind; without it files whose kind cannot be told are left out.
    #[arg(long)]
    kind: Option<String>,
    /// A config.json, or a name that is built in, which stands for models that are not: counts what the techniques leave out.
    #[arg(long)]
    model: Option<String>,
    /// Names every file and what became of it.
    #[arg(long)]
    files: bool,
}

#[derive(Default)]
struct Count {
    read: usize,
    answered: usize,
    surely: usize,
    unreadable: Vec<String>,
    reasons: BTreeMap<String, usize>,
    unknown: BTreeMap<String, usize>,
}

/// Counts, and prints.
///
/// # Errors
/// When the folder cannot be read.
pub fn run(args: &Args) -> Result<()> {
    let kind = args
        .kind
        .as_deref()
        .map(|name| Kind::find_kind(name).ok_or_else(|| anyhow::anyhow!("no kind `{name}`")))
        .transpose()?;
    let mut count = Count::default();
    for path in config_files(&args.folder)? {
        read_one(&path, kind, args, &mut count);
    }
    println!(
        "{} configs read, {} answered ({} of them without an open caveat)",
        count.read, count.answered, count.surely
    );
    for problem in &count.unreadable {
        println!("not read: {problem}");
    }
    println!("why the others are not:");
    print_counts(&count.reasons);
    println!("keys that nobody knows:");
    print_counts(&count.unknown);
    Ok(())
}

fn print_counts(counts: &BTreeMap<String, usize>) {
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by_key(|(text, count)| (std::cmp::Reverse(**count), text.as_str()));
    sorted.iter().for_each(|(text, count)| println!("  {count:>4}  {text}"));
}

fn config_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(config_files(&path)?);
        } else if path
            .extension()
            .is_some_and(|end| ["yaml", "yml", "json", "toml", "sh", "py", "ipynb"].iter().any(|known| end == *known))
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read_one(path: &Path, kind: Option<Kind>, args: &Args, count: &mut Count) {
    let (name, Ok(text)) = (path.display().to_string(), fs::read_to_string(path)) else { return };
    let read = read_files(&[(kind, ConfigText { name: &name, text: &text })]);
    let reading = match read {
        Ok(reading) => reading,
        Err(error) if error.problem.contains("cannot be told") => return,
        Err(error) => return count.unreadable.push(error.to_string()),
    };
    count.read += 1;
    for read in reading.keys().filter(|read| read.became == Became::NotUnderstood) {
        *count.unknown.entry(read.key.clone()).or_default() += 1;
    }
    match answer_for(&reading, args.model.as_deref()) {
        Ok(is_sure) => {
            count.answered += 1;
            count.surely += usize::from(is_sure);
        }
        Err(reason) => {
            if args.files {
                println!("{name}: {reason}");
            }
            // A reason is counted without what stands in backquotes at its end.
            let short: String = reason.chars().take(110).collect();
            *count.reasons.entry(short).or_default() += 1;
        }
    }
}

/// Whether the estimate has no open caveat, or in words why there is none.
fn answer_for(reading: &Reading, model: Option<&str>) -> Result<bool, String> {
    let base = model.map_or_else(JobSource::new, |model| JobSource::new().set(keys::MODEL, model));
    let source = reading.as_source(base).map_err(|error| error.problem)?;
    let resolved = source.resolve(&[]).map_err(|error| error.problem)?;
    let answer = estimate(&resolved.job).map_err(|error| error.to_string())?;
    Ok(answer.caveats.iter().all(|caveat| !caveat.open))
}
