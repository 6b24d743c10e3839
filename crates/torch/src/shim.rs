//! The C++ shim: carried as source, compiled once for each PyTorch found, kept in a cache that only its owner writes to.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};

use crate::error::TorchError;
use crate::find::Found;
use crate::version::GENERIC_ALLOCATOR;

macro_rules! sources {
    ($($name:literal),*) => { &[$(($name, include_str!(concat!("../shim/", $name)))),*] };
}

/// All files of the shim; `shim.cpp`, `cuda.cpp` and `ranks.cpp` are compiled, each includes what it needs.
const SOURCES: &[(&str, &str)] = sources![
    "shim.cpp",
    "error.h",
    "values.h",
    "operators.cpp",
    "tensors.cpp",
    "autograd.cpp",
    "checkpoint.cpp",
    "devices.cpp",
    "cuda.cpp",
    "ranks.cpp",
    "nccl.h"
];
const LIBRARY: &str = "libtonnage_torch.so";
const CUDA_LIBRARY: &str = "libtonnage_torch_cuda.so";
const RANKS_LIBRARY: &str = "libtonnage_torch_ranks.so";
/// Tried in this order where `CXX` names none.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];
/// Lines of a compiler's errors that an error shows.
const SHOWN: usize = 12;

/// A compiled shim.
#[derive(Clone, Debug)]
pub struct Shim {
    library: PathBuf,
    cuda: Option<PathBuf>,
}

impl Shim {
    /// The shim for `found`: from `cache`, or compiled now (some fifteen seconds), which `report` is told.
    ///
    /// # Errors
    /// Without a C++ compiler, when it fails, or when others can write to `cache`.
    pub fn of(found: &Found, cache: &Path, report: &mut dyn FnMut(&str)) -> Result<Self, TorchError> {
        private_folder(cache)?;
        let folder = cache.join(name_for(found));
        // Processes that start together wait for the first of them.
        let _lock = if folder.join(LIBRARY).is_file() { None } else { Some(lock(cache)?) };
        if !folder.join(LIBRARY).is_file() {
            let compiler = compiler()?;
            report(&format!(
                "compiling the bridge to PyTorch {} with {} (once)",
                found.full_version,
                compiler.to_string_lossy()
            ));
            compile_into(&folder, cache, &compiler, found)?;
        }
        let cuda = Some(folder.join(CUDA_LIBRARY)).filter(|path| path.is_file());
        Ok(Self { library: folder.join(LIBRARY), cuda })
    }

    /// What several ranks need beside it: compiled when it is first asked for (some fifteen seconds more), which `report` is told.
    ///
    /// # Errors
    /// As [`Shim::of`].
    pub fn ranks(&self, found: &Found, report: &mut dyn FnMut(&str)) -> Result<PathBuf, TorchError> {
        let unknown = || TorchError::setup(format!("{} lies in no folder", self.library.display()));
        let folder = self.library.parent().ok_or_else(unknown)?;
        let library = folder.join(RANKS_LIBRARY);
        let _lock = if library.is_file() { None } else { Some(lock(folder)?) };
        if !library.is_file() {
            report(&format!("compiling what several ranks need of PyTorch {} (once)", found.full_version));
            // Beside its place, so that a killed compiler leaves nothing half made.
            let part = format!(".{RANKS_LIBRARY}-{}", std::process::id());
            compile(&compiler()?, found, folder, "ranks.cpp", &part, &["c10", "torch_cpu"])?;
            let failed = |error: io::Error| TorchError::setup(format!("{}: {error}", library.display()));
            fs::rename(folder.join(part), &library).map_err(failed)?;
        }
        Ok(library)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.library
    }

    pub(crate) fn cuda(&self) -> Option<&Path> {
        self.cuda.as_deref()
    }
}

