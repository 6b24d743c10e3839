//! The NVLink fabric between GPUs: there is none. PyTorch asks on Hopper and later, and takes a refusal for an error.

use super::abi::{Code, DevicePointer, INVALID_ARGUMENT, SUCCESS, VERSION_MISMATCH};
use super::world;

pub(super) const CALLS: &[&str] = &["nvmlDeviceGetGpuFabricInfoV"];

/// `nvmlGpuFabricInfoV_t` of versions 2 and 3 in words: the version, then cluster, status, clique, state and health. Zero is
/// `NVML_SUCCESS` for the status and `NVML_GPU_FABRIC_STATE_NOT_SUPPORTED` for the state.
const WORDS: [u32; 2] = [9, 10];

/// `nvmlDeviceGetGpuFabricInfoV`.
///
/// # Safety
/// As `nvml.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: DevicePointer, out: *mut u32) -> Code {
    if out.is_null() || !out.is_aligned() {
        return INVALID_ARGUMENT;
    }
    if let Err(error) = world::lock_world().device("nvmlDeviceGetGpuFabricInfoV", device) {
        return error;
    }
    // SAFETY: not null, and the version is the first field, which the caller has set.
    let version = unsafe { out.read() };
    let Some(words) = WORDS.into_iter().zip(2..).find(|(words, number)| version == (words * 4) | (number << 24)) else {
        return VERSION_MISMATCH;
    };
    // SAFETY: the caller's structure has as many words as its version says.
    unsafe { out.add(1).write_bytes(0, words.0 as usize - 1) };
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null_mut, without_provenance_mut};

    #[test]
    fn hostile_arguments_give_documented_errors() {
        let mut place = [7_u32; 10];
        // SAFETY: null and a device that does not exist are what is tested.
        unsafe {
            assert_eq!(nvmlDeviceGetGpuFabricInfoV(null_mut(), null_mut()), INVALID_ARGUMENT);
            let odd = nvmlDeviceGetGpuFabricInfoV(without_provenance_mut(5), place.as_mut_ptr());
            assert_ne!(odd, SUCCESS);
        }
        assert_eq!(place, [7; 10]);
    }
}
