//! [`Timeline`]: the script, one JSON object a line, each an event at a time; blank lines and `#` lines are skipped.
//!
//! ```text
//! {"driver": "580.95.05", "cuda": 13000}
//! {"t": 0, "device": 0, "name": "NVIDIA L4", "total": 24152899584, "used": 524288000, "processes": []}
//! {"t": 60, "device": 0, "error": {"nvmlDeviceGetTemperature": "no_permission"}}
//! ```
//! What a later event does not name stays as it was. An event without a device is one of the system.

use super::device::Device;
use super::json::Json;

/// Devices beyond this are a slip of the pen.
const MOST_DEVICES: usize = 256;

/// Events in the order of their time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
struct Event {
    time: f64,
    device: Option<usize>,
    values: Json,
}

/// What holds at a moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The GPUs by index.
    pub devices: Vec<Device>,
    /// What concerns no device: driver, CUDA version, errors of every call.
    pub system: Device,
    applied: usize,
    now: f64,
}

impl Timeline {
    /// The timeline that a script tells.
    ///
    /// # Errors
    /// When a line cannot be read; says which.
    pub fn parse(script: &str) -> Result<Self, String> {
        let lines = script.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let event = |(number, line): (usize, &str)| {
            Event::parse(line).map_err(|problem| format!("line {}: {problem}", number + 1))
        };
        let mut events = lines.map(event).collect::<Result<Vec<_>, _>>()?;
        events.sort_by(|one, other| one.time.total_cmp(&other.time));
        Ok(Self { events })
    }

    /// Brings `state` to `now`; from the start when time went back.
    pub fn advance(&self, state: &mut State, now: f64) {
        if now < state.now {
            *state = State::default();
        }
        state.now = now;
        while let Some(event) = self.events.get(state.applied).filter(|event| event.time <= now) {
            state.apply(event);
            state.applied += 1;
        }
    }
}

impl Event {
    fn parse(line: &str) -> Result<Self, String> {
        let values = Json::parse(line)?;
        if !matches!(values, Json::Object(_)) {
            return Err("expected an object".to_owned());
        }
        let time = values.get("t").and_then(Json::number).unwrap_or(0.0);
        let device = match values.get("device").map(Json::number) {
            None => None,
            Some(Some(index)) if index >= 0.0 && index < MOST_DEVICES as f64 => Some(index as usize),
            Some(_) => return Err(format!("`device` is a number below {MOST_DEVICES}")),
        };
        Ok(Self { time, device, values })
    }
}

impl State {
    /// What holds without a script.
    pub fn of(devices: Vec<Device>, system: Device) -> Self {
        Self { devices, system, ..Self::default() }
    }

    fn apply(&mut self, event: &Event) {
        let Some(index) = event.device else {
            return self.system.apply(event.time, &event.values);
        };
        if index >= self.devices.len() {
            self.devices.resize_with(index + 1, Device::default);
        }
        self.devices[index].apply(event.time, &event.values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "# two devices\n{\"driver\": \"1\"}\n\n{\"t\": 5, \"device\": 1, \"power\": 2}\n{\"device\": 0, \"power\": 1}\n";

    #[test]
    fn time_goes_forward_and_back() {
        let timeline = Timeline::parse(SCRIPT).unwrap();
        let mut state = State::default();
        let mut devices = |now| {
            timeline.advance(&mut state, now);
            state.devices.len()
        };
        assert_eq!([devices(0.0), devices(5.0), devices(4.9), devices(6.0)], [1, 2, 1, 2]);
    }

    #[test]
    fn a_bad_line_is_named() {
        assert_eq!(Timeline::parse("{}\n[1]").unwrap_err(), "line 2: expected an object");
        assert_eq!(Timeline::parse("{\"device\": -1}").unwrap_err(), "line 1: `device` is a number below 256");
    }
}
