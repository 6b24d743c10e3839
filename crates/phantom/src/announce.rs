//! What happens when the library is loaded: it refuses where it could be mistaken for a GPU or cannot read its settings,
//! and says once per process tree that it is there.

use std::path::Path;

#[cfg(not(test))]
use crate::{config, state, sys};

/// What a loaded NVIDIA driver leaves in the file system, and the driver of Windows under WSL.
const DRIVER_FILES: &[&str] = &["/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1"];

/// The status of a process that must not run: that of a usage error on the command line.
#[cfg(not(test))]
const REFUSED: i32 = 2;

/// PyTorch's own switch that puts cuDNN's attention last: what cuDNN allocates on a GPU nobody documents, so attention is
/// to run on PyTorch's kernels, whose memory is known. A value that the user set stays.
#[cfg(not(test))]
const CUDNN_ATTENTION_LAST: &str = "TORCH_CUDNN_SDPA_DEPRIORITIZED";

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(test))]
extern "C" fn at_load() {
    if let Err(problem) = start_announcing() {
        eprintln!("tonnage phantom: {problem}");
        // SAFETY: `_exit` ends the process without running code of a half-started one.
        unsafe { sys::_exit(REFUSED) }
    }
}

#[cfg(not(test))]
fn start_announcing() -> Result<(), String> {
    let variable = |name: &str| std::env::var(name).ok();
    if !config::switch("TONNAGE_PHANTOM_ALLOW_REAL_DRIVER", &variable)? {
        refuse_beside(DRIVER_FILES)?;
    }
    let config = state::load()?;
    let quiet = config::switch("TONNAGE_PHANTOM_QUIET", &variable)?;
    if !quiet && variable("TONNAGE_PHANTOM_ANNOUNCED").is_none() {
        eprintln!("{}", announcement_of(&config.machine));
        // SAFETY: the loader runs this before `main`, when the process has a single thread.
        unsafe { std::env::set_var("TONNAGE_PHANTOM_ANNOUNCED", "1") }
    }
    if variable(CUDNN_ATTENTION_LAST).is_none() {
        // SAFETY: as above.
        unsafe { std::env::set_var(CUDNN_ATTENTION_LAST, "1") }
    }
    let path = variable("TONNAGE_PHANTOM_PYTHONPATH").and_then(|folder| first_on(variable("PYTHONPATH"), &folder));
    if let Some(path) = path {
        // SAFETY: as above.
        unsafe { std::env::set_var("PYTHONPATH", path) }
    }
    Ok(())
}

/// The path with the folder first; `None` where the folder is on it.
fn first_on(path: Option<String>, folder: &str) -> Option<String> {
    match path.filter(|path| !path.is_empty()) {
        Some(path) if path.split(':').any(|part| part == folder) => None,
        Some(path) => Some(format!("{folder}:{path}")),
        None => Some(folder.to_owned()),
    }
}

fn announcement_of(devices: &[crate::device::Device]) -> String {
    let names: Vec<String> = devices.iter().map(memory_of).collect();
    format!(
        "tonnage phantom: no GPU computes here; kernels do nothing and results are meaningless; attention is \
         PyTorch's own, not cuDNN's. Devices: {}",
        if names.is_empty() { "none".to_owned() } else { names.join("; ") }
    )
}

/// The device with its memory, and why that is not the GPU's.
fn memory_of(device: &crate::device::Device) -> String {
    let total = device.total >> 20;
    match device.stands_for {
        Some(bytes) => {
            format!("{}, {} MiB, given {total} MiB so that the whole peak is seen", device.name(), bytes >> 20)
        }
        None => format!("{}, {total} MiB", device.name()),
    }
}

fn refuse_beside(files: &[&str]) -> Result<(), String> {
    match files.iter().find(|file| Path::new(file).exists()) {
        None => Ok(()),
        Some(file) => Err(format!(
            "refusing to load: this machine has an NVIDIA driver ({file}). Set TONNAGE_PHANTOM_ALLOW_REAL_DRIVER=1 to \
             run on a phantom GPU all the same"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_driver_is_a_reason_to_refuse() {
        let problem = refuse_beside(&["/nonexistent", "/proc/self/stat"]).unwrap_err();
        assert!(problem.contains("/proc/self/stat"), "{problem}");
        assert_eq!(refuse_beside(&["/nonexistent"]), Ok(()));
        assert!(DRIVER_FILES.contains(&"/dev/nvidiactl"));
    }

    #[test]
    fn a_path_that_was_replaced_gets_the_folder_again() {
        let path = |text: &str| Some(text.to_owned());
        assert_eq!(first_on(None, "/shim"), path("/shim"));
        assert_eq!(first_on(path("src:lib"), "/shim"), path("/shim:src:lib"));
        assert_eq!(first_on(path("src:/shim"), "/shim"), None);
    }

    #[test]
    fn the_announcement_says_phantom() {
        let config = crate::config::Config::read(|_| None).unwrap();
        assert!(announcement_of(&config.machine).contains("Phantom NVIDIA H200 (tonnage), 143771 MiB"));
        let text = "name=x,total=196608000000,stands_for=24576000000";
        let config =
            crate::config::Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| text.to_owned())).unwrap();
        let said = announcement_of(&config.machine);
        assert!(
            said.ends_with("Phantom x (tonnage), 23437 MiB, given 187500 MiB so that the whole peak is seen"),
            "{said}"
        );
        assert!(announcement_of(&[]).ends_with("none"));
    }
}
