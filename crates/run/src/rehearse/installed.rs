//! The library and the Python shim that the program carries, written once to a private folder of the user's cache; where others
//! could write there too, to a temporary one.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::RehearseError;
use crate::private::{holds_only, is_out_of_reach, make_folder, write_new};

const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libtonnage_phantom.so"));
const LIBRARY_NAME: &str = "lib/libtonnage_phantom.so";
/// What programs look for by name, beside PyTorch itself (Triton, also when it links; NVML's users), and a symbol that the
/// library must have: PyTorch takes a library without it for a broken one.
const LINKS: [(&str, &[u8]); 3] =
    [("lib/libcuda.so.1", b"cuInit\0"), ("lib/libcuda.so", b"cuInit\0"), ("lib/libnvidia-ml.so.1", b"nvmlInit_v2\0")];
const PYTHON: &str = "python";

/// The shim's files by their place in the folder; a test compares them with what is on disk.
const SHIM: &[(&str, &str)] = &[
    ("sitecustomize.py", include_str!("../../python/rehearse/sitecustomize.py")),
    ("tonnage_rehearse/__init__.py", include_str!("../../python/rehearse/tonnage_rehearse/__init__.py")),
    (
        "tonnage_rehearse/answers/__init__.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/__init__.py"),
    ),
    (
        "tonnage_rehearse/answers/accelerate.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/accelerate.py"),
    ),
    ("tonnage_rehearse/answers/batch.py", include_str!("../../python/rehearse/tonnage_rehearse/answers/batch.py")),
    (
        "tonnage_rehearse/answers/bitsandbytes.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/bitsandbytes.py"),
    ),
    (
        "tonnage_rehearse/answers/convolutions.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/convolutions.py"),
    ),
    (
        "tonnage_rehearse/answers/distributed.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/distributed.py"),
    ),
    (
        "tonnage_rehearse/answers/inductor.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/inductor.py"),
    ),
    ("tonnage_rehearse/answers/torch.py", include_str!("../../python/rehearse/tonnage_rehearse/answers/torch.py")),
    (
        "tonnage_rehearse/answers/torchvision.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/torchvision.py"),
    ),
    (
        "tonnage_rehearse/answers/transformers.py",
        include_str!("../../python/rehearse/tonnage_rehearse/answers/transformers.py"),
    ),
    ("tonnage_rehearse/answers/triton.py", include_str!("../../python/rehearse/tonnage_rehearse/answers/triton.py")),
    ("tonnage_rehearse/answers/trl.py", include_str!("../../python/rehearse/tonnage_rehearse/answers/trl.py")),
    ("tonnage_rehearse/caveats.py", include_str!("../../python/rehearse/tonnage_rehearse/caveats.py")),
    ("tonnage_rehearse/counters.py", include_str!("../../python/rehearse/tonnage_rehearse/counters.py")),
    ("tonnage_rehearse/coverage.py", include_str!("../../python/rehearse/tonnage_rehearse/coverage.py")),
    ("tonnage_rehearse/hooks.py", include_str!("../../python/rehearse/tonnage_rehearse/hooks.py")),
    ("tonnage_rehearse/imports.py", include_str!("../../python/rehearse/tonnage_rehearse/imports.py")),
    ("tonnage_rehearse/loaders.py", include_str!("../../python/rehearse/tonnage_rehearse/loaders.py")),
    ("tonnage_rehearse/named.py", include_str!("../../python/rehearse/tonnage_rehearse/named.py")),
    ("tonnage_rehearse/phases.py", include_str!("../../python/rehearse/tonnage_rehearse/phases.py")),
    ("tonnage_rehearse/places.py", include_str!("../../python/rehearse/tonnage_rehearse/places.py")),
    ("tonnage_rehearse/record.py", include_str!("../../python/rehearse/tonnage_rehearse/record.py")),
    ("tonnage_rehearse/repeats.py", include_str!("../../python/rehearse/tonnage_rehearse/repeats.py")),
    ("tonnage_rehearse/roles.py", include_str!("../../python/rehearse/tonnage_rehearse/roles.py")),
    ("tonnage_rehearse/session.py", include_str!("../../python/rehearse/tonnage_rehearse/session.py")),
    ("tonnage_rehearse/settings.py", include_str!("../../python/rehearse/tonnage_rehearse/settings.py")),
    ("tonnage_rehearse/shapes.py", include_str!("../../python/rehearse/tonnage_rehearse/shapes.py")),
    ("tonnage_rehearse/starts.py", include_str!("../../python/rehearse/tonnage_rehearse/starts.py")),
    ("tonnage_rehearse/stop.py", include_str!("../../python/rehearse/tonnage_rehearse/stop.py")),
    ("tonnage_rehearse/timeline.py", include_str!("../../python/rehearse/tonnage_rehearse/timeline.py")),
    ("tonnage_rehearse/trace.py", include_str!("../../python/rehearse/tonnage_rehearse/trace.py")),
    ("tonnage_rehearse/values/__init__.py", include_str!("../../python/rehearse/tonnage_rehearse/values/__init__.py")),
    ("tonnage_rehearse/values/added.py", include_str!("../../python/rehearse/tonnage_rehearse/values/added.py")),
    ("tonnage_rehearse/values/arrays.py", include_str!("../../python/rehearse/tonnage_rehearse/values/arrays.py")),
    ("tonnage_rehearse/values/assigned.py", include_str!("../../python/rehearse/tonnage_rehearse/values/assigned.py")),
    ("tonnage_rehearse/values/births.py", include_str!("../../python/rehearse/tonnage_rehearse/values/births.py")),
    ("tonnage_rehearse/values/branches.py", include_str!("../../python/rehearse/tonnage_rehearse/values/branches.py")),
    ("tonnage_rehearse/values/choices.py", include_str!("../../python/rehearse/tonnage_rehearse/values/choices.py")),
    ("tonnage_rehearse/values/compiled.py", include_str!("../../python/rehearse/tonnage_rehearse/values/compiled.py")),
    ("tonnage_rehearse/values/follow.py", include_str!("../../python/rehearse/tonnage_rehearse/values/follow.py")),
    ("tonnage_rehearse/values/hosted.py", include_str!("../../python/rehearse/tonnage_rehearse/values/hosted.py")),
    ("tonnage_rehearse/values/kinds.py", include_str!("../../python/rehearse/tonnage_rehearse/values/kinds.py")),
    ("tonnage_rehearse/values/known.py", include_str!("../../python/rehearse/tonnage_rehearse/values/known.py")),
    ("tonnage_rehearse/values/lengths.py", include_str!("../../python/rehearse/tonnage_rehearse/values/lengths.py")),
    ("tonnage_rehearse/values/loops.py", include_str!("../../python/rehearse/tonnage_rehearse/values/loops.py")),
    ("tonnage_rehearse/values/names.py", include_str!("../../python/rehearse/tonnage_rehearse/values/names.py")),
    ("tonnage_rehearse/values/numbers.py", include_str!("../../python/rehearse/tonnage_rehearse/values/numbers.py")),
    (
        "tonnage_rehearse/values/otherwise.py",
        include_str!("../../python/rehearse/tonnage_rehearse/values/otherwise.py"),
    ),
    ("tonnage_rehearse/values/reads.py", include_str!("../../python/rehearse/tonnage_rehearse/values/reads.py")),
    ("tonnage_rehearse/values/rules.py", include_str!("../../python/rehearse/tonnage_rehearse/values/rules.py")),
    ("tonnage_rehearse/values/running.py", include_str!("../../python/rehearse/tonnage_rehearse/values/running.py")),
    ("tonnage_rehearse/values/sizes.py", include_str!("../../python/rehearse/tonnage_rehearse/values/sizes.py")),
    ("tonnage_rehearse/values/sparse.py", include_str!("../../python/rehearse/tonnage_rehearse/values/sparse.py")),
    ("tonnage_rehearse/watchdog.py", include_str!("../../python/rehearse/tonnage_rehearse/watchdog.py")),
];

