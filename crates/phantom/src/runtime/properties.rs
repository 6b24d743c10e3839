//! `cudaDeviceProp`, whose layout differs between CUDA 12 and 13: fields went, others came. The newer layout is what the
//! plain name of the function fills, the older one what the name with `_v2` fills.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_uint};

use super::runtime_version;
use crate::boundary::{Slot, report_code};
use crate::device::Device;
use crate::error::Error;
use crate::state;

/// Writes a layout as a structure whose fields all have a default.
macro_rules! layout {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[allow(dead_code, reason = "C reads the fields")]
        struct $name {
            $($field: $type,)*
        }

        impl $name {
            fn zeroed() -> Self {
                Self { $($field: <$type as Zero>::ZERO,)* }
            }
        }
    };
}

/// Types that fill a layout.
trait Zero {
    const ZERO: Self;
}

impl Zero for c_int {
    const ZERO: Self = 0;
}

impl Zero for c_uint {
    const ZERO: Self = 0;
}

impl Zero for usize {
    const ZERO: Self = 0;
}

impl<const N: usize> Zero for [c_int; N] {
    const ZERO: Self = [0; N];
}

impl<const N: usize> Zero for [u8; N] {
    const ZERO: Self = [0; N];
}

layout! {
    /// CUDA 13.0, `driver_types.h`.
    Properties13 {
        name: [u8; 256],
        uuid: [u8; 16],
        luid: [u8; 8],
        luidDeviceNodeMask: c_uint,
        totalGlobalMem: usize,
        sharedMemPerBlock: usize,
        regsPerBlock: c_int,
        warpSize: c_int,
        memPitch: usize,
        maxThreadsPerBlock: c_int,
        maxThreadsDim: [c_int; 3],
        maxGridSize: [c_int; 3],
        totalConstMem: usize,
        major: c_int,
        minor: c_int,
        textureAlignment: usize,
        texturePitchAlignment: usize,
        multiProcessorCount: c_int,
        integrated: c_int,
        canMapHostMemory: c_int,
        textures: [c_int; 39],
        surfaceAlignment: usize,
        concurrentKernels: c_int,
        ECCEnabled: c_int,
        pciBusID: c_int,
        pciDeviceID: c_int,
        pciDomainID: c_int,
        tccDriver: c_int,
        asyncEngineCount: c_int,
        unifiedAddressing: c_int,
        memoryBusWidth: c_int,
        l2CacheSize: c_int,
        persistingL2CacheMaxSize: c_int,
        maxThreadsPerMultiProcessor: c_int,
        streamPrioritiesSupported: c_int,
        globalL1CacheSupported: c_int,
        localL1CacheSupported: c_int,
        sharedMemPerMultiprocessor: usize,
        regsPerMultiprocessor: c_int,
        managedMemory: c_int,
        isMultiGpuBoard: c_int,
        multiGpuBoardGroupID: c_int,
        hostNativeAtomicSupported: c_int,
        pageableMemoryAccess: c_int,
        concurrentManagedAccess: c_int,
        computePreemptionSupported: c_int,
        canUseHostPointerForRegisteredMem: c_int,
        cooperativeLaunch: c_int,
        sharedMemPerBlockOptin: usize,
        pageableMemoryAccessUsesHostPageTables: c_int,
        directManagedMemAccessFromHost: c_int,
        maxBlocksPerMultiProcessor: c_int,
        accessPolicyMaxWindowSize: c_int,
        reservedSharedMemPerBlock: usize,
        hostRegisterSupported: c_int,
        sparseCudaArraySupported: c_int,
        hostRegisterReadOnlySupported: c_int,
        timelineSemaphoreInteropSupported: c_int,
        memoryPoolsSupported: c_int,
        gpuDirectRDMASupported: c_int,
        gpuDirectRDMAFlushWritesOptions: c_uint,
        gpuDirectRDMAWritesOrdering: c_int,
        memoryPoolSupportedHandleTypes: c_uint,
        deferredMappingCudaArraySupported: c_int,
        ipcEventSupported: c_int,
        clusterLaunch: c_int,
        unifiedFunctionPointers: c_int,
        later: [c_int; 7],
        reserved: [c_int; 56],
    }
}

