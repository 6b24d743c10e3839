//! Estimates every published measurement of `testdata/published` and holds it to its tolerance; `docs/published.md` is what
//! it prints.

mod figure;
mod page;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use figure::{Compared, Library};

/// Arguments of `published`.
#[derive(clap::Args)]
pub struct Args {
    /// The figures, their classes and the configs of their models.
    #[arg(long, default_value = "testdata/published")]
    data: PathBuf,
    /// The page to write or check.
    #[arg(long, default_value = "docs/published.md")]
    out: PathBuf,
    /// Write the document.
    #[arg(long, conflicts_with = "check")]
    write: bool,
    /// Fail when the document is not what would be written.
    #[arg(long)]
    check: bool,
}

/// Prints the table, and fails when a figure is outside its tolerance.
pub fn run(args: &Args) -> Result<()> {
    let library = Library::read(&args.data)?;
    let compared = library.compare()?;
    let page = page::published_page(&library, &compared);
    if args.write {
        fs::write(&args.out, &page).with_context(|| args.out.display().to_string())?;
    } else if args.check {
        let written = fs::read_to_string(&args.out).with_context(|| args.out.display().to_string())?;
        ensure!(page == written, "{} is out of date: run `cargo xtask published --write`", args.out.display());
    } else {
        print!("{page}");
    }
    let outside: Vec<_> = compared.iter().filter(|row| !row.is_inside()).map(Compared::complaint).collect();
    ensure!(outside.is_empty(), "outside their tolerance:\n{}", outside.join("\n"));
    Ok(())
}