/// Where the files lie.
#[derive(Debug)]
pub(super) struct Installed {
    pub(super) folder: PathBuf,
    pub(super) library: PathBuf,
}

impl Installed {
    /// The folder of this very content: that of the user's cache, made if it is not there or not as it should be; or one
    /// within the temporary folder `within`, where the cache is out of this user's hands.
    pub fn find_or_make(within: &Path) -> Result<Self, RehearseError> {
        if LIBRARY.is_empty() {
            return Err(RehearseError::NotLinux);
        }
        let folder = match cache_folder().and_then(|cache| cached_folder(&cache)) {
            Some(folder) => folder,
            None => {
                let folder = within.join("installed");
                write_all(&folder).map_err(|error| RehearseError::file(&folder, error))?;
                folder
            }
        };
        // For those who work on the phantom: another library than the one that the program carries.
        let library = env::var_os("TONNAGE_PHANTOM_LIBRARY").map_or_else(|| folder.join(LIBRARY_NAME), PathBuf::from);
        Ok(Self { folder, library })
    }

    /// The library to preload.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The folder for LD_LIBRARY_PATH.
    pub fn libraries(&self) -> &Path {
        self.library.parent().unwrap_or(&self.folder)
    }

    /// The folder for PYTHONPATH.
    pub fn python(&self) -> PathBuf {
        self.folder.join(PYTHON)
    }
}