layout! {
    /// CUDA 12.0 to 12.9, `driver_types.h`.
    Properties12 {
        name: [u8; 256],
        uuid: [u8; 16],
        luid: [u8; 8],
        luidDeviceNodeMask: c_uint,
        totalGlobalMem: usize,
        sharedMemPerBlock: usize,
        regsPerBlock: c_int,
        warpSize: c_int,
        memPitch: usize,
        maxThreadsPerBlock: c_int,
        maxThreadsDim: [c_int; 3],
        maxGridSize: [c_int; 3],
        clockRate: c_int,
        totalConstMem: usize,
        major: c_int,
        minor: c_int,
        textureAlignment: usize,
        texturePitchAlignment: usize,
        deviceOverlap: c_int,
        multiProcessorCount: c_int,
        kernelExecTimeoutEnabled: c_int,
        integrated: c_int,
        canMapHostMemory: c_int,
        computeMode: c_int,
        textures: [c_int; 40],
        surfaceAlignment: usize,
        concurrentKernels: c_int,
        ECCEnabled: c_int,
        pciBusID: c_int,
        pciDeviceID: c_int,
        pciDomainID: c_int,
        tccDriver: c_int,
        asyncEngineCount: c_int,
        unifiedAddressing: c_int,
        memoryClockRate: c_int,
        memoryBusWidth: c_int,
        l2CacheSize: c_int,
        persistingL2CacheMaxSize: c_int,
        maxThreadsPerMultiProcessor: c_int,
        streamPrioritiesSupported: c_int,
        globalL1CacheSupported: c_int,
        localL1CacheSupported: c_int,
        sharedMemPerMultiprocessor: usize,
        regsPerMultiprocessor: c_int,
        managedMemory: c_int,
        isMultiGpuBoard: c_int,
        multiGpuBoardGroupID: c_int,
        hostNativeAtomicSupported: c_int,
        singleToDoublePrecisionPerfRatio: c_int,
        pageableMemoryAccess: c_int,
        concurrentManagedAccess: c_int,
        computePreemptionSupported: c_int,
        canUseHostPointerForRegisteredMem: c_int,
        cooperativeLaunch: c_int,
        cooperativeMultiDeviceLaunch: c_int,
        sharedMemPerBlockOptin: usize,
        pageableMemoryAccessUsesHostPageTables: c_int,
        directManagedMemAccessFromHost: c_int,
        maxBlocksPerMultiProcessor: c_int,
        accessPolicyMaxWindowSize: c_int,
        reservedSharedMemPerBlock: usize,
        hostRegisterSupported: c_int,
        sparseCudaArraySupported: c_int,
        hostRegisterReadOnlySupported: c_int,
        timelineSemaphoreInteropSupported: c_int,
        memoryPoolsSupported: c_int,
        gpuDirectRDMASupported: c_int,
        gpuDirectRDMAFlushWritesOptions: c_uint,
        gpuDirectRDMAWritesOrdering: c_int,
        memoryPoolSupportedHandleTypes: c_uint,
        deferredMappingCudaArraySupported: c_int,
        ipcEventSupported: c_int,
        clusterLaunch: c_int,
        unifiedFunctionPointers: c_int,
        reserved: [c_int; 63],
    }
}

