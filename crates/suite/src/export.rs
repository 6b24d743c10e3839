//! The metrics of a suite's runs for other programs. A format is a function and a line in [`FORMATS`].

use std::fs;
use std::path::{Path, PathBuf};

use tonnage_experiment::event_file::event_file;
use tonnage_experiment::run::Run;
use tonnage_experiment::source::{Limits, gather};

pub struct Format {
    /// Its name on the command line.
    pub name: &'static str,
    /// Writes the runs below a folder; says what it wrote.
    pub write: fn(&[Run], &Path) -> std::io::Result<Vec<PathBuf>>,
}

/// What `--format` may name, in the order of the help.
pub const FORMATS: &[Format] =
    &[Format { name: "tensorboard", write: tensorboard }, Format { name: "csv", write: csv }];

/// The runs of the suite in `folder`, and what of their records could not be read.
///
/// # Errors
/// When the folder cannot be read.
pub fn runs(folder: &Path) -> std::io::Result<(Vec<Run>, Vec<String>)> {
    let gathered = gather(&folder.join("runs"), &Limits::default())?;
    let missed = gathered.not_read.iter().map(|one| format!("{}: {}", one.file, one.why)).collect();
    Ok((gathered.runs, missed))
}

/// A folder a run, as TensorBoard tells runs apart.
fn tensorboard(runs: &[Run], folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (run, name) in runs.iter().zip(names(runs)) {
        let place = folder.join(&name);
        fs::create_dir_all(&place)?;
        // One file, replaced as a whole: what is exported again does not stand there twice.
        let path = place.join("events.out.tfevents.0.tonnage");
        fs::write(&path, event_file(run, 0.0))?;
        written.push(path);
    }
    Ok(written)
}

/// One long table: a line a point.
fn csv(runs: &[Run], folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut text = "configuration,seed,step,metric,value\n".to_owned();
    for run in runs {
        let configuration = format!("\"{}\"", run.identity.configuration.replace('"', "\"\""));
        let seed = run.identity.seed.map_or_else(String::new, |seed| seed.to_string());
        for (metric, series) in &run.series {
            let metric = format!("\"{}\"", metric.replace('"', "\"\""));
            for (step, value) in series.points() {
                text.push_str(&format!("{configuration},{seed},{step},{metric},{value}\n"));
            }
        }
    }
    fs::create_dir_all(folder)?;
    let path = folder.join("metrics.csv");
    fs::write(&path, text)?;
    Ok(vec![path])
}

/// Names of runs that folders may have, each another.
fn names(runs: &[Run]) -> Vec<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.".contains(c);
    let plain = |run: &Run| {
        let name: String = run.name().chars().map(|c| if is_plain(c) { c } else { '_' }).take(120).collect();
        if name.starts_with('.') { format!("_{name}") } else { name }
    };
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let (name, mut count) = (plain(run), 1);
        let mut own = name.clone();
        while names.contains(&own) {
            count += 1;
            own = format!("{name}-{count}");
        }
        names.push(own);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder_and_apart() {
        let run = |configuration: &str| {
            let mut run = Run::default();
            run.identity.configuration = configuration.to_owned();
            run
        };
        assert_eq!(names(&[run("../a b"), run("../a/b"), run("x\n")]), ["_.._a_b", "_.._a_b-2", "x_"]);
    }
}
