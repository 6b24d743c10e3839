//! The version of the code that a suite runs: of named files their content, else the git commit of the script's repository with what
//! differs from it, else the script's content.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tonnage_core::small_sort::SmallSort;

use crate::identity::{hex_of, sha256};

/// Files of a folder beyond this are no code.
const MOST_FILES: usize = 20_000;
/// Bytes of them together.
const MOST_BYTES: u64 = 256 << 20;

/// A version, and how it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// What runs are told apart by.
    pub id: String,
    /// The same for people.
    pub said: String,
}

/// The version of what `command` runs in `folder`; of `named` files where there are some.
///
/// # Errors
/// When a named file cannot be read.
pub fn code_version(named: &[String], command: &[String], folder: &Path) -> Result<Version, String> {
    if !named.is_empty() {
        return of_files(&named.iter().map(|name| folder.join(name)).collect::<Vec<_>>()).map(|(id, files)| Version {
            said: format!("{files} named files, {}", &id[..12]),
            id: format!("files:{id}"),
        });
    }
    let script = command.iter().map(|word| folder.join(word)).find(|path| path.is_file());
    let place = script.as_deref().and_then(Path::parent).unwrap_or(folder);
    if let Some(version) = of_git(place) {
        return Ok(version);
    }
    match script {
        Some(script) => of_files(std::slice::from_ref(&script))
            .map(|(id, _)| Version { said: format!("{}, {}", script.display(), &id[..12]), id: format!("files:{id}") }),
        None => {
            Ok(Version { id: String::new(), said: "not known: no repository, and no file of the command".to_owned() })
        }
    }
}

/// The commit, and a hash of the difference to it. What git does not track is not seen.
fn of_git(place: &Path) -> Option<Version> {
    let commit = String::from_utf8(run_git(place, &["rev-parse", "HEAD"])?).ok()?.trim().to_owned();
    let difference = run_git(place, &["diff", "--no-ext-diff", "--no-color", "HEAD"])?;
    if difference.is_empty() {
        return Some(Version { said: format!("git {}", commit.get(..12)?), id: format!("git:{commit}") });
    }
    let dirty = hex_of(&sha256(&difference));
    Some(Version {
        said: format!("git {} with changes {}", commit.get(..12)?, &dirty[..8]),
        id: format!("git:{commit}+{dirty}"),
    })
}

fn run_git(place: &Path, words: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git").arg("-C").arg(place).args(words).stdin(Stdio::null()).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// The hash of files' names and contents, and how many they are.
fn of_files(places: &[PathBuf]) -> Result<(String, usize), String> {
    let mut files = Vec::new();
    for place in places {
        collect_files(place, &mut files)?;
    }
    let (mut said, mut bytes) = (Vec::new(), 0);
    for (at, file) in files.iter().enumerate() {
        let content = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        bytes += content.len() as u64;
        if at >= MOST_FILES || bytes > MOST_BYTES {
            return Err(format!("`code` names more than {MOST_FILES} files or {} MiB", MOST_BYTES >> 20));
        }
        said.extend_from_slice(
            file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default().as_bytes(),
        );
        said.extend_from_slice(&sha256(&content));
    }
    Ok((hex_of(&sha256(&said)), files.len()))
}

/// Plain files below `place` in the order of their names; caches of Python and hidden ones are no code.
fn collect_files(place: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", place.display());
    let kind = fs::symlink_metadata(place).map_err(wrong)?;
    if !kind.is_dir() {
        files.push(place.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(place)
        .map_err(wrong)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    entries.small_sort();
    let is_code = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        !name.starts_with('.') && name != "__pycache__" && !path.is_symlink()
    };
    entries.iter().filter(|path| is_code(path)).take(MOST_FILES + 1).try_for_each(|path| collect_files(path, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_outside_a_repository_is_its_content() {
        let folder = std::env::temp_dir().join(format!("tonnage-code-{}", std::process::id()));
        fs::create_dir_all(folder.join("src/__pycache__")).unwrap();
        fs::write(folder.join("t.py"), "a").unwrap();
        fs::write(folder.join("src/m.py"), "a").unwrap();
        let command = ["python".to_owned(), "t.py".to_owned()];
        let of = |named: &[&str]| {
            code_version(&named.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), &command, &folder)
        };
        let (script, named) = (of(&[]).unwrap(), of(&["src"]).unwrap());
        fs::write(folder.join("src/__pycache__/m.pyc"), "b").unwrap();
        assert_eq!(of(&["src"]).unwrap(), named);
        fs::write(folder.join("src/m.py"), "b").unwrap();
        assert_ne!(of(&["src"]).unwrap(), named);
        assert_eq!(of(&[]).unwrap(), script);
        fs::write(folder.join("t.py"), "b").unwrap();
        assert_ne!(of(&[]).unwrap(), script);
        assert!(of(&["nothing"]).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
