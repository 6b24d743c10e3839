//! The phantom's own devices as NVML sees them, where no script is given: identity from the settings, memory and
//! processes from the accounts, read anew at every call. Temperatures, clocks and power there are none.

use super::json::Json;
use super::script::{State, Timeline};
use crate::runtime::driver_version;
use crate::state;

/// Who the devices are, as a script would say it.
pub(super) fn timeline() -> Timeline {
    let mut script = format!("{{\"driver\": \"phantom\", \"cuda\": {}}}\n", driver_version());
    for device in &state::config().machine {
        let (major, minor) = device.compute_capability;
        script += &format!(
            "{{\"device\": {}, \"name\": {:?}, \"uuid\": \"GPU-{}\", \"total\": {}, \"compute_capability\": \"{major}.{minor}\"}}\n",
            device.ordinal,
            device.name(),
            device.uuid_text(),
            device.total,
        );
    }
    Timeline::parse(&script).unwrap_or_default()
}

/// Brings memory and processes up to date.
pub(super) fn refresh(now_state: &mut State) {
    for (ordinal, device) in now_state.devices.iter_mut().enumerate() {
        let processes = state::memory().accounts.processes(ordinal);
        let used: u64 = processes.iter().map(|(_, bytes)| bytes).sum();
        let rows: Vec<String> =
            processes.iter().map(|(id, used)| format!("{{\"pid\": {id}, \"used\": {used}}}")).collect();
        let event = format!("{{\"used\": {used}, \"processes\": [{}]}}", rows.join(", "));
        if let Ok(event) = Json::parse(&event) {
            device.apply(0.0, &event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_and_its_memory_are_seen() {
        let mut seen = State::default();
        timeline().advance(&mut seen, 0.0);
        assert_eq!(seen.devices.len(), 1);
        assert_eq!(seen.devices[0].text("name"), Some("Phantom NVIDIA H200 (tonnage)"));
        let block = state::memory().allocate(0, 6 << 20).unwrap();
        refresh(&mut seen);
        let processes = seen.devices[0].all_processes(0.0);
        assert_eq!(processes[0].pid, std::process::id());
        assert!(processes[0].used >= 6 << 20);
        state::memory().free(block).unwrap();
    }
}
