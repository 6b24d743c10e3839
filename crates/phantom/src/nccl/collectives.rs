//! Collectives: nothing travels between processes; a small buffer ends up as if every rank had contributed what this one
//! did, so that counts and flags that all ranks agree on read back.

use std::ffi::c_int;

use super::{INVALID_ARGUMENT, communicator_of, status_code};
use crate::memory::{Side, copy_bytes};
use crate::state;

/// The bytes of an element of `ncclDataType_t`.
fn dtype_width(data_type: c_int) -> Result<usize, c_int> {
    match data_type {
        0 | 1 | 10 | 11 => Ok(1),
        6 | 9 => Ok(2),
        2 | 3 | 7 => Ok(4),
        4 | 5 | 8 => Ok(8),
        _ => Err(INVALID_ARGUMENT),
    }
}

/// Puts `count` elements from `from` into each of `slots` places from `to` on, as far as copies are performed.
fn spread_result(
    handle: usize,
    to: usize,
    from: usize,
    count: usize,
    data_type: c_int,
    slots: usize,
) -> Result<(), c_int> {
    let bytes = count.checked_mul(dtype_width(data_type)?).ok_or(INVALID_ARGUMENT)?;
    communicator_of(handle)?;
    let mut memory = state::lock_memory();
    for slot in 0..slots {
        let to = bytes.checked_mul(slot).and_then(|by| to.checked_add(by)).ok_or(INVALID_ARGUMENT)?;
        if to != from {
            // SAFETY: buffers of collectives are device memory, which is checked; page-locked host memory is the
            // caller's by the API's contract.
            unsafe { copy_bytes(&mut memory, to, from, bytes, (Side::Device, Side::Device)) }
                .map_err(|_| INVALID_ARGUMENT)?;
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    from: usize,
    to: usize,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    handle: usize,
    _stream: usize,
) -> c_int {
    status_code(spread_result(handle, to, from, count, data_type, 1))
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduce(
    from: usize,
    to: usize,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    root: c_int,
    handle: usize,
    _stream: usize,
) -> c_int {
    let received = communicator_of(handle).map(|it| usize::from(it.rank == root));
    status_code(received.and_then(|slots| spread_result(handle, to, from, count, data_type, slots)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclBroadcast(
    from: usize,
    to: usize,
    count: usize,
    data_type: c_int,
    root: c_int,
    handle: usize,
    _stream: usize,
) -> c_int {
    status_code(communicator_of(handle).and_then(|it| {
        let spread = spread_result(handle, to, from, count, data_type, 1);
        // On other ranks than the root nothing has to be at `from`; where PyTorch gathers by broadcasts, something is.
        if it.rank == root { spread } else { dtype_width(data_type).map(drop) }
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ncclBcast(_buffer: usize, _count: usize, data_type: c_int, _root: c_int, handle: usize) -> c_int {
    status_code(dtype_width(data_type).and_then(|_| communicator_of(handle).map(drop)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllGather(
    from: usize,
    to: usize,
    count: usize,
    data_type: c_int,
    handle: usize,
    _stream: usize,
) -> c_int {
    let ranks = communicator_of(handle).map(|it| it.ranks as usize);
    status_code(ranks.and_then(|ranks| spread_result(handle, to, from, count, data_type, ranks)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclReduceScatter(
    from: usize,
    to: usize,
    count: usize,
    data_type: c_int,
    _operation: c_int,
    handle: usize,
    _stream: usize,
) -> c_int {
    status_code(communicator_of(handle).and_then(|it| {
        let own = count.checked_mul(dtype_width(data_type)?).and_then(|bytes| bytes.checked_mul(it.rank as usize));
        let from = own.and_then(|by| from.checked_add(by)).ok_or(INVALID_ARGUMENT)?;
        spread_result(handle, to, from, count, data_type, 1)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn ncclAlltoAll(from: usize, to: usize, count: usize, data_type: c_int, handle: usize) -> c_int {
    let all = communicator_of(handle).map(|it| count.saturating_mul(it.ranks as usize));
    status_code(all.and_then(|all| spread_result(handle, to, from, all, data_type, 1)))
}

/// Gather and scatter to and from a root came with NCCL 2.28.
#[unsafe(no_mangle)]
extern "C" fn ncclGather(from: usize, to: usize, count: usize, data_type: c_int, root: c_int, handle: usize) -> c_int {
    let slots = communicator_of(handle).map(|it| if it.rank == root { it.ranks as usize } else { 0 });
    status_code(slots.and_then(|slots| spread_result(handle, to, from, count, data_type, slots)))
}

#[unsafe(no_mangle)]
extern "C" fn ncclScatter(from: usize, to: usize, count: usize, data_type: c_int, root: c_int, handle: usize) -> c_int {
    let slots = communicator_of(handle).map(|it| usize::from(it.rank == root));
    status_code(slots.and_then(|slots| spread_result(handle, to, from, count, data_type, slots)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::joined;
    use super::*;

    #[test]
    fn a_rank_finds_what_it_contributed_in_every_slot() {
        let handle = joined(4, 2);
        let device = state::lock_memory().allocate(0, 4096).unwrap();
        let mut host = [7_u64, 0, 0, 0, 0];
        let at = host.as_mut_ptr() as usize;
        // SAFETY: `host` has 40 bytes.
        unsafe { copy_bytes(&mut state::lock_memory(), device, at, 8, (Side::Device, Side::Any)) }.unwrap();
        assert_eq!(ncclAllGather(device, device + 8, 1, 4, handle, 0), 0);
        // SAFETY: as above.
        unsafe { copy_bytes(&mut state::lock_memory(), at, device, 40, (Side::Any, Side::Device)) }.unwrap();
        assert_eq!(host, [7; 5]);
        assert_eq!(ncclAllGather(device, device + (2 << 20) - 8, 1, 4, handle, 0), INVALID_ARGUMENT);
        assert_eq!(ncclAllReduce(device, device, 1, 99, 0, handle, 0), INVALID_ARGUMENT);
        assert_eq!(ncclReduceScatter(device, device, usize::MAX, 4, 0, handle, 0), INVALID_ARGUMENT);
        state::lock_memory().free(device).unwrap();
    }
}
