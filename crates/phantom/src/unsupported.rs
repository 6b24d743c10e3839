//! Libraries that cannot work here and say so: cuSPARSELt, whose compressed sizes are not documented; cuFile, which moves
//! data between disks and devices; CUPTI, whose profiler looks into NVIDIA's driver.
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void};

use crate::accepted::refused;
use crate::boundary::Slot;

/// `CUSPARSE_STATUS_NOT_SUPPORTED`.
const SPARSE_NOT_SUPPORTED: c_int = 10;

refused! {
    SPARSE_NOT_SUPPORTED;
    cusparseLtInit cusparseLtDestroy cusparseLtDenseDescriptorInit cusparseLtStructuredDescriptorInit
    cusparseLtMatDescriptorDestroy cusparseLtMatmulDescriptorInit cusparseLtMatmulDescSetAttribute
    cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgGetAttribute cusparseLtMatmulAlgSetAttribute
    cusparseLtMatmulGetWorkspace cusparseLtMatmulPlanInit cusparseLtMatmulPlanDestroy cusparseLtMatmul
    cusparseLtMatmulSearch cusparseLtSpMMACompress2 cusparseLtSpMMACompressedSize2 cusparseLtSpMMACompress
    cusparseLtSpMMACompressedSize cusparseLtSpMMAPrune
}

/// `CUPTI_ERROR_NOT_INITIALIZED`: PyTorch's profiler then goes on without the device's side. It asks for the version first;
/// newer real libraries look for the driver's own part meanwhile, which is not here, and never return.
const NO_PROFILER: c_int = 15;

refused! {
    NO_PROFILER;
    cuptiActivityDisable cuptiActivityEnable cuptiActivityEnableCudaEventDeviceTimestamps
    cuptiActivityEnableDriverApi cuptiActivityEnableRuntimeApi cuptiActivityFlushAll cuptiActivityGetNextRecord
    cuptiActivityGetNumDroppedRecords cuptiActivityPopExternalCorrelationId
    cuptiActivityPushExternalCorrelationId cuptiActivityRegisterCallbacks cuptiActivityRegisterTimestampCallback
    cuptiActivitySetAttribute cuptiEnableCallback cuptiEnableDomain cuptiFinalize cuptiSubscribe
    cuptiUnsubscribe cuptiGetCallbackName cuptiGetVersion
    cuptiEventGetAttribute cuptiEventGetIdFromName cuptiEventGroupGetAttribute cuptiEventGroupReadEvent
    cuptiEventGroupSetAttribute cuptiEventGroupSetDisable cuptiEventGroupSetEnable cuptiEventGroupSetsCreate
    cuptiEventGroupSetsDestroy cuptiGetDeviceId cuptiMetricEnumEvents cuptiMetricGetAttribute
    cuptiMetricGetIdFromName cuptiMetricGetNumEvents cuptiMetricGetValue cuptiSetEventCollectionMode
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuptiGetResultString(_result: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: a place for the result by the API's contract.
    unsafe { Slot::new(text) }.map_or(NO_PROFILER, |place| {
        place.put(c"a phantom GPU cannot be profiled".as_ptr());
        0
    })
}

/// `CUfileError_t`.
#[repr(C)]
struct FileError {
    error: c_int,
    driver: c_int,
}

/// `CU_FILE_DRIVER_NOT_INITIALIZED`.
const NO_FILE_DRIVER: c_int = 5001;

/// Functions of cuFile that return its own error.
macro_rules! no_file_driver {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> FileError {
            FileError { error: NO_FILE_DRIVER, driver: 0 }
        }
    )*};
}

no_file_driver! { cuFileDriverOpen cuFileDriverClose cuFileBufRegister cuFileBufDeregister cuFileHandleRegister }

#[unsafe(no_mangle)]
extern "C" fn cuFileHandleDeregister(_handle: *const c_void) {}

/// What reading and writing return: bytes, or a negative error.
#[unsafe(no_mangle)]
extern "C" fn cuFileRead() -> isize {
    -(NO_FILE_DRIVER as isize)
}

#[unsafe(no_mangle)]
extern "C" fn cuFileWrite() -> isize {
    -(NO_FILE_DRIVER as isize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_say_so() {
        assert_eq!((cusparseLtInit(), cuFileRead()), (SPARSE_NOT_SUPPORTED, -5001));
        // SAFETY: null is what is tested.
        assert_eq!((cuptiFinalize(), unsafe { cuptiGetResultString(0, std::ptr::null_mut()) }), (15, 15));
        let error = cuFileDriverOpen();
        assert_eq!((error.error, error.driver), (NO_FILE_DRIVER, 0));
    }
}
