//! NVML of devices that are not there: every symbol of `libnvidia-ml.so.1`, answered from a timeline file
//! (`TONNAGE_NVML_SCRIPT`) or, without one, from the phantom's own devices.
//!
//! `script` reads the file, `device` is what is known of a GPU at a moment, `world` keeps the clock and finds the
//! device that a call means. The calls themselves are the files after these; what none of them answers is in
//! `unsupported`. A value that the script does not give is `NVML_ERROR_NOT_SUPPORTED`, never zero.

mod abi;
mod answer;
mod device;
mod events;
mod fabric;
mod identity;
mod json;
mod machine;
mod memory;
mod mig;
mod processes;
mod readings;
mod script;
mod system;
mod unsupported;
mod world;

/// The calls that answer from the script; all others say `NVML_ERROR_NOT_SUPPORTED`.
pub fn scripted_calls() -> impl Iterator<Item = &'static str> {
    [
        system::CALLS,
        identity::CALLS,
        memory::CALLS,
        readings::CALLS,
        processes::CALLS,
        mig::CALLS,
        events::CALLS,
        fabric::CALLS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The errors that a script can inject.
pub fn error_names() -> impl Iterator<Item = &'static str> {
    abi::ERRORS.iter().map(|row| row.1)
}
