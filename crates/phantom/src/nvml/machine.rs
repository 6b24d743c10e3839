//! The phantom's own devices as NVML sees them, when no script says otherwise: what they are, and who uses how much.

use super::device::Device;
use super::json::Json;
use super::script::State;
use crate::device;
use crate::state;

/// The CUDA version that the phantom driver offers.
const CUDA: f64 = 13000.0;

/// What holds now.
pub(super) fn machine_state() -> State {
    let mut system = Device::default();
    system.apply(0.0, &json_object(vec![("driver", Json::Text("phantom".to_owned())), ("cuda", Json::Number(CUDA))]));
    // All of them: unlike CUDA, NVML does not look at `CUDA_VISIBLE_DEVICES`.
    let devices = state::config().machine.iter().map(of).collect();
    State::of(devices, system)
}

fn of(device: &device::Device) -> Device {
    let users = state::lock_memory().accounts.users(device.ordinal);
    let used: u64 = users.iter().map(|(_, used)| used).sum();
    let process =
        |(pid, used): (u32, u64)| json_object(vec![("pid", Json::Number(f64::from(pid))), ("used", json_number(used))]);
    let (major, minor) = device.compute_capability;
    let mut known = Device::default();
    known.apply(
        0.0,
        &json_object(vec![
            ("name", Json::Text(device.name())),
            ("uuid", Json::Text(format!("GPU-{}", device.uuid_text()))),
            ("pci", Json::Text(format!("00000000:{:02X}:00.0", device.pci_bus()))),
            ("compute_capability", Json::Text(format!("{major}.{minor}"))),
            ("total", json_number(device.total)),
            ("reserved", json_number(device.total - device.usable)),
            ("used", json_number(used)),
            ("mig_mode", Json::Number(0.0)),
            ("processes", Json::List(users.into_iter().map(process).collect())),
        ]),
    );
    known
}

fn json_object(pairs: Vec<(&str, Json)>) -> Json {
    Json::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn json_number(bytes: u64) -> Json {
    Json::Number(bytes as f64)
}
