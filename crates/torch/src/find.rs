//! Where libtorch lies on this machine, and which version it is.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::TorchError;
use crate::python;
use crate::version::{NEWEST_TRIED, OLDEST, Version};

/// Names the libtorch to take; before any environment.
const VARIABLE: &str = "TONNAGE_TORCH";
const LIBRARY: &str = if cfg!(target_os = "macos") { "libtorch_cpu.dylib" } else { "libtorch_cpu.so" };
/// Said wherever none is found.
const WAY_OUT: &str = "install PyTorch (`pip install torch`), have it fetched (`tonnage train --get-torch`), or name one with TONNAGE_TORCH";

/// Who named the libtorch that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// A path that the user gave to the program, `--torch PATH`.
    Flag,
    /// The environment variable `TONNAGE_TORCH`.
    Variable,
    /// `VIRTUAL_ENV` or `CONDA_PREFIX`, by its name.
    Environment(&'static str),
    /// The `python3` or `python` on `PATH`.
    Python(PathBuf),
    /// The folder that a [`Download`](crate::Download) fills.
    Own,
}

/// Places to look at, in order.
#[derive(Clone, Debug, Default)]
pub struct Search {
    places: Vec<(Source, PathBuf)>,
    pythons: Vec<PathBuf>,
    own: Option<PathBuf>,
}

/// A libtorch with its headers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// The folder `torch`: `lib`, `include` and `version.py` lie in it.
    pub root: PathBuf,
    /// As PyTorch writes it: `2.11.0+cu130`.
    pub full_version: String,
    /// Its major and minor number, which decide what it can do.
    pub version: Version,
    /// The CUDA version it was built for; `None` for a build without CUDA.
    pub cuda: Option<String>,
    /// Who named it.
    pub source: Source,
}

impl Search {
    /// `flag` (`--torch`), then `TONNAGE_TORCH`, then the active environment, then `python3` on `PATH`. A place that somebody named
    /// is taken or refused, never passed over.
    pub fn of_environment(flag: Option<&Path>) -> Self {
        let mut search = Self::default();
        if let Some(path) = flag {
            search.places.push((Source::Flag, path.to_owned()));
        } else if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            search.places.push((Source::Variable, path.into()));
        }
        for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
            if let Some(path) = env::var_os(name).filter(|path| !path.is_empty()) {
                search.places.push((Source::Environment(name), path.into()));
            }
        }
        let on_path = env::var_os("PATH").unwrap_or_default();
        for name in ["python3", "python"] {
            search
                .pythons
                .extend(env::split_paths(&on_path).map(|folder| folder.join(name)).find(|path| path.is_file()));
        }
        search
    }

    /// Looks into `folder` last: what a [`Download`](crate::Download) fills.
    #[must_use]
    pub fn with_own(mut self, folder: &Path) -> Self {
        self.own = Some(folder.to_owned());
        self
    }

    /// The first place that has a libtorch that works.
    ///
    /// # Errors
    /// When a place that was named has none or one that is too old, or when none is found anywhere.
    pub fn find(&self) -> Result<Found, TorchError> {
        for (source, place) in &self.places {
            match root_of(place) {
                Some(root) => return Found::at(&root, source.clone()),
                None if matches!(source, Source::Flag | Source::Variable) => {
                    return Err(nothing_at(place).hinted(
                        "name the folder `torch` of a site-packages, a virtual environment, its python, or an unpacked libtorch",
                    ));
                }
                None => {}
            }
        }
        for python in &self.pythons {
            if let Some(root) = python::torch_of(python).filter(|root| has_library(root)) {
                return Found::at(&root, Source::Python(python.clone()));
            }
        }
        if let Some(root) = self.own.as_deref().and_then(root_of) {
            return Found::at(&root, Source::Own);
        }
        Err(TorchError::setup("no PyTorch was found on this machine").hinted(WAY_OUT))
    }
}

impl Found {
    /// Reads the version in the folder `root`.
    fn at(root: &Path, source: Source) -> Result<Self, TorchError> {
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let unreadable =
            || TorchError::setup(format!("{} does not say which version of PyTorch it is", root.display()));
        let (full_version, cuda) = written_version(&root).ok_or_else(unreadable)?;
        let version = Version::of_text(&full_version).ok_or_else(unreadable)?;
        if version < OLDEST {
            return Err(TorchError::setup(format!("{} is PyTorch {full_version}", root.display()))
                .hinted(format!("PyTorch {OLDEST} or newer is needed: `pip install --upgrade torch`")));
        }
        if !root.join("include/ATen/ATen.h").is_file() {
            return Err(TorchError::setup(format!("{} has no C++ headers (include/ATen)", root.display()))
                .hinted("some distributions leave them out; a wheel from PyPI has them"));
        }
        Ok(Self { root, full_version, version, cuda, source })
    }

