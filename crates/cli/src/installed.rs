//! Which transformers a job will run with, read from the name of its folder in site-packages: no Python is started.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tonnage_core::job::InstalledTransformers;

/// That of the environment that is active: `VIRTUAL_ENV`, else `CONDA_PREFIX`.
pub fn active_transformers() -> Option<InstalledTransformers> {
    let folder = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().find_map(env::var_os)?;
    of_environment(Path::new(&folder))
}

/// That of the environment whose `bin` the program of a command lies in.
pub fn transformers_beside(program: &OsStr) -> Option<InstalledTransformers> {
    let bin = Path::new(program).parent().filter(|folder| folder.file_name() == Some(OsStr::new("bin")))?;
    of_environment(bin.parent()?)
}

/// That of the environment in this folder, which is looked at once.
pub fn transformers_in(environment: &Path) -> Option<InstalledTransformers> {
    static KNOWN: OnceLock<(PathBuf, Option<InstalledTransformers>)> = OnceLock::new();
    let (folder, found) = KNOWN.get_or_init(|| (environment.to_owned(), of_environment(environment)));
    if folder == environment { found.clone() } else { of_environment(environment) }
}

fn of_environment(environment: &Path) -> Option<InstalledTransformers> {
    let pythons = subfolders_of(&environment.join("lib")).filter(|folder| folder_name(folder).starts_with("python3"));
    let unix = pythons.map(|python| python.join("site-packages"));
    let version = unix.chain([environment.join("Lib").join("site-packages")]).find_map(|site| version_in(&site))?;
    Some(InstalledTransformers { version, environment: environment.display().to_string() })
}

/// Of several, as broken updates leave behind, none is taken.
fn version_in(site_packages: &Path) -> Option<String> {
    let mut found = subfolders_of(site_packages).filter_map(|folder| {
        Some(folder_name(&folder).strip_prefix("transformers-")?.strip_suffix(".dist-info")?.to_owned())
    });
    let version = found.next()?;
    found.next().is_none().then_some(version)
}

fn subfolders_of(parent: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(parent).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

fn folder_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_folders_name() {
        let root = env::temp_dir().join(format!("tonnage-installed-{}", std::process::id()));
        let site = root.join("lib").join("python3.11").join("site-packages");
        fs::create_dir_all(site.join("transformers")).expect("a folder");
        assert_eq!(of_environment(&root), None);
        fs::create_dir_all(site.join("transformers-4.48.1.dist-info")).expect("a folder");
        fs::create_dir_all(site.join("sentence_transformers-3.0.dist-info")).expect("a folder");
        let program = root.join("bin").join("python");
        for found in [of_environment(&root), transformers_beside(program.as_os_str())] {
            assert_eq!(found.map(|found| found.version), Some("4.48.1".to_owned()));
        }
        assert_eq!(transformers_beside(OsStr::new("python")), None);
        fs::create_dir_all(site.join("transformers-4.51.0.dist-info")).expect("a folder");
        assert_eq!(of_environment(&root), None, "two versions are none");
        fs::remove_dir_all(&root).expect("removed");
    }
}
