//! The settings: environment variables into devices and switches. Text comes in, values or a sentence for the user come
//! out; `state` reads the environment once.

use std::path::PathBuf;

use crate::device::{Device, architecture};

/// The most devices of one machine: CUDA's own limit on what a process can see is of this order, and the ledger has a
/// column for each.
pub const MAX_DEVICES: usize = 64;
/// An NVIDIA H200 as the driver reports it (143771 MiB).
const DEFAULT_DEVICES: &str = "name=NVIDIA H200,total=150754820096,cc=9.0,sms=132";
/// The largest memory a device may have: address space has to hold several of them.
const MAX_TOTAL: u64 = 1 << 43;

/// Every setting with its default.
#[derive(Clone, Debug)]
pub struct Config {
    /// All devices of the machine, which NVML lists.
    pub machine: Vec<Device>,
    /// Those that `CUDA_VISIBLE_DEVICES` lets this process see, in its order.
    pub devices: Vec<Device>,
    pub ledger: Option<PathBuf>,
    /// Where the most that the process holds is written.
    pub usage: Option<PathBuf>,
    pub log: bool,
}

impl Config {
    /// Reads the settings through `variable`, which gives an environment variable's value.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let devices = variable("TONNAGE_PHANTOM_DEVICES").unwrap_or_else(|| DEFAULT_DEVICES.to_owned());
        let machine = devices_of(&devices)?;
        let devices = match variable("CUDA_VISIBLE_DEVICES") {
            Some(visible) => visible_of(&machine, &visible),
            None => machine.clone(),
        };
        Ok(Self {
            machine,
            devices,
            ledger: variable("TONNAGE_PHANTOM_LEDGER").filter(|path| !path.is_empty()).map(PathBuf::from),
            usage: variable("TONNAGE_PHANTOM_USAGE").filter(|path| !path.is_empty()).map(PathBuf::from),
            log: switch("TONNAGE_PHANTOM_LOG", &variable)?,
        })
    }
}

/// A switch is on with `1`, off with `0`, empty or unset; anything else is a mistake.
pub fn switch(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<bool, String> {
    match variable(name).as_deref() {
        Some("1") => Ok(true),
        None | Some("" | "0") => Ok(false),
        Some(other) => Err(format!("{name} is {other:?}; it takes 0 or 1")),
    }
}

fn devices_of(text: &str) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    for (index, entry) in text.split(';').map(str::trim).filter(|entry| !entry.is_empty()).enumerate() {
        let (device, count) =
            entry_of(entry).map_err(|problem| format!("TONNAGE_PHANTOM_DEVICES, device {index}: {problem}"))?;
        if devices.len() + count > MAX_DEVICES {
            return Err(format!("TONNAGE_PHANTOM_DEVICES has more than {MAX_DEVICES} devices"));
        }
        devices.extend((0..count).map(|_| device.clone()));
    }
    for (index, device) in devices.iter_mut().enumerate() {
        device.ordinal = index;
        if device.uuid == [0; 16] {
            device.uuid = uuid_of(index);
        }
    }
    Ok(devices)
}

/// What `CUDA_VISIBLE_DEVICES` leaves: numbers or `GPU-` and the beginning of a uuid; the first that names no device, or
/// one again, ends the list (CUDA C++ Programming Guide, "CUDA Environment Variables").
fn visible_of(machine: &[Device], visible: &str) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    for name in visible.split(',').map(str::trim) {
        let device = match name.strip_prefix("GPU-") {
            Some(uuid) => machine.iter().find(|device| device.uuid_text().starts_with(uuid) && !uuid.is_empty()),
            None => name.parse().ok().and_then(|ordinal: usize| machine.get(ordinal)),
        };
        match device {
            Some(device) if devices.iter().all(|seen| seen.ordinal != device.ordinal) => devices.push(device.clone()),
            _ => break,
        }
    }
    devices
}

/// A device without a uuid gets one that says what it is and differs from its neighbours'.
fn uuid_of(index: usize) -> [u8; 16] {
    let mut uuid = *b"phantom tonnage\0";
    uuid[15] = u8::try_from(index).unwrap_or(u8::MAX);
    uuid
}

/// The entry's device and how many of it there are.
fn entry_of(entry: &str) -> Result<(Device, usize), String> {
    let mut fields = Fields::default();
    for pair in entry.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not key=value"))?;
        fields.set(key.trim(), value.trim())?;
    }
    fields.finish()
}

/// What an entry says, before what it leaves out is filled in.
#[derive(Default)]
struct Fields {
    product: Option<String>,
    total: Option<u64>,
    stands_for: Option<u64>,
    usable: Option<u64>,
    context: Option<u64>,
    compute_capability: Option<(i32, i32)>,
    multiprocessors: Option<i32>,
    l2_cache: Option<i32>,
    shared_memory: Option<i32>,
    threads: Option<i32>,
    uuid: Option<[u8; 16]>,
    count: Option<usize>,
}

