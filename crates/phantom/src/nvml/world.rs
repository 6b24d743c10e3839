//! The one state behind all calls: the script, the clock, who initialized, and what a handle means.
//!
//! `TONNAGE_NVML_SCRIPT` names the script. Its time begins with the first call (`TONNAGE_NVML_START` seconds in) and runs
//! `TONNAGE_NVML_SPEED` times as fast as the wall's; at speed 0 it stands still.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::abi::{Code, DevicePointer, INVALID_ARGUMENT, SUCCESS, UNINITIALIZED};
use super::device::Device;
use super::script::{State, Timeline};

/// What the calls answer from.
pub(super) struct World {
    /// The script; without one the phantom's own devices answer.
    timeline: Option<Timeline>,
    pub(super) state: State,
    clock: Clock,
    pub(super) initialized: u32,
}

/// The time of the script.
struct Clock {
    begun: Option<Instant>,
    start: f64,
    speed: f64,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// The state, made at the first call.
pub(super) fn lock_world() -> Guard {
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    guard.get_or_insert_with(World::from_environment).bring_to_now();
    Guard(guard)
}

/// The locked state.
pub(super) struct Guard(MutexGuard<'static, Option<World>>);

impl std::ops::Deref for Guard {
    type Target = World;
    fn deref(&self) -> &World {
        self.0.as_ref().expect("`lock` made it")
    }
}

impl std::ops::DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut World {
        self.0.as_mut().expect("`lock` made it")
    }
}

impl World {
    fn new(timeline: Option<Timeline>, clock: Clock) -> Self {
        Self { timeline, state: State::default(), clock, initialized: 0 }
    }

    fn from_environment() -> Self {
        let number = |name: &str, otherwise| {
            std::env::var(name).ok().and_then(|text| text.parse::<f64>().ok()).unwrap_or(otherwise)
        };
        let clock =
            Clock { begun: None, start: number("TONNAGE_NVML_START", 0.0), speed: number("TONNAGE_NVML_SPEED", 1.0) };
        Self::new(script_of_environment(), clock)
    }

    fn bring_to_now(&mut self) {
        let now = self.clock.now();
        match &self.timeline {
            Some(timeline) => timeline.advance(&mut self.state, now),
            None => self.state = super::machine::machine_state(),
        }
    }

    /// Seconds of the script.
    pub(super) fn now(&mut self) -> f64 {
        self.clock.now()
    }

    /// Whether time passes by itself.
    pub(super) fn time_passes(&self) -> bool {
        self.clock.speed > 0.0
    }

    /// What the script injects into `call` for every device, or that nobody initialized.
    pub(super) fn system_error(&self, call: &str) -> Code {
        let injected = self.state.system.error(call);
        if injected == SUCCESS && self.initialized == 0 { UNINITIALIZED } else { injected }
    }

    /// All devices and instances.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle> {
        self.state.devices.iter().enumerate().flat_map(|(device, found)| {
            let instances = found.instances.as_ref().map_or(0, Vec::len);
            let own = std::iter::once(Handle { device, instance: None });
            own.chain((0..instances).map(move |instance| Handle { device, instance: Some(instance) }))
        })
    }

    /// The device behind `pointer`, when `call` may speak of it.
    pub(super) fn device(&self, call: &str, pointer: DevicePointer) -> Result<&Device, Code> {
        let injected = self.system_error(call);
        if injected != SUCCESS {
            return Err(injected);
        }
        let handle = Handle::of(pointer).ok_or(INVALID_ARGUMENT)?;
        let parent = self.state.devices.get(handle.device).ok_or(INVALID_ARGUMENT)?;
        let device = match handle.instance {
            None => parent,
            Some(instance) => parent.instances.as_ref().and_then(|all| all.get(instance)).ok_or(INVALID_ARGUMENT)?,
        };
        // An instance has its device's errors of all calls: it is lost with it.
        let errors = [device.error(call), if handle.instance.is_some() { parent.error("*") } else { SUCCESS }];
        errors.into_iter().find(|code| *code != SUCCESS).map_or(Ok(device), Err)
    }
}

impl Clock {
    fn now(&mut self) -> f64 {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.start + begun.elapsed().as_secs_f64() * self.speed
    }
}

/// The script that the environment names, if it does. An unreadable one says so and has no devices.
fn script_of_environment() -> Option<Timeline> {
    let path = std::env::var_os("TONNAGE_NVML_SCRIPT")?;
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    Some(text.and_then(|text| Timeline::parse(&text)).unwrap_or_else(|problem| {
        eprintln!("tonnage: {}: {problem}", path.display());
        Timeline::default()
    }))
}

/// What a `nvmlDevice_t` of ours says: a device, and an instance of it. The pointer is never followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub device: usize,
    pub instance: Option<usize>,
}

impl Handle {
    pub(super) fn pointer(self) -> DevicePointer {
        let instance = self.instance.map_or(0, |instance| instance + 1);
        std::ptr::without_provenance_mut((self.device + 1) * 0x1_0000 + instance * 0x10)
    }

    pub(super) fn of(pointer: DevicePointer) -> Option<Self> {
        let device = (pointer.addr() / 0x1_0000).checked_sub(1)?;
        let instance = (pointer.addr() % 0x1_0000 / 0x10).checked_sub(1);
        Some(Self { device, instance })
    }
}

/// Plays the script of `length` bytes at `text` from now on; returns whether it could be read. Tests call this.
///
/// # Safety
/// `text` is null or points to `length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tonnage_nvml_script(text: *const u8, length: usize) -> bool {
    if text.is_null() {
        return false;
    }
    // SAFETY: the caller promises that the bytes are there.
    let text = unsafe { std::slice::from_raw_parts(text, length) };
    let timeline = std::str::from_utf8(text).ok().and_then(|text| Timeline::parse(text).ok());
    let read = timeline.is_some();
    let clock = Clock { begun: None, start: 0.0, speed: 0.0 };
    let mut guard = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    let initialized = guard.as_ref().map_or(0, |world| world.initialized);
    let world = World { initialized, ..World::new(Some(timeline.unwrap_or_default()), clock) };
    *guard = Some(world);
    read
}

/// Sets the time of the script, which stands still from then on. Tests call this.
#[unsafe(no_mangle)]
pub extern "C" fn tonnage_nvml_time(seconds: f64) {
    lock_world().clock = Clock { begun: None, start: seconds, speed: 0.0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_told_apart() {
        for handle in [(0, None), (0, Some(0)), (7, Some(6)), (255, None)] {
            let handle = Handle { device: handle.0, instance: handle.1 };
            assert_eq!(Handle::of(handle.pointer()), Some(handle));
        }
        assert_eq!(Handle::of(std::ptr::null_mut()), None);
    }
}