/// Writes the library to `folder`, under the names by which programs find it, and returns its path.
///
/// # Errors
/// When the program carries none, or the folder cannot be written.
pub fn write_library(folder: &Path) -> Result<PathBuf, RehearseError> {
    if LIBRARY.is_empty() {
        return Err(RehearseError::NotLinux);
    }
    let library = folder.join(Path::new(LIBRARY_NAME).file_name().unwrap_or_default());
    let write = || {
        fs::create_dir_all(folder)?;
        fs::write(&library, LIBRARY)?;
        for link in library_links() {
            let link = folder.join(Path::new(link).file_name().unwrap_or_default());
            if fs::symlink_metadata(&link).is_ok() {
                fs::remove_file(&link)?;
            }
            std::os::unix::fs::symlink(library.file_name().unwrap_or_default(), link)?;
        }
        Ok(())
    };
    write().map_err(|error| RehearseError::file(folder, error))?;
    Ok(library)
}

/// `$XDG_CACHE_HOME/tonnage` or `~/.cache/tonnage`.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("tonnage"))
}

/// The folder in `cache`, made where it is not there; `None` where it cannot be made, or others could write there.
fn cached_folder(cache: &Path) -> Option<PathBuf> {
    make_folder(cache).ok()?;
    if !is_out_of_reach(cache) {
        return None;
    }
    let folder = cache.join(format!("rehearse-{:016x}", content_hash()));
    if !is_intact(&folder) {
        make_links(&folder).ok()?;
    }
    (is_out_of_reach(&folder) && is_intact(&folder)).then_some(folder)
}

fn carried_files() -> impl Iterator<Item = (PathBuf, &'static [u8])> {
    let shim = SHIM.iter().map(|(name, text)| (Path::new(PYTHON).join(name), text.as_bytes()));
    shim.chain([(PathBuf::from(LIBRARY_NAME), LIBRARY)])
}

