//! [`Library`]: NVML's calls, one method each, looked up by name when called so that each can fail alone.
//!
//! This file and `processes` have the crate's unsafe code: a symbol is used as the function that `nvml.h` declares under
//! its name.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;

use super::open_error::OpenError;
use super::structs::{Device, EventData, MEMORY_V2, MemoryV1, MemoryV2, PciInfo, Utilization};
use crate::absent::{Absent, Reading};
use crate::os::NVML;
use crate::sample::Memory;

/// `nvmlEventTypeXidCriticalError`.
const EVENT_XID: c_ulonglong = 8;
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and all other texts.
const TEXT_SIZE: usize = 96;

type DeviceCall<T> = unsafe extern "C" fn(Device, *mut T) -> c_int;
type DeviceChoice<T> = unsafe extern "C" fn(Device, c_uint, *mut T) -> c_int;

/// The library, loaded and started.
pub struct Library {
    library: libloading::Library,
    events: Option<*mut c_void>,
}

// SAFETY: NVML may be called from any thread (NVML API reference, "Thread safety"); the event set is used by one at a time,
// since waiting takes `&mut self`.
unsafe impl Send for Library {}

impl Library {
    /// Loads and starts the library at `path`, or the driver's.
    ///
    /// # Errors
    /// When it cannot be loaded or does not start.
    pub fn open(path: Option<&Path>) -> Result<Self, OpenError> {
        let name = path.map_or_else(|| OsString::from(NVML), |path| path.as_os_str().to_owned());
        // SAFETY: loading runs the library's initializers; NVML's, which do nothing of note, are what the user asks for.
        let library =
            unsafe { libloading::Library::new(&name) }.map_err(|error| OpenError::not_loaded(&name, &error))?;
        let library = Self { library, events: None };
        type Init = unsafe extern "C" fn() -> c_int;
        // SAFETY: `nvmlInit_v2` takes nothing.
        let init = || check_code(unsafe { library.symbol::<Init>(c"nvmlInit_v2")?() });
        init().map_err(OpenError::NotStarted)?;
        Ok(library)
    }

    /// The function under `name`.
    ///
    /// # Safety
    /// `F` is its type in `nvml.h`.
    pub(super) unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Reading<F> {
        // SAFETY: the caller's promise.
        let symbol = unsafe { self.library.get::<F>(name.to_bytes_with_nul()) };
        symbol.map(|symbol| *symbol).map_err(|_| Absent::NO_SYMBOL)
    }

    /// The value that a call writes.
    ///
    /// # Safety
    /// The call under `name` takes a device and a pointer to a `T`.
    unsafe fn read<T: Default>(&self, name: &CStr, device: Device) -> Reading<T> {
        let mut value = T::default();
        // SAFETY: the caller's promise; the pointer is to a live value.
        check_code(unsafe { self.symbol::<DeviceCall<T>>(name)?(device, &raw mut value) })?;
        Ok(value)
    }

    /// The value that a call with a choice writes.
    ///
    /// # Safety
    /// The call under `name` takes a device, a number and a pointer to a `T`.
    unsafe fn read_choice<T: Default>(&self, name: &CStr, device: Device, choice: c_uint) -> Reading<T> {
        let mut value = T::default();
        // SAFETY: the caller's promise; the pointer is to a live value.
        check_code(unsafe { self.symbol::<DeviceChoice<T>>(name)?(device, choice, &raw mut value) })?;
        Ok(value)
    }

    /// The driver's version.
    pub fn driver(&self) -> Reading<String> {
        type Call = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
        // SAFETY: `nvmlSystemGetDriverVersion` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlSystemGetDriverVersion")? };
        // SAFETY: the buffer has the length that is told.
        read_text::<TEXT_SIZE>(|buffer, length| unsafe { call(buffer, length) })
    }

    /// The CUDA version that the driver offers.
    pub fn cuda(&self) -> Reading<i32> {
        type Call = unsafe extern "C" fn(*mut c_int) -> c_int;
        let mut version = 0;
        // SAFETY: `nvmlSystemGetCudaDriverVersion_v2` has this type.
        check_code(unsafe { self.symbol::<Call>(c"nvmlSystemGetCudaDriverVersion_v2")?(&raw mut version) })?;
        Ok(version)
    }