/// Fills what both layouts have.
macro_rules! fill {
    ($properties:expr, $device:expr) => {{
        let (mut it, device): (_, &Device) = ($properties, $device);
        let name = device.name();
        it.name[..name.len()].copy_from_slice(name.as_bytes());
        it.uuid = device.uuid;
        it.totalGlobalMem = device.total as usize;
        it.sharedMemPerBlock = 49_152;
        it.regsPerBlock = 65_536;
        it.warpSize = 32;
        it.memPitch = c_int::MAX as usize;
        it.maxThreadsPerBlock = 1024;
        it.maxThreadsDim = [1024, 1024, 64];
        it.maxGridSize = [c_int::MAX, 65_535, 65_535];
        it.totalConstMem = 65_536;
        (it.major, it.minor) = device.compute_capability;
        it.textureAlignment = 512;
        it.texturePitchAlignment = 32;
        it.multiProcessorCount = device.multiprocessors;
        it.canMapHostMemory = 1;
        it.concurrentKernels = 1;
        it.pciBusID = device.pci_bus();
        it.asyncEngineCount = 3;
        it.unifiedAddressing = 1;
        it.memoryBusWidth = 6144;
        it.l2CacheSize = device.l2_cache;
        it.maxThreadsPerMultiProcessor = device.threads_per_multiprocessor;
        it.streamPrioritiesSupported = 1;
        it.globalL1CacheSupported = 1;
        it.localL1CacheSupported = 1;
        it.sharedMemPerMultiprocessor = device.shared_memory_per_multiprocessor as usize;
        it.regsPerMultiprocessor = 65_536;
        it.managedMemory = 1;
        it.computePreemptionSupported = 1;
        it.canUseHostPointerForRegisteredMem = 1;
        it.cooperativeLaunch = 1;
        it.sharedMemPerBlockOptin = device.shared_memory_per_block_optin() as usize;
        it.maxBlocksPerMultiProcessor = device.blocks_per_multiprocessor();
        it.reservedSharedMemPerBlock = 1024;
        it.hostRegisterSupported = 1;
        it.memoryPoolsSupported = 1;
        it.ipcEventSupported = 1;
        it.clusterLaunch = c_int::from(device.compute_capability.0 >= 9);
        it
    }};
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties(properties: *mut c_char, ordinal: c_int) -> c_int {
    if runtime_version() < 13_000 {
        // CUDA 12 keeps CUDA 11's layout under this name, for programs that are too old for us.
        return report_code(Err(Error::NOT_SUPPORTED));
    }
    // SAFETY: a place for the structure by the API's contract.
    let place = unsafe { Slot::new(properties.cast()) };
    report_code(place.and_then(|place| {
        let (_, device) = state::device_at(ordinal)?;
        place.give(fill!(Properties13::zeroed(), device))
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cudaGetDeviceProperties_v2(properties: *mut c_char, ordinal: c_int) -> c_int {
    // SAFETY: a place for the structure by the API's contract.
    let place = unsafe { Slot::new(properties.cast()) };
    report_code(place.and_then(|place| {
        let (_, device) = state::device_at(ordinal)?;
        let mut it = fill!(Properties12::zeroed(), device);
        it.clockRate = 1_980_000;
        it.memoryClockRate = 2_619_000;
        it.deviceOverlap = 1;
        place.give(it)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Offsets as a C compiler gives them for the headers of CUDA 12.4 and 13.0.
    #[test]
    fn layouts_are_the_headers() {
        assert_eq!(size_of::<Properties12>(), 1032);
        assert_eq!(offset_of!(Properties12, multiProcessorCount), 388);
        assert_eq!(offset_of!(Properties12, sharedMemPerMultiprocessor), 640);
        assert_eq!(offset_of!(Properties12, sharedMemPerBlockOptin), 696);
        assert_eq!(offset_of!(Properties12, unifiedFunctionPointers), 776);
        assert_eq!(size_of::<Properties13>(), 1008);
        assert_eq!(offset_of!(Properties13, multiProcessorCount), 384);
        assert_eq!(offset_of!(Properties13, sharedMemPerMultiprocessor), 624);
        assert_eq!(offset_of!(Properties13, sharedMemPerBlockOptin), 672);
        assert_eq!(offset_of!(Properties13, unifiedFunctionPointers), 752);
    }

    #[test]
    fn null_and_unknown_devices_are_refused() {
        let mut it = Properties12::zeroed();
        // SAFETY: null is what is tested; the other place is a local of the right type.
        unsafe {
            assert_eq!(cudaGetDeviceProperties_v2(std::ptr::null_mut(), 0), 1);
            assert_eq!(cudaGetDeviceProperties_v2((&raw mut it).cast(), 5), 101);
            assert_eq!(cudaGetDeviceProperties_v2((&raw mut it).cast(), 0), 0);
        }
        assert_eq!((it.major, it.multiProcessorCount), (9, 132));
        assert!(it.name.starts_with(b"Phantom NVIDIA H200 (tonnage)\0"));
    }
}
