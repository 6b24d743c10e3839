//! The folder of a training's checkpoints and metrics: two trainings never write into one without being told to.

use std::fs;
use std::path::Path;

use tonnage_train::store::checkpoints::Checkpoints;

use super::engine::train_failure;
use super::metrics::FILE;
use crate::failure::Failure;

/// Makes it ready.
///
/// # Errors
/// When it holds a training and nobody said what becomes of that, or when it cannot be written.
pub fn prepare_folder(output: &Path, resumes: bool, overwrites: bool) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| Failure::about_file(&output.display().to_string(), error);
    fs::create_dir_all(output).map_err(|error| failed(&error))?;
    let checkpoints = Checkpoints::new(output, 1);
    let there = checkpoints.list().map_err(|error| train_failure(&error))?;
    match there.last() {
        None if resumes => Err(Failure::bad_input(format!("{} holds no checkpoint to go on with", output.display()))
            .with_hint("leave out --resume to begin")),
        Some((step, _)) if !(resumes || overwrites) => {
            Err(Failure::bad_input(format!("{} holds a training already, at step {step}", output.display()))
                .with_hint("--resume goes on with it, --overwrite begins anew, --output-dir names another folder"))
        }
        _ if overwrites => {
            for (_, path) in there {
                fs::remove_dir_all(&path).map_err(|error| failed(&error))?;
            }
            match fs::remove_file(output.join(FILE)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&error)),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_training_is_never_written_over_without_a_word() {
        let folder = std::env::temp_dir().join(format!("tonnage-output-{}", std::process::id()));
        assert!(prepare_folder(&folder, true, false).unwrap_err().problem.contains("no checkpoint"));
        prepare_folder(&folder, false, false).unwrap();
        fs::create_dir_all(folder.join("checkpoint-7")).unwrap();
        fs::write(folder.join(FILE), "").unwrap();
        let refused = prepare_folder(&folder, false, false).unwrap_err();
        assert!(refused.problem.contains("step 7") && refused.hint.unwrap().contains("--resume"));
        prepare_folder(&folder, true, false).unwrap();
        assert!(folder.join("checkpoint-7").exists());
        prepare_folder(&folder, false, true).unwrap();
        assert!(!folder.join("checkpoint-7").exists() && !folder.join(FILE).exists());
        fs::remove_dir_all(folder).unwrap();
    }
}
