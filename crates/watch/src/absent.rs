//! [`Absent`]: why a reading is not there. Nothing that could not be read is ever shown as zero.

/// A value that was read, or why it was not.
pub type Reading<T> = Result<T, Absent>;

/// The reason, as NVML's return code (`nvmlReturn_t`, or [`Absent::NO_SYMBOL`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent(pub i32);

impl Absent {
    /// The device or the driver does not offer it.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// Not for this user, or not in a MIG slice.
    pub const NO_PERMISSION: Self = Self(4);
    /// There is no such device or process.
    pub const NOT_FOUND: Self = Self(6);
    /// The GPU has fallen off the bus.
    pub const LOST: Self = Self(15);
    /// The GPU must be reset.
    pub const RESET_REQUIRED: Self = Self(16);
    /// The library has no such call: an old driver.
    pub const NO_SYMBOL: Self = Self(13);
    /// What the driver said is no value.
    pub const UNKNOWN: Self = Self(999);

    /// Whether the whole device is gone.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::LOST | Self::RESET_REQUIRED)
    }

    /// The word for it in scripts and JSON.
    pub fn word(self) -> &'static str {
        self.table_row().1
    }

    /// The reason for people.
    pub fn reason(self) -> &'static str {
        self.table_row().2
    }

    /// The reason that a script calls `word`.
    pub fn named(word: &str) -> Self {
        WORDS.iter().find(|row| row.1 == word).map_or(Self::UNKNOWN, |row| Self(row.0))
    }

    fn table_row(self) -> (i32, &'static str, &'static str) {
        WORDS.iter().find(|row| row.0 == self.0).copied().unwrap_or((self.0, "unknown", "unknown error"))
    }
}

/// Codes of `nvml.h` (CUDA 13), each with its word and its meaning.
const WORDS: &[(i32, &str, &str)] = &[
    (1, "uninitialized", "NVML is not initialized"),
    (2, "invalid_argument", "invalid argument"),
    (3, "not_supported", "not supported"),
    (4, "no_permission", "no permission"),
    (5, "already_initialized", "already initialized"),
    (6, "not_found", "not found"),
    (7, "insufficient_size", "the list kept growing"),
    (8, "insufficient_power", "power cable not attached"),
    (9, "driver_not_loaded", "driver not loaded"),
    (10, "timeout", "timed out"),
    (11, "irq_issue", "interrupt trouble"),
    (12, "library_not_found", "library not found"),
    (13, "function_not_found", "the driver has no such call"),
    (14, "corrupted_inforom", "corrupted infoROM"),
    (15, "gpu_is_lost", "GPU is lost"),
    (16, "reset_required", "GPU must be reset"),
    (17, "operating_system", "blocked by the operating system"),
    (18, "lib_rm_version_mismatch", "driver and library have different versions"),
    (19, "in_use", "in use"),
    (20, "memory", "out of memory"),
    (21, "no_data", "no data"),
    (22, "vgpu_ecc_not_supported", "not with ECC"),
    (23, "insufficient_resources", "insufficient resources"),
    (24, "freq_not_supported", "frequency not supported"),
    (25, "argument_version_mismatch", "structure version not known to the driver"),
    (26, "deprecated", "deprecated"),
    (27, "not_ready", "not ready"),
    (28, "gpu_not_found", "no GPU found"),
    (29, "invalid_state", "invalid state"),
    (30, "reset_type_not_supported", "reset type not supported"),
    (999, "unknown", "unknown error"),
];
