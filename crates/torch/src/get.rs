//! PyTorch without its CUDA libraries, fetched by pip into a folder of Tonnage's own: 0.5 GB in place of 3.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::TorchError;
use crate::find::{Found, Search};
use crate::version::{OLDEST, Version};

/// The two libraries of CUDA that libtorch_cpu of a CUDA build is linked with; the rest (2.7 GB) is libtorch_cuda's.
const NEEDED: [&str; 2] = ["nvidia-cuda-runtime", "nvidia-cuda-cupti"];

/// Fetches PyTorch with a Python's pip into `folder`.
#[derive(Clone, Debug)]
pub struct Download {
    python: PathBuf,
    folder: PathBuf,
    version: Option<String>,
}

/// A download that is not yet begun.
pub fn download_plan(python: &Path, folder: &Path) -> Download {
    Download { python: python.to_owned(), folder: folder.to_owned(), version: None }
}

impl Download {
    /// Of this version (`2.11`, `2.11.0`), in place of the newest.
    ///
    /// # Errors
    /// When it is no version, or one that is too old.
    pub fn of_version(self, version: &str) -> Result<Self, TorchError> {
        let is_one = !version.is_empty() && version.split('.').all(|part| part.parse::<u32>().is_ok());
        match Version::of_text(version).filter(|_| is_one) {
            Some(found) if found >= OLDEST => Ok(Self { version: Some(version.to_owned()), ..self }),
            Some(_) => Err(TorchError::setup(format!("PyTorch {version} is too old"))
                .hinted(format!("{OLDEST} or newer is needed"))),
            None => {
                Err(TorchError::setup(format!("`{version}` is no version of PyTorch"))
                    .hinted("write it as 2.11 or 2.11.0"))
            }
        }
    }

    /// What pip is asked for.
    fn wanted(&self) -> String {
        match &self.version {
            None => "torch".to_owned(),
            Some(version) if version.matches('.').count() >= 2 => format!("torch=={version}"),
            Some(version) => format!("torch=={version}.*"),
        }
    }

    /// Runs pip, whose progress goes to stderr, and finds what it fetched. A folder that is not whole is never found: pip works beside
    /// it.
    ///
    /// # Errors
    /// When pip is missing or fails.
    pub fn run(&self, report: &mut dyn FnMut(&str)) -> Result<Found, TorchError> {
        let part = self.folder.with_extension("part");
        let failed = |error: std::io::Error| TorchError::setup(format!("{}: {error}", part.display()));
        if part.exists() {
            fs::remove_dir_all(&part).map_err(failed)?;
        }
        report("fetching PyTorch (about 0.5 GB)");
        self.pip(&part, &[self.wanted()])?;
        let wheel = Search::of_environment(Some(&part)).find()?;
        let needed = wheel.cuda.as_deref().map(needed_of).unwrap_or_default();
        if !needed.is_empty() {
            report("fetching the two CUDA libraries that it is linked with");
            self.pip(&part, &needed)?;
        }
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).map_err(failed)?;
        }
        fs::rename(&part, &self.folder).map_err(failed)?;
        Search::of_environment(Some(&self.folder)).find()
    }

    fn pip(&self, folder: &Path, packages: &[String]) -> Result<(), TorchError> {
        let mut command = Command::new(&self.python);
        command.args(["-m", "pip", "install", "--no-deps", "--no-compile", "--disable-pip-version-check", "--target"]);
        command.arg(folder).args(packages).stdin(Stdio::null()).stdout(Stdio::null());
        let typed = format!(
            "{} -m pip install --no-deps --target {} {}",
            self.python.display(),
            folder.display(),
            packages.join(" ")
        );
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(TorchError::setup(format!("`{typed}` ended with {status}")).hinted(
                "its own words stand above; a full disk, no network, or a Python that PyTorch has no wheel for",
            )),
            Err(error) => Err(TorchError::setup(format!("{} cannot be started: {error}", self.python.display()))
                .hinted("a Python with pip is needed to fetch PyTorch")),
        }
    }
}

/// Packages for CUDA `13.0` or `12.8`: from CUDA 13 on their names have no ending.
fn needed_of(cuda: &str) -> Vec<String> {
    let major: u32 = cuda.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    let ending = if major >= 13 { String::new() } else { format!("-cu{major}") };
    NEEDED.iter().map(|name| format!("{name}{ending}=={cuda}.*")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_of_the_wheels_own_cuda() {
        assert_eq!(needed_of("13.0"), ["nvidia-cuda-runtime==13.0.*", "nvidia-cuda-cupti==13.0.*"]);
        assert_eq!(needed_of("12.8"), ["nvidia-cuda-runtime-cu12==12.8.*", "nvidia-cuda-cupti-cu12==12.8.*"]);
    }

    #[test]
    fn a_version_can_be_asked_for() {
        let plan = || download_plan(Path::new("python3"), Path::new("torch"));
        assert_eq!(plan().wanted(), "torch");
        assert_eq!(plan().of_version("2.11").unwrap().wanted(), "torch==2.11.*");
        assert_eq!(plan().of_version("2.11.1").unwrap().wanted(), "torch==2.11.1");
        for (wrong, wanted) in
            [("2.4", "too old"), ("new", "no version"), ("2.11; rm", "no version"), ("", "no version")]
        {
            assert!(plan().of_version(wrong).unwrap_err().text.contains(wanted), "{wrong}");
        }
    }

    #[test]
    fn a_pip_that_fails_leaves_no_folder() {
        let folder = std::env::temp_dir().join(format!("tonnage-get-{}", std::process::id()));
        let error = download_plan(Path::new("false"), &folder).run(&mut |_| {}).unwrap_err();
        assert!(error.text.contains("pip install --no-deps"), "{error}");
        assert!(!folder.exists());
        let error = download_plan(Path::new("/no/such/python"), &folder).run(&mut |_| {}).unwrap_err();
        assert!(error.hint.unwrap().contains("pip"));
    }
}
