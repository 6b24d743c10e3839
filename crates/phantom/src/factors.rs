//! Workspaces of cuSOLVER's eigenvectors and orthogonal factors, which SOAP takes: NVIDIA does not document them and the library answers only
//! where there is a GPU. What LAPACK documents of the same decompositions is said in their place.
#![allow(non_snake_case, clippy::too_many_arguments, reason = "the library's names and signatures")]

use std::ffi::c_int;

use crate::boundary::Slot;

/// `CUSOLVER_STATUS_INVALID_VALUE`.
const INVALID_VALUE: c_int = 3;
/// `CUDA_R_32F` is 0; elements of other types are taken to have 8 bytes.
const SINGLE: u32 = 0;
/// Columns that LAPACK factors at a time, times which a workspace is as long as the matrix is wide.
const BLOCK: u64 = 64;

/// LAPACK's xSYEVD with vectors: 1 + 6 n + 2 n^2 elements.
fn eigenvector_elements(size: u64) -> u64 {
    size.saturating_mul(size).saturating_mul(2).saturating_add(6 * size + 1)
}

/// LAPACK's xGEQRF and xORGQR.
fn factor_elements(columns: u64) -> u64 {
    columns.saturating_mul(BLOCK)
}

/// Writes a number of elements.
///
/// # Safety
/// `place` is null or a place for a number.
unsafe fn put_elements(place: *mut c_int, size: i64, elements: fn(u64) -> u64) -> c_int {
    // SAFETY: the caller's promise.
    let Ok(place) = (unsafe { Slot::new(place) }) else { return INVALID_VALUE };
    let Ok(size) = u32::try_from(size) else { return INVALID_VALUE };
    place.put(c_int::try_from(elements(size.into())).unwrap_or(c_int::MAX));
    0
}

/// Writes bytes on the device and none on the host.
///
/// # Safety
/// Both are null or places for numbers.
unsafe fn put_bytes(device: *mut usize, host: *mut usize, size: i64, data: u32, elements: fn(u64) -> u64) -> c_int {
    // SAFETY: the caller's promise.
    let places = unsafe { (Slot::new(device), Slot::new(host)) };
    let ((Ok(device), Ok(host)), Ok(size)) = (places, u32::try_from(size)) else { return INVALID_VALUE };
    let element = if data == SINGLE { 4 } else { 8 };
    device.put(usize::try_from(elements(size.into()).saturating_mul(element)).unwrap_or(usize::MAX));
    host.put(0);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusolverDnSsyevj_bufferSize(
    _handle: usize,
    _mode: c_int,
    _triangle: c_int,
    size: c_int,
    _matrix: usize,
    _stride: c_int,
    _values: usize,
    elements: *mut c_int,
) -> c_int {
    // SAFETY: a place for the size by the API's contract.
    unsafe { put_elements(elements, size.into(), eigenvector_elements) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusolverDnXsyevd_bufferSize(
    _handle: usize,
    _parameters: usize,
    _mode: c_int,
    _triangle: c_int,
    size: i64,
    data: u32,
    _matrix: usize,
    _stride: i64,
    _values_data: u32,
    _values: usize,
    _computed: u32,
    device: *mut usize,
    host: *mut usize,
) -> c_int {
    // SAFETY: places for the sizes by the API's contract.
    unsafe { put_bytes(device, host, size, data, eigenvector_elements) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusolverDnSgeqrf_bufferSize(
    _handle: usize,
    _rows: c_int,
    columns: c_int,
    _matrix: usize,
    _stride: c_int,
    elements: *mut c_int,
) -> c_int {
    // SAFETY: a place for the size by the API's contract.
    unsafe { put_elements(elements, columns.into(), factor_elements) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusolverDnXgeqrf_bufferSize(
    _handle: usize,
    _parameters: usize,
    _rows: i64,
    columns: i64,
    data: u32,
    _matrix: usize,
    _stride: i64,
    _scales_data: u32,
    _scales: usize,
    _computed: u32,
    device: *mut usize,
    host: *mut usize,
) -> c_int {
    // SAFETY: places for the sizes by the API's contract.
    unsafe { put_bytes(device, host, columns, data, factor_elements) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cusolverDnSorgqr_bufferSize(
    _handle: usize,
    _rows: c_int,
    columns: c_int,
    _reflectors: c_int,
    _matrix: usize,
    _stride: c_int,
    _scales: usize,
    elements: *mut c_int,
) -> c_int {
    // SAFETY: a place for the size by the API's contract.
    unsafe { put_elements(elements, columns.into(), factor_elements) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    #[test]
    fn workspaces_are_those_that_lapack_documents() {
        let (mut elements, mut bytes) = (0, (9, 9));
        let (device, host) = (&raw mut bytes.0, &raw mut bytes.1);
        // SAFETY: every pointer is null or a local's.
        unsafe {
            assert_eq!(cusolverDnSsyevj_bufferSize(1, 1, 0, 100, 0, 100, 0, &raw mut elements), 0);
            assert_eq!(elements, 20_601);
            assert_eq!(cusolverDnSorgqr_bufferSize(1, 100, 100, 100, 0, 100, 0, &raw mut elements), 0);
            assert_eq!(elements, 6400);
            assert_eq!(cusolverDnSgeqrf_bufferSize(1, 100, 100, 0, 100, null_mut()), INVALID_VALUE);
            assert_eq!(cusolverDnXsyevd_bufferSize(1, 1, 1, 0, 100, 1, 0, 100, 1, 0, 1, device, host), 0);
            assert_eq!(bytes, (20_601 * 8, 0));
            assert_eq!(cusolverDnXgeqrf_bufferSize(1, 1, 100, 100, 0, 0, 100, 0, 0, 0, device, host), 0);
            assert_eq!(bytes, (25_600, 0));
        }
    }
}
