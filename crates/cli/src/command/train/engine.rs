//! PyTorch's libtorch for `tonnage train` and `tonnage generate`: found, fetched, loaded; and the device that is computed on.

use std::env;
use std::path::{Path, PathBuf};

use tonnage_torch::{Device, Download, Found, Search, Shim, Torch, TorchError, download_plan};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// What is fetched goes here, and what is compiled: it can be made again.
fn shim_cache() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    cache.unwrap_or_else(|| PathBuf::from(".cache")).join("tonnage")
}

/// Where `--get-torch` puts it.
fn own_folder() -> PathBuf {
    shim_cache().join("torch")
}

/// The libtorch of this machine.
///
/// # Errors
/// When there is none, or the one that was named cannot be used.
pub fn find_torch(named: Option<&Path>) -> Result<Found, Failure> {
    Search::of_environment(named).with_own(&own_folder()).find().map_err(torch_failure)
}

/// `PyTorch 2.11.0+cu130 of /venv/lib/python3.12/site-packages/torch`
pub fn about_torch(found: &Found) -> String {
    format!("PyTorch {} of {}", found.full_version, found.root.display())
}

/// Compiles the bridge to it, where that was not done yet, and says so.
///
/// # Errors
/// Without a C++ compiler, or when it fails.
pub fn build_shim(found: &Found, terminal: &Terminal) -> Result<Shim, Failure> {
    if let Some(warning) = found.warning() {
        terminal.say(&warning);
    }
    Shim::of(found, &shim_cache().join("bridge"), &mut |text| terminal.say(text)).map_err(torch_failure)
}

/// Loads it.
///
/// # Errors
/// When a library is missing.
pub fn load_torch(found: &Found, shim: &Shim, device: Device) -> Result<&'static Torch, Failure> {
    let torch = Torch::load(found, shim, device != Device::Cpu).map_err(torch_failure)?;
    if device != Device::Cpu {
        torch.initialise(device).map_err(torch_failure)?;
    }
    Ok(torch)
}

/// `tonnage train --get-torch [VERSION]`
///
/// # Errors
/// When there is no Python with pip, or it fails.
pub fn fetch_torch(version: Option<&str>, terminal: &Terminal) -> Result<Exit, Failure> {
    let python = active_python().ok_or_else(|| {
        Failure::bad_input("no python3 is on the PATH: pip fetches PyTorch")
            .with_hint("install Python, or unpack a libtorch and name it with --torch")
    })?;
    let plan = download_plan(&python, &own_folder());
    let plan: Download = match version.filter(|version| !version.is_empty()) {
        Some(version) => plan.of_version(version).map_err(torch_failure)?,
        None => plan,
    };
    let found = plan.run(&mut |text| terminal.say(text)).map_err(torch_failure)?;
    terminal.print(&format!("{}\n", about_torch(&found)))?;
    build_shim(&found, terminal)?;
    Ok(Exit::Done)
}

fn active_python() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let named =
        |name: &'static str| env::split_paths(&path).map(move |folder| folder.join(name)).find(|path| path.is_file());
    named("python3").or_else(|| named("python"))
}

/// Where to compute, and a sentence on why.
pub struct Chosen {
    pub device: Device,
    /// For who reads.
    pub why: String,
}

/// The device that was asked for: `auto` is the GPU where there is one and the libtorch has what it needs.
///
/// # Errors
/// When there is no device of that name, or the one that was asked for is not there.
pub fn choose_device(asked: &str, found: &Found, gpus: u32) -> Result<Chosen, Failure> {
    if asked == "auto" {
        let why = match (gpus > 0, found.has_cuda()) {
            (true, true) => return Ok(Chosen { device: Device::Cuda(0), why: "on the GPU".to_owned() }),
            (true, false) => {
                "on the CPU: this PyTorch was built without CUDA, though there is a GPU (--torch names another)"
            }
            (false, _) => "on the CPU: NVML shows no GPU in this machine",
        };
        return Ok(Chosen { device: Device::Cpu, why: why.to_owned() });
    }
    let device: Device = asked.parse().map_err(torch_failure)?;
    if device != Device::Cpu && !found.has_cuda() {
        return Err(Failure::bad_input(format!("--device {asked}: {} was built without CUDA", about_torch(found)))
            .with_hint("--device cpu, or name a PyTorch with CUDA: --torch"));
    }
    Ok(Chosen { device, why: format!("on {device}, as asked") })
}

/// PyTorch's error in our voice.
pub fn torch_failure(error: TorchError) -> Failure {
    let failure = Failure::bad_input(error.text);
    match error.hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// A training's error in our voice.
pub fn train_failure(error: &tonnage_train::TrainError) -> Failure {
    let text = error.to_string();
    let torch_hint = error.of_torch().and_then(|error| error.hint.clone());
    match text.split_once("\nhint: ") {
        Some((problem, hint)) => Failure::bad_input(problem).with_hint(hint),
        None => Failure { hint: torch_hint, ..Failure::bad_input(text) },
    }
}