/// FNV-1a over names and contents: a name for the folder; what is in it is compared byte by byte.
fn content_hash() -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (name, content) in carried_files() {
        for byte in name.as_os_str().as_encoded_bytes().iter().chain(content) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

/// Whether every file is there as it should be, and no other that Python or the linker could take.
fn is_intact(folder: &Path) -> bool {
    let is_known = |path: &Path| {
        carried_files().any(|(name, _)| name == path) || LINKS.iter().any(|(link, _)| Path::new(link) == path)
    };
    let leads_here = |link: &str| {
        let target = fs::read_link(folder.join(link));
        target.is_ok_and(|target| Some(target.as_os_str()) == Path::new(LIBRARY_NAME).file_name())
    };
    holds_only(folder, &is_known)
        && carried_files().all(|(name, content)| fs::read(folder.join(name)).is_ok_and(|found| found == content))
        && library_links().all(leads_here)
}

/// The links for whose names the library has the symbol.
fn library_links() -> impl Iterator<Item = &'static str> {
    let has = |symbol: &[u8]| LIBRARY.windows(symbol.len()).any(|part| part == symbol);
    LINKS.into_iter().filter(move |(_, symbol)| has(symbol)).map(|(link, _)| link)
}

/// Writes everything beside its place and then moves it there, so that nobody sees half of it.
fn make_links(folder: &Path) -> Result<(), RehearseError> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let unique = format!("{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    let part = folder.with_extension(format!("part-{unique}"));
    write_all(&part).map_err(|error| RehearseError::file(&part, error))?;
    if fs::rename(&part, folder).is_ok() {
        return Ok(());
    }
    // Another process or thread was faster.
    if is_intact(folder) {
        return fs::remove_dir_all(&part).map_err(|error| RehearseError::file(&part, error));
    }
    let damaged = folder.with_extension(format!("damaged-{unique}"));
    fs::rename(folder, &damaged)
        .and_then(|()| fs::rename(&part, folder))
        .and_then(|()| fs::remove_dir_all(&damaged))
        .map_err(|error| RehearseError::file(folder, error))
}

fn write_all(folder: &Path) -> io::Result<()> {
    make_folder(folder)?;
    for (name, content) in carried_files() {
        let path = folder.join(name);
        path.parent().map_or(Ok(()), make_folder)?;
        write_new(&path, content)?;
    }
    for link in library_links() {
        let file = Path::new(LIBRARY_NAME).file_name().unwrap_or_default();
        std::os::unix::fs::symlink(file, folder.join(link))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::private::TemporaryFolder;

    #[test]
    fn every_file_of_the_shim_is_carried() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/rehearse");
        let mut found = Vec::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && path.file_name().is_some_and(|name| name != "__pycache__") {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "py") {
                    found.push(path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        let carried: Vec<_> = SHIM.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(carried, found);
    }

    #[test]
    fn a_damaged_folder_is_made_anew() {
        let temporary = TemporaryFolder::make().unwrap();
        let folder = cached_folder(&temporary.path().join("tonnage")).unwrap();
        fs::write(folder.join(PYTHON).join("sitecustomize.py"), "half").unwrap();
        assert!(!is_intact(&folder));
        assert_eq!(cached_folder(&temporary.path().join("tonnage")), Some(folder.clone()));
        assert!(is_intact(&folder));
        // What Python would import before its own.
        fs::write(folder.join(PYTHON).join("argparse.py"), "planted").unwrap();
        assert!(!is_intact(&folder));
        cached_folder(&temporary.path().join("tonnage")).unwrap();
        assert!(is_intact(&folder) && !folder.join(PYTHON).join("argparse.py").exists());
    }

    #[test]
    fn a_cache_that_others_can_write_to_is_left_alone() {
        let temporary = TemporaryFolder::make().unwrap();
        let cache = temporary.path().join("cache");
        make_folder(&cache).unwrap();
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(cached_folder(&cache.join("tonnage")), None);
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
        let folder = cached_folder(&cache.join("tonnage")).unwrap();
        let modes =
            carried_files().map(|(name, _)| fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777);
        assert!(modes.into_iter().all(|mode| mode == 0o600));
    }
}