/// Another PyTorch, other sources or another place of the same version have another folder.
fn name_for(found: &Found) -> String {
    let mut hasher = DefaultHasher::new();
    (SOURCES, &found.root, env!("CARGO_PKG_VERSION"), env::consts::ARCH).hash(&mut hasher);
    let version: String =
        found.full_version.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    format!("{version}-{:016x}", hasher.finish())
}

/// Makes `cache` where it is not there yet. Code is loaded from it, so nobody else may write to it.
fn private_folder(cache: &Path) -> Result<(), TorchError> {
    let failed = |error: io::Error| TorchError::setup(format!("{}: {error}", cache.display()));
    DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(failed)?;
    let found = fs::metadata(cache).map_err(failed)?;
    if found.mode() & 0o022 == 0 && found.uid() == nix::unistd::geteuid().as_raw() {
        return Ok(());
    }
    Err(TorchError::setup(format!("others can write to {}, and code is loaded from it", cache.display()))
        .hinted(format!("chmod 700 {}, or name another cache with XDG_CACHE_HOME", cache.display())))
}

/// Held until it is dropped, by the kernel, so that a killed process leaves no lock.
fn lock(cache: &Path) -> Result<Flock<File>, TorchError> {
    let path = cache.join(".lock");
    let failed = |error: io::Error| TorchError::setup(format!("{}: {error}", path.display()));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))
}

fn compiler() -> Result<OsString, TorchError> {
    if let Some(named) = env::var_os("CXX").filter(|named| !named.is_empty()) {
        return Ok(named);
    }
    let works = |name: &&str| {
        let tried = Command::new(name)
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    };
    COMPILERS.into_iter().find(works).map(OsString::from).ok_or_else(|| {
        TorchError::setup("no C++ compiler was found, which the bridge to PyTorch needs once")
            .hinted("install one (`apt install g++`, `conda install cxx-compiler`), or name it with CXX")
    })
}

/// Compiles beside the final place and moves the whole folder there, so that a killed compiler leaves nothing half made.
fn compile_into(folder: &Path, cache: &Path, compiler: &OsString, found: &Found) -> Result<(), TorchError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map(|now| now.as_nanos()).unwrap_or_default();
    let building = cache.join(format!(".building-{}-{now}", std::process::id()));
    let failed = |error: io::Error| TorchError::setup(format!("{}: {error}", building.display()));
    DirBuilder::new().mode(0o700).create(&building).map_err(failed)?;
    let compiled = write_sources(&building).map_err(failed).and_then(|()| {
        compile(compiler, found, &building, "shim.cpp", LIBRARY, &["c10", "torch_cpu"])?;
        compile_cuda(compiler, found, &building)?;
        match fs::rename(&building, folder) {
            // Another process was faster, with the same result.
            Err(_) if folder.join(LIBRARY).is_file() => Ok(()),
            other => other.map_err(failed),
        }
    });
    if building.exists() {
        // What remains of a failure takes room only; its error is told.
        let _ = fs::remove_dir_all(&building);
    }
    compiled
}

fn write_sources(folder: &Path) -> io::Result<()> {
    SOURCES.iter().try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

fn compile(
    compiler: &OsString,
    found: &Found,
    folder: &Path,
    source: &str,
    library: &str,
    needs: &[&str],
) -> Result<(), TorchError> {
    let mut first_failure = None;
    for standard in found.version.standards() {
        let mut command = Command::new(compiler);
        command.args([standard, "-O2", "-fPIC", "-shared", "-w", "-D_GLIBCXX_USE_CXX11_ABI=1"]);
        for include in ["include", "include/torch/csrc/api/include"] {
            command.arg("-I").arg(found.root.join(include));
        }
        cuda_headers(found).iter().for_each(|folder| {
            command.arg("-I").arg(folder);
        });
        command.arg(folder.join(source)).arg("-o").arg(folder.join(library));
        command.arg("-L").arg(found.libraries()).args(needs.iter().map(|name| format!("-l{name}")));
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            TorchError::setup(format!("{} cannot be started: {error}", compiler.to_string_lossy()))
                .hinted("name a C++ compiler with CXX, or install one (`apt install g++`)")
        })?;
        if output.status.success() {
            return Ok(());
        }
        first_failure.get_or_insert(output);
    }
    Err(first_failure
        .map_or_else(|| TorchError::setup("no language standard to try"), |output| complaint(&output, found)))
}