    /// How many GPUs there are.
    pub fn count(&self) -> Reading<u32> {
        type Call = unsafe extern "C" fn(*mut c_uint) -> c_int;
        let mut count = 0;
        // SAFETY: `nvmlDeviceGetCount_v2` has this type.
        check_code(unsafe { self.symbol::<Call>(c"nvmlDeviceGetCount_v2")?(&raw mut count) })?;
        Ok(count)
    }

    /// A GPU by its index.
    pub fn device(&self, index: u32) -> Reading<Device> {
        type Call = unsafe extern "C" fn(c_uint, *mut Device) -> c_int;
        let mut device = Device(0);
        // SAFETY: `nvmlDeviceGetHandleByIndex_v2` has this type.
        check_code(unsafe { self.symbol::<Call>(c"nvmlDeviceGetHandleByIndex_v2")?(index, &raw mut device) })?;
        Ok(device)
    }

    fn device_text(&self, name: &CStr, device: Device) -> Reading<String> {
        type Call = unsafe extern "C" fn(Device, *mut c_char, c_uint) -> c_int;
        // SAFETY: the two callers name calls of this type.
        let call = unsafe { self.symbol::<Call>(name)? };
        // SAFETY: the buffer has the length that is told.
        read_text::<TEXT_SIZE>(|buffer, length| unsafe { call(device, buffer, length) })
    }

    /// The product's name.
    pub fn name(&self, device: Device) -> Reading<String> {
        self.device_text(c"nvmlDeviceGetName", device)
    }

    /// Compute capability, major and minor.
    pub fn compute_capability(&self, device: Device) -> Reading<(u32, u32)> {
        type Call = unsafe extern "C" fn(Device, *mut c_int, *mut c_int) -> c_int;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: `nvmlDeviceGetCudaComputeCapability` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlDeviceGetCudaComputeCapability")? };
        // SAFETY: the pointers are to live values.
        check_code(unsafe { call(device, &raw mut major, &raw mut minor) })?;
        let part = |number: c_int| u32::try_from(number).map_err(|_| Absent::UNKNOWN);
        Ok((part(major)?, part(minor)?))
    }

    pub fn cores(&self, device: Device) -> Reading<u32> {
        // SAFETY: the call fills an unsigned int.
        unsafe { self.read(c"nvmlDeviceGetNumGpuCores", device) }
    }

    pub fn uuid(&self, device: Device) -> Reading<String> {
        self.device_text(c"nvmlDeviceGetUUID", device)
    }

