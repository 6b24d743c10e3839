//! Sharing between processes: not possible here, because a phantom's memory is one process's address space. PyTorch then
//! says so where tensors are sent through a queue.
#![allow(non_snake_case)]

use std::ffi::c_int;

use crate::boundary::report_code;
use crate::error::Error;

/// Functions that exist to be refused.
macro_rules! refused {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            report_code(Err(Error::NOT_SUPPORTED))
        }
    )*};
}

refused! {
    cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle cudaIpcGetEventHandle cudaIpcOpenEventHandle
    cudaMemPoolExportToShareableHandle cudaMemPoolImportFromShareableHandle
    cudaMemPoolExportPointer cudaMemPoolImportPointer
    cudaImportExternalMemory cudaImportExternalSemaphore
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharing_is_refused_with_the_documented_error() {
        assert_eq!((cudaIpcGetMemHandle(), cudaIpcOpenMemHandle(), cudaMemPoolImportPointer()), (801, 801, 801));
    }
}
