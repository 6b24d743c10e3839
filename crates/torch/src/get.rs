//! PyTorch without its CUDA libraries, fetched by pip into a folder of Tonnage's own: 0.5 GB in place of 3.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::TorchError;
use crate::find::{Found, Search};

/// The two libraries of CUDA that libtorch_cpu of a CUDA build is linked with; the rest (2.7 GB) is libtorch_cuda's.
const NEEDED: [&str; 2] = ["nvidia-cuda-runtime", "nvidia-cuda-cupti"];

/// Fetches PyTorch with a Python's pip into `folder`.
#[derive(Clone, Debug)]
pub struct Download {
    python: PathBuf,
    folder: PathBuf,
}

/// A download that is not yet begun.
pub fn download_plan(python: &Path, folder: &Path) -> Download {
    Download { python: python.to_owned(), folder: folder.to_owned() }
}

impl Download {
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
        self.pip(&part, &["torch".to_owned()])?;
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
    fn a_pip_that_fails_leaves_no_folder() {
        let folder = std::env::temp_dir().join(format!("tonnage-get-{}", std::process::id()));
        let error = download_plan(Path::new("false"), &folder).run(&mut |_| {}).unwrap_err();
        assert!(error.text.contains("pip install --no-deps"), "{error}");
        assert!(!folder.exists());
        let error = download_plan(Path::new("/no/such/python"), &folder).run(&mut |_| {}).unwrap_err();
        assert!(error.hint.unwrap().contains("pip"));
    }
}
