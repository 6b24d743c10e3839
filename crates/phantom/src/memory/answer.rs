//! What the host reads next from a device, where somebody above knows it: a kernel would have counted the elements of a mask,
//! and PyTorch's own code reads that count and allocates by it. The rehearsal's Python knows some such counts.

use std::cell::Cell;
use std::ffi::c_int;

/// Larger reads are tables, which nobody answers, in bytes.
pub const LARGEST: usize = size_of::<i64>();

thread_local! {
    static ANSWER: Cell<Option<i64>> = const { Cell::new(None) };
}

/// Until it is called with `given` zero, small reads of device memory by this thread give `value`; those of one byte, which
/// ask whether something holds, give 1.
#[unsafe(no_mangle)]
extern "C" fn tonnagePhantomAnswer(given: c_int, value: i64) -> c_int {
    ANSWER.set((given != 0).then_some(value));
    0
}

/// What a read of this many bytes gives, little endian, if somebody said so.
pub fn small_answer(bytes: usize) -> Option<[u8; LARGEST]> {
    let value = ANSWER.get().filter(|_| bytes <= LARGEST)?;
    Some(if bytes == 1 { 1_i64 } else { value }.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_reads_are_answered_until_no_more_is_said() {
        assert_eq!(small_answer(8), None);
        tonnagePhantomAnswer(1, 0x0102);
        assert_eq!(small_answer(4), Some([2, 1, 0, 0, 0, 0, 0, 0]));
        assert_eq!(small_answer(1).map(|bytes| bytes[0]), Some(1));
        assert_eq!(small_answer(LARGEST + 1), None);
        tonnagePhantomAnswer(0, 7);
        assert_eq!(small_answer(8), None);
    }
}
