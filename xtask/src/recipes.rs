//! `cargo xtask recipes`: how many of the recipes that trainers publish `tonnage estimate --from` answers, and why not the others.

mod answer;
mod collection;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tonnage_core::limit::HAND_WRITTEN_BYTES;

use answer::ask_estimate;
use collection::Collection;
use table::Counted;

/// Which checkouts are counted.
#[derive(clap::Args)]
pub struct Args {
    /// A checkout of axolotl-ai-cloud/axolotl.
    #[arg(long)]
    axolotl: Option<PathBuf>,
    /// A checkout of hiyouga/LlamaFactory.
    #[arg(long)]
    llama_factory: Option<PathBuf>,
    /// A checkout of verl-project/verl.
    #[arg(long)]
    verl: Option<PathBuf>,
    /// The program that answers.
    #[arg(long, default_value = "target/release/tonnage")]
    binary: PathBuf,
    /// Names every recipe and what became of it.
    #[arg(long)]
    files: bool,
}

/// Counts, and prints a table for each checkout.
///
/// # Errors
/// When a checkout cannot be read or the program does not run.
pub fn run(args: &Args) -> Result<()> {
    let binary = args.binary.canonicalize().with_context(|| format!("{}: build it first", args.binary.display()))?;
    let checkouts = [
        (Collection::Axolotl, &args.axolotl),
        (Collection::LlamaFactory, &args.llama_factory),
        (Collection::Verl, &args.verl),
    ];
    ensure!(
        checkouts.iter().any(|(_, folder)| folder.is_some()),
        "name a checkout: --axolotl DIR, --llama-factory DIR, --verl DIR"
    );
    for (collection, folder) in checkouts {
        if let Some(folder) = folder {
            count_recipes(collection, folder, &binary, args.files)?;
        }
    }
    Ok(())
}

fn count_recipes(collection: Collection, folder: &Path, binary: &Path, names_files: bool) -> Result<()> {
    let mut counted = Counted::default();
    for recipe in collection.recipes(folder)? {
        let answer = ask_estimate(binary, folder, collection.kind(), &recipe)?;
        if names_files {
            println!("{}: {}", recipe.display(), answer.in_words());
        }
        counted.add(&answer);
    }
    counted.print(collection.name(), commit_of(folder).as_deref());
    Ok(())
}

/// The commit of a checkout, where it is one of git.
fn commit_of(folder: &Path) -> Option<String> {
    let head = std::fs::read_to_string(folder.join(".git/HEAD")).ok()?;
    let head = head.trim();
    match head.strip_prefix("ref: ") {
        Some(branch) => {
            std::fs::read_to_string(folder.join(".git").join(branch)).ok().map(|hash| hash.trim().to_owned())
        }
        None => Some(head.to_owned()),
    }
}

/// The text of a file that a person wrote; nothing of one that is larger.
fn hand_written(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path)?.len();
    ensure!(size <= HAND_WRITTEN_BYTES, "{}: larger than {HAND_WRITTEN_BYTES} bytes", path.display());
    Ok(std::fs::read_to_string(path)?)
}