impl Fields {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" => self.product = Some(parse_name(value)?),
            "total" => self.total = Some(parse_number(key, value)?),
            "stands_for" => self.stands_for = Some(parse_number(key, value)?),
            "usable" => self.usable = Some(parse_number(key, value)?),
            "context" => self.context = Some(parse_number(key, value)?),
            "cc" => self.compute_capability = Some(parse_capability(value)?),
            "sms" => self.multiprocessors = Some(parse_positive(key, value)?),
            "l2" => self.l2_cache = Some(parse_positive(key, value)?),
            "smem" => self.shared_memory = Some(parse_positive(key, value)?),
            "threads" => self.threads = Some(parse_positive(key, value)?),
            "uuid" => self.uuid = Some(parse_hexadecimal(value)?),
            "count" => self.count = Some(parse_number(key, value)?),
            _ => return Err(format!("no such key: {key:?}")),
        }
        Ok(())
    }

    fn finish(self) -> Result<(Device, usize), String> {
        let total = self.total.ok_or("`total` is missing")?;
        let usable = self.usable.unwrap_or(total);
        let context = self.context.unwrap_or(0);
        if total > MAX_TOTAL {
            return Err(format!("total={total} is more than {MAX_TOTAL} bytes"));
        }
        if usable > total || context > usable {
            return Err(format!("context={context}, usable={usable}, total={total}: each must hold the one before"));
        }
        let compute_capability = self.compute_capability.unwrap_or((9, 0));
        let (shared_memory, threads, l2_cache) = architecture(compute_capability);
        let device = Device {
            ordinal: 0,
            product: self.product.unwrap_or_else(|| "GPU".to_owned()),
            total,
            stands_for: self.stands_for,
            usable,
            context,
            compute_capability,
            multiprocessors: self.multiprocessors.unwrap_or(132),
            l2_cache: self.l2_cache.unwrap_or(l2_cache),
            shared_memory_per_multiprocessor: self.shared_memory.unwrap_or(shared_memory),
            threads_per_multiprocessor: self.threads.unwrap_or(threads),
            uuid: self.uuid.unwrap_or([0; 16]),
        };
        Ok((device, self.count.unwrap_or(1)))
    }
}

fn parse_name(value: &str) -> Result<String, String> {
    let printable = value.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if printable && (1..=64).contains(&value.len()) {
        Ok(value.to_owned())
    } else {
        Err(format!("name={value:?} has to be 1 to 64 printable characters"))
    }
}

fn parse_number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value:?} is not a number in range"))
}

fn parse_positive(key: &str, value: &str) -> Result<i32, String> {
    parse_number(key, value)
        .ok()
        .filter(|&n: &i32| n >= 2048 || (n > 0 && key != "smem"))
        .ok_or_else(|| format!("{key}={value:?} is out of range"))
}

fn parse_capability(value: &str) -> Result<(i32, i32), String> {
    let (major, minor) = value.split_once('.').ok_or_else(|| format!("cc={value:?} is not like 9.0"))?;
    match (major.parse(), minor.parse()) {
        (Ok(major @ 5..=15), Ok(minor @ 0..=9)) => Ok((major, minor)),
        _ => Err(format!("cc={value:?} is no compute capability from 5.0 to 15.9")),
    }
}

fn parse_hexadecimal(value: &str) -> Result<[u8; 16], String> {
    let digits: String = value.chars().filter(|&c| c != '-').collect();
    match u128::from_str_radix(&digits, 16) {
        Ok(number) if digits.len() == 32 && digits.bytes().all(|c| c.is_ascii_hexdigit()) => Ok(number.to_be_bytes()),
        _ => Err(format!("uuid={value:?} has to be 32 hexadecimal digits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(devices: &str) -> Result<Config, String> {
        Config::read(|name| (name == "TONNAGE_PHANTOM_DEVICES").then(|| devices.to_owned()))
    }

    #[test]
    fn default_is_an_h200() {
        let config = Config::read(|_| None).unwrap();
        assert_eq!(config.devices.len(), 1);
        assert_eq!(config.devices[0].name(), "Phantom NVIDIA H200 (tonnage)");
        assert_eq!(config.devices[0].total, 143_771 << 20);
        assert_eq!(config.devices[0].shared_memory_per_block_optin(), 232_448);
    }

    #[test]
    fn entries_are_read() {
        let devices =
            read("name=NVIDIA L4,total=100,usable=90,context=10,cc=8.9,sms=58,count=2;total=7").unwrap().devices;
        assert_eq!(devices.len(), 3);
        assert_eq!((devices[1].total, devices[1].usable, devices[1].context), (100, 90, 10));
        assert_eq!(devices[1].compute_capability, (8, 9));
        assert_ne!(devices[0].uuid, devices[1].uuid);
        assert_eq!(devices[2].usable, 7);
    }

    #[test]
    fn a_process_sees_what_it_is_told_to() {
        let seen = |visible: &str| {
            let config = Config::read(|name| match name {
                "TONNAGE_PHANTOM_DEVICES" => Some("total=1;total=2;total=3".to_owned()),
                "CUDA_VISIBLE_DEVICES" => Some(visible.to_owned()),
                _ => None,
            });
            config.unwrap().devices.iter().map(|device| device.total).collect::<Vec<_>>()
        };
        assert_eq!(seen("2,0"), [3, 1]);
        assert_eq!(seen("1,-1,2"), [2]);
        assert_eq!(seen("0,0"), [1]);
        assert_eq!(seen(""), [0; 0]);
        assert_eq!(seen("GPU-7068616e-746f-6d20-746f-6e6e61676502"), [3]);
    }

    #[test]
    fn hostile_values_are_named() {
        for (text, part) in [
            ("name=x", "total"),
            ("total=-1", "total"),
            ("total=99999999999999999999", "total"),
            ("total=9223372036854775807", "more than"),
            ("total=5,usable=6", "usable=6"),
            ("total=5,context=6", "context=6"),
            ("total=5,cc=9", "cc"),
            ("total=5,cc=99.1", "cc"),
            ("total=5,sms=0", "sms"),
            ("total=5,smem=-4", "smem"),
            ("total=5,uuid=12", "uuid"),
            ("total=5,name=\u{1b}[2J", "name"),
            ("total=5,bogus=1", "bogus"),
            ("total", "key=value"),
            ("total=5,count=65", "more than 64"),
        ] {
            let problem = read(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn no_entries_are_no_devices() {
        assert!(read("").unwrap().devices.is_empty());
    }
}