/// What needs libtorch_cuda. Before PyTorch 2.9 it needs the toolkit's own headers, which wheels have only in part: where they are not
/// to be had it is left out, training does without, and what asks the allocator is told.
fn compile_cuda(compiler: &OsString, found: &Found, folder: &Path) -> Result<(), TorchError> {
    if !found.has_cuda() {
        return Ok(());
    }
    let compiled = compile(compiler, found, folder, "cuda.cpp", CUDA_LIBRARY, &["c10", "torch_cpu", "torch_cuda"]);
    if found.version < GENERIC_ALLOCATOR { Ok(()) } else { compiled }
}

/// CUDA's headers: the toolkit's (`CUDA_HOME`, /usr/local/cuda), and those that wheels of its runtime put beside PyTorch
/// (`nvidia/cuda_runtime` to CUDA 12, `nvidia/cu13` after).
fn cuda_headers(found: &Found) -> Vec<PathBuf> {
    let toolkit = env::var_os("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    let wheels = found.root.parent().and_then(|site| fs::read_dir(site.join("nvidia")).ok());
    let places = wheels.into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(toolkit).chain(places).map(|place| place.join("include"));
    all.filter(|folder| folder.join("cuda_runtime_api.h").is_file()).collect()
}

/// The first errors of a compiler, without the lines that lead there.
fn complaint(output: &Output, found: &Found) -> TorchError {
    let text = String::from_utf8_lossy(&output.stderr);
    let mut errors: Vec<&str> = text.lines().filter(|line| line.contains("error")).take(SHOWN).collect();
    if errors.is_empty() {
        errors = text.lines().rev().take(SHOWN).collect();
        errors.reverse();
    }
    TorchError::setup(format!("the bridge to PyTorch {} does not compile:\n{}", found.full_version, errors.join("\n")))
        .hinted("a full disk, an old compiler (g++ 9 or newer is needed) or a PyTorch that is newer than this program")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, Version};

    fn found(root: &str) -> Found {
        Found {
            root: root.into(),
            full_version: "2.11.0+cu130".to_owned(),
            version: Version { major: 2, minor: 11 },
            cuda: None,
            source: Source::Flag,
        }
    }

    #[test]
    fn every_source_that_is_included_is_carried() {
        for (name, text) in SOURCES {
            for line in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
                let wanted = line.trim_end_matches('"');
                assert!(SOURCES.iter().any(|(carried, _)| *carried == wanted), "{name} includes {wanted}");
            }
        }
    }

    #[test]
    fn another_pytorch_has_another_shim() {
        assert!(name_for(&found("/a")).starts_with("2.11.0-cu130-"));
        assert_ne!(name_for(&found("/a")), name_for(&found("/b")));
    }

    #[test]
    fn a_cache_that_others_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = env::temp_dir().join(format!("tonnage-shim-open-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Shim::of(&found("/nowhere"), &folder, &mut |_| {}).unwrap_err();
        assert!(error.text.contains("others can write"), "{error}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_compiler_that_fails_leaves_nothing_and_says_what_it_said() {
        let cache = env::temp_dir().join(format!("tonnage-shim-fails-{}", std::process::id()));
        private_folder(&cache).unwrap();
        let error =
            compile_into(&cache.join("done"), &cache, &OsString::from("false"), &found("/nowhere")).unwrap_err();
        assert!(error.text.contains("does not compile"), "{error}");
        let error = compile_into(&cache.join("done"), &cache, &OsString::from("no-such-compiler"), &found("/nowhere"))
            .unwrap_err();
        assert!(error.text.contains("cannot be started"), "{error}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
        fs::remove_dir_all(cache).unwrap();
    }
}