    /// Where its libraries lie.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// Whether it was built for CUDA and has that library.
    pub fn has_cuda(&self) -> bool {
        self.cuda.is_some() && self.libraries().join("libtorch_cuda.so").is_file()
    }

    /// A sentence where this version was not tried yet.
    pub fn warning(&self) -> Option<String> {
        (self.version > NEWEST_TRIED).then(|| {
            format!(
                "PyTorch {} is newer than {NEWEST_TRIED}, the newest that was tried; what it says goes on at your risk",
                self.version
            )
        })
    }
}

fn nothing_at(place: &Path) -> TorchError {
    TorchError::setup(format!("{} holds no PyTorch", place.display()))
}

fn has_library(root: &Path) -> bool {
    root.join("lib").join(LIBRARY).is_file()
}

/// The folder `torch` that `place` means: itself, below it, in an environment's site-packages, or what a Python imports.
fn root_of(place: &Path) -> Option<PathBuf> {
    if place.is_file() {
        return python::torch_of(place).filter(|root| has_library(root));
    }
    let below = [place.to_owned(), place.join("torch")];
    below.into_iter().chain(site_packages(place)).find(|root| has_library(root))
}

fn site_packages(environment: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(environment.join("lib")) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages/torch"))
        .collect();
    found.sort();
    found
}

/// `version.py` of a wheel, or `build-version` of an unpacked libtorch: the version, and CUDA's.
fn written_version(root: &Path) -> Option<(String, Option<String>)> {
    if let Ok(text) = fs::read_to_string(root.join("version.py")) {
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once('=')?.1.trim().split('\'').nth(1)?.to_owned())
        };
        return Some((value("__version__")?, value("cuda")));
    }
    let version = fs::read_to_string(root.join("build-version")).ok()?.trim().to_owned();
    let cuda = version.split_once("+cu").map(|(_, digits)| digits.to_owned());
    Some((version, cuda))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like PyTorch from outside.
    fn a_torch(name: &str, version: &str) -> PathBuf {
        let folder = env::temp_dir().join(format!("tonnage-find-{}-{name}", std::process::id()));
        let root = folder.join("lib/python3.11/site-packages/torch");
        for path in ["lib", "include/ATen"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("lib").join(LIBRARY), "").unwrap();
        fs::write(root.join("include/ATen/ATen.h"), "").unwrap();
        let text = format!("__version__ = '{version}'\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n");
        fs::write(root.join("version.py"), text).unwrap();
        folder
    }

    fn search(place: &Path) -> Search {
        Search { places: vec![(Source::Flag, place.to_owned())], ..Search::default() }
    }

    #[test]
    fn an_environment_or_its_torch_can_be_named() {
        let folder = a_torch("named", "2.11.0+cu130");
        for place in [
            folder.clone(),
            folder.join("lib/python3.11/site-packages"),
            folder.join("lib/python3.11/site-packages/torch"),
        ] {
            let found = search(&place).find().unwrap();
            assert_eq!((found.version.minor, found.cuda.as_deref()), (11, Some("13.0")));
            assert_eq!(found.full_version, "2.11.0+cu130");
            assert!(!found.has_cuda(), "no libtorch_cuda lies there");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_named_is_taken_or_refused() {
        let nothing = env::temp_dir().join("tonnage-find-nothing");
        let error = search(&nothing).find().unwrap_err();
        assert!(error.text.contains("holds no PyTorch"), "{error}");
        let old = a_torch("old", "2.4.1");
        let error = search(&old).find().unwrap_err();
        assert!(error.hint.unwrap().contains("2.7 or newer"));
        fs::remove_dir_all(old).unwrap();
    }

    #[test]
    fn newer_ones_come_with_a_warning() {
        let folder = a_torch("new", "3.0.0");
        assert!(search(&folder).find().unwrap().warning().unwrap().contains("newer than"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_at_all_names_the_way_out() {
        let error = Search::default().find().unwrap_err();
        assert!(error.hint.unwrap().contains("pip install torch"));
    }
}
