//! Bytes and how they are printed. Every size in the pipeline is a `u64` of bytes; floats appear only here.

use std::fmt;

/// One kibibyte, 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// One mebibyte, 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// One gibibyte, 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// A size in bytes that prints in binary units: `9.50 GiB`, `64.0 MiB`, `512 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The size in GiB, for plots and ratios; never for arithmetic on sizes.
    pub fn gib(self) -> f64 {
        self.0 as f64 / GIB as f64
    }

    /// The size in MiB, for plots and ratios; never for arithmetic on sizes.
    pub fn mib(self) -> f64 {
        self.0 as f64 / MIB as f64
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            n if n >= GIB => format!("{:.2} GiB", self.gib()),
            n if n >= MIB => format!("{:.1} MiB", self.mib()),
            n if n >= KIB => format!("{:.1} KiB", n as f64 / KIB as f64),
            n => format!("{n} B"),
        };
        f.pad(&text)
    }
}

/// A time in seconds that prints in the unit people would use: `18 ms`, `1.24 s`, `3.4 h`, `2.1 d`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            s if s < 0.01 => format!("{:.2} ms", s * 1e3),
            s if s < 1.0 => format!("{:.0} ms", s * 1e3),
            s if s < 10.0 => format!("{s:.2} s"),
            s if s < 100.0 => format!("{s:.1} s"),
            s if s < 7200.0 => format!("{:.0} min", s / 60.0),
            s if s < 48.0 * 3600.0 => format!("{:.1} h", s / 3600.0),
            s => format!("{:.1} d", s / 86400.0),
        };
        f.pad(&text)
    }
}

/// `n` rounded up to a multiple of `step` (`step` > 0), saturating at `u64::MAX`.
#[inline(always)]
pub const fn round_up(n: u64, step: u64) -> u64 {
    // Of a power of two no division is needed, and nothing that is left to be inlined: every request is rounded.
    let mask = step.wrapping_sub(1);
    if step & mask == 0 {
        return if n > u64::MAX - mask { u64::MAX } else { (n + mask) & !mask };
    }
    match n.checked_next_multiple_of(step) {
        Some(rounded) => rounded,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_binary_units() {
        let cases =
            [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (64 * MIB, "64.0 MiB"), (10 * GIB + GIB / 4, "10.25 GiB")];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>9}", Bytes(512)), "    512 B");
    }

    #[test]
    fn rounds_up_without_overflow() {
        assert_eq!(round_up(1, 512), 512);
        assert_eq!(round_up(512, 512), 512);
        assert_eq!(round_up(u64::MAX, 512), u64::MAX);
        for step in [1, 3, 512, 1 << 21, 1 << 63] {
            for n in [0, 1, 511, 513, u64::MAX - step, (u64::MAX - step) + 1, u64::MAX] {
                assert_eq!(round_up(n, step), n.checked_next_multiple_of(step).unwrap_or(u64::MAX), "{n} to {step}");
            }
        }
    }
}