    /// The PCI address.
    pub fn pci(&self, device: Device) -> Reading<String> {
        // SAFETY: the call fills a `nvmlPciInfo_t`.
        let info: PciInfo = unsafe { self.read(c"nvmlDeviceGetPciInfo_v3", device)? };
        let address = info.bus_id.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte as u8)).collect();
        Ok(address)
    }

    /// Memory; with an old driver, what it keeps is part of what is used.
    pub fn memory(&self, device: Device) -> Reading<Memory> {
        let second = self.memory_v2(device);
        let old = matches!(second, Err(Absent(3 | 13 | 25)));
        let memory = if old { self.memory_v1(device).or(second) } else { second }?;
        if memory.total == 0 { Err(Absent::UNKNOWN) } else { Ok(memory) }
    }

    fn memory_v2(&self, device: Device) -> Reading<Memory> {
        let mut memory = MemoryV2 { version: MEMORY_V2, ..MemoryV2::default() };
        // SAFETY: `nvmlDeviceGetMemoryInfo_v2` takes a device and a `nvmlMemory_v2_t` with its version set.
        let call = unsafe { self.symbol::<DeviceCall<MemoryV2>>(c"nvmlDeviceGetMemoryInfo_v2")? };
        // SAFETY: the pointer is to a live value.
        check_code(unsafe { call(device, &raw mut memory) })?;
        let MemoryV2 { total, reserved, used, free, .. } = memory;
        Ok(Memory { total, reserved: Some(reserved), used, free })
    }

    fn memory_v1(&self, device: Device) -> Reading<Memory> {
        // SAFETY: the call fills a `nvmlMemory_t`.
        let MemoryV1 { total, free, used } = unsafe { self.read(c"nvmlDeviceGetMemoryInfo", device)? };
        Ok(Memory { total, reserved: None, used, free })
    }

    /// Per cent of time in which a kernel ran, and in which memory was used.
    pub fn utilization(&self, device: Device) -> Reading<(u32, u32)> {
        // SAFETY: the call fills a `nvmlUtilization_t`.
        let rates: Utilization = unsafe { self.read(c"nvmlDeviceGetUtilizationRates", device)? };
        Ok((rates.gpu, rates.memory))
    }

    /// Degrees Celsius of the GPU's own sensor.
    pub fn temperature(&self, device: Device) -> Reading<u32> {
        // SAFETY: sensor 0 is `NVML_TEMPERATURE_GPU`; the call fills an unsigned int.
        unsafe { self.read_choice(c"nvmlDeviceGetTemperature", device, 0) }
    }

    /// Per cent of the fan's speed.
    pub fn fan(&self, device: Device) -> Reading<u32> {
        // SAFETY: the call fills an unsigned int.
        unsafe { self.read(c"nvmlDeviceGetFanSpeed", device) }
    }

    /// In watts.
    pub fn power(&self, device: Device) -> Reading<f64> {
        // SAFETY: the call fills an unsigned int.
        unsafe { self.read::<c_uint>(c"nvmlDeviceGetPowerUsage", device) }.map(|milli| f64::from(milli) / 1000.0)
    }

    /// Watts that the device may take.
    pub fn power_limit(&self, device: Device) -> Reading<f64> {
        // SAFETY: the call fills an unsigned int.
        unsafe { self.read::<c_uint>(c"nvmlDeviceGetEnforcedPowerLimit", device) }
            .map(|milli| f64::from(milli) / 1000.0)
    }

    /// Joules since the driver was loaded.
    pub fn energy(&self, device: Device) -> Reading<f64> {
        // SAFETY: the call fills an unsigned long long.
        unsafe { self.read::<c_ulonglong>(c"nvmlDeviceGetTotalEnergyConsumption", device) }
            .map(|milli| milli as f64 / 1000.0)
    }

    /// MHz of the multiprocessors.
    pub fn sm_clock(&self, device: Device) -> Reading<u32> {
        // SAFETY: clock 1 is `NVML_CLOCK_SM`; the call fills an unsigned int.
        unsafe { self.read_choice(c"nvmlDeviceGetClockInfo", device, 1) }
    }

    /// MHz of the memory.
    pub fn memory_clock(&self, device: Device) -> Reading<u32> {
        // SAFETY: clock 2 is `NVML_CLOCK_MEM`; the call fills an unsigned int.
        unsafe { self.read_choice(c"nvmlDeviceGetClockInfo", device, 2) }
    }

    /// Why clocks are held down; the call had another name before CUDA 12.
    pub fn throttle(&self, device: Device) -> Reading<u64> {
        // SAFETY: both calls fill an unsigned long long.
        let now = unsafe { self.read::<c_ulonglong>(c"nvmlDeviceGetCurrentClocksEventReasons", device) };
        if now != Err(Absent::NO_SYMBOL) {
            return now;
        }
        // SAFETY: as above.
        unsafe { self.read(c"nvmlDeviceGetCurrentClocksThrottleReasons", device) }
    }

    /// Uncorrected memory errors since the driver was loaded.
    pub fn ecc_uncorrected(&self, device: Device) -> Reading<u64> {
        type Call = unsafe extern "C" fn(Device, c_uint, c_uint, *mut c_ulonglong) -> c_int;
        let mut count = 0;
        // SAFETY: `nvmlDeviceGetTotalEccErrors` has this type; 1 is uncorrected, 0 is volatile.
        check_code(unsafe { self.symbol::<Call>(c"nvmlDeviceGetTotalEccErrors")?(device, 1, 0, &raw mut count) })?;
        Ok(count)
    }

    /// Whether memory rows wait for a reset to be remapped.
    pub fn remap_pending(&self, device: Device) -> Reading<bool> {
        type Call = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;
        let mut counts = [0; 4];
        let [corrected, uncorrected, pending, failed] = counts.each_mut().map(|count| &raw mut *count);
        // SAFETY: `nvmlDeviceGetRemappedRows` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlDeviceGetRemappedRows")? };
        // SAFETY: four pointers to live values.
        check_code(unsafe { call(device, corrected, uncorrected, pending, failed) })?;
        Ok(counts[2] != 0)
    }

    /// Whether the device is split into instances.
    pub fn mig(&self, device: Device) -> Reading<bool> {
        type Call = unsafe extern "C" fn(Device, *mut c_uint, *mut c_uint) -> c_int;
        let (mut current, mut pending) = (0, 0);
        // SAFETY: `nvmlDeviceGetMigMode` has this type.
        check_code(unsafe {
            self.symbol::<Call>(c"nvmlDeviceGetMigMode")?(device, &raw mut current, &raw mut pending)
        })?;
        Ok(current == 1)
    }

    /// The instances of a device.
    pub fn instances(&self, device: Device) -> Reading<Vec<Device>> {
        type Call = unsafe extern "C" fn(Device, c_uint, *mut Device) -> c_int;
        // SAFETY: the call fills an unsigned int.
        let most = unsafe { self.read::<c_uint>(c"nvmlDeviceGetMaxMigDeviceCount", device)? };
        // SAFETY: `nvmlDeviceGetMigDeviceHandleByIndex` has this type.
        let call = unsafe { self.symbol::<Call>(c"nvmlDeviceGetMigDeviceHandleByIndex")? };
        let mut found = Vec::new();
        for index in 0..most {
            let mut instance = Device(0);
            // SAFETY: the pointer is to a live value.
            match check_code(unsafe { call(device, index, &raw mut instance) }) {
                Ok(()) => found.push(instance),
                // The numbers of instances have holes.
                Err(Absent::NOT_FOUND) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(found)
    }

    /// GPU instance and compute instance of an instance.
    pub fn instance_ids(&self, instance: Device) -> Reading<(u32, u32)> {
        // SAFETY: both calls fill an unsigned int.
        let id = |name| unsafe { self.read::<c_uint>(name, instance) };
        Ok((id(c"nvmlDeviceGetGpuInstanceId")?, id(c"nvmlDeviceGetComputeInstanceId")?))
    }

    /// Asks to be told of Xids of these devices from now on; a device that does not offer it is left out.
    pub fn register_xids(&mut self, devices: &[Device]) -> Reading<()> {
        type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
        type Register = unsafe extern "C" fn(Device, c_ulonglong, *mut c_void) -> c_int;
        let mut set = std::ptr::null_mut();
        // SAFETY: `nvmlEventSetCreate` has this type.
        check_code(unsafe { self.symbol::<Create>(c"nvmlEventSetCreate")?(&raw mut set) })?;
        self.events = Some(set);
        // SAFETY: `nvmlDeviceRegisterEvents` has this type.
        let register = unsafe { self.symbol::<Register>(c"nvmlDeviceRegisterEvents")? };
        // SAFETY: the set is the one that was made.
        let told = devices.iter().filter(|device| check_code(unsafe { register(**device, EVENT_XID, set) }).is_ok());
        if told.count() > 0 { Ok(()) } else { Err(Absent::NOT_SUPPORTED) }
    }

    /// The Xids that happened since the last call, each with its device.
    pub fn xids(&mut self) -> Vec<(Device, u64)> {
        type Wait = unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_int;
        let mut found = Vec::new();
        // SAFETY: `nvmlEventSetWait_v2` has this type.
        let (Some(set), Ok(wait)) = (self.events, unsafe { self.symbol::<Wait>(c"nvmlEventSetWait_v2") }) else {
            return found;
        };
        let null = Device(0);
        let mut event = EventData { device: null, kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
        // SAFETY: the set is ours and the pointer is to a live value; without a time to wait the call returns at once.
        while found.len() < 64 && check_code(unsafe { wait(set, &raw mut event, 0) }).is_ok() {
            if event.kind == EVENT_XID {
                found.push((event.device, event.data));
            }
        }
        found
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
        type Shutdown = unsafe extern "C" fn() -> c_int;
        // SAFETY: `nvmlEventSetFree` has this type.
        if let (Some(set), Ok(free)) = (self.events, unsafe { self.symbol::<Free>(c"nvmlEventSetFree") }) {
            // SAFETY: the set is ours and not used again.
            unsafe { free(set) };
        }
        // SAFETY: `nvmlShutdown` has this type and ends what `open` began.
        if let Ok(shutdown) = unsafe { self.symbol::<Shutdown>(c"nvmlShutdown") } {
            // SAFETY: as above.
            unsafe { shutdown() };
        }
    }
}

pub(super) fn check_code(code: c_int) -> Reading<()> {
    if code == 0 { Ok(()) } else { Err(Absent(code)) }
}

/// The text that a call writes into a buffer of `N` bytes; what is no text of printable characters is made one.
pub(super) fn read_text<const N: usize>(call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Reading<String> {
    let mut buffer = [0 as c_char; N];
    check_code(call(buffer.as_mut_ptr(), N as c_uint))?;
    let bytes: Vec<u8> = buffer.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    if bytes.is_empty() { Err(Absent::UNKNOWN) } else { Ok(String::from_utf8_lossy(&bytes).into_owned()) }
}
