//! A phantom device's description: what the settings say of it, and what follows from its compute capability.

/// One device. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number on the machine, whatever a process sees of it.
    pub ordinal: usize,
    /// The product's name, without what marks it as a phantom.
    pub product: String,
    /// What CUDA reports as the device's memory.
    pub total: u64,
    /// The memory of the GPU that this one is for, where it was given more.
    pub stands_for: Option<u64>,
    /// What can be allocated, contexts included.
    pub usable: u64,
    /// What a process's first use of the device takes.
    pub context: u64,
    /// Major and minor number.
    pub compute_capability: (i32, i32),
    pub multiprocessors: i32,
    pub l2_cache: i32,
    pub shared_memory_per_multiprocessor: i32,
    pub threads_per_multiprocessor: i32,
    pub uuid: [u8; 16],
}

impl Device {
    /// The name that every API reports: nobody can mistake it for a GPU.
    pub fn name(&self) -> String {
        format!("Phantom {} (tonnage)", self.product)
    }

    /// The uuid as tools print it, without what they put before it.
    pub fn uuid_text(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Shared memory that a block can opt in to: all but the kilobyte that the system keeps (CUDA C++ Programming Guide,
    /// "Technical Specifications per Compute Capability"; Turing keeps none).
    pub fn shared_memory_per_block_optin(&self) -> i32 {
        match self.compute_capability {
            (7, _) => self.shared_memory_per_multiprocessor,
            _ => self.shared_memory_per_multiprocessor - 1024,
        }
    }

    /// From the same table: resident blocks of a multiprocessor.
    pub fn blocks_per_multiprocessor(&self) -> i32 {
        match self.compute_capability {
            (7, 5) | (8, 6 | 7) => 16,
            (8, 9) | (12, _) => 24,
            _ => 32,
        }
    }

    /// The device's PCI bus: distinct, as those of one machine are.
    pub fn pci_bus(&self) -> i32 {
        i32::try_from(self.ordinal).unwrap_or(i32::MAX - 1) + 1
    }
}

/// Shared memory, threads of a multiprocessor and L2 cache by compute capability (CUDA C++ Programming Guide, same table;
/// L2 of the largest product of each), for descriptions that leave them out.
pub const fn architecture(compute_capability: (i32, i32)) -> (i32, i32, i32) {
    const KIB: i32 = 1024;
    const MIB: i32 = 1024 * KIB;
    match compute_capability {
        (7, 5) => (64 * KIB, 1024, 4 * MIB),
        (7, _) => (96 * KIB, 2048, 6 * MIB),
        (8, 0) => (164 * KIB, 2048, 40 * MIB),
        (8, 6) => (100 * KIB, 1536, 6 * MIB),
        (8, _) => (100 * KIB, 1536, 48 * MIB),
        (9, _) => (228 * KIB, 2048, 60 * MIB),
        (12, _) => (100 * KIB, 1536, 96 * MIB),
        _ => (228 * KIB, 2048, 126 * MIB),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_is_written_as_the_driver_does() {
        let config = crate::config::Config::read(|_| None).unwrap();
        assert_eq!(config.machine[0].uuid_text(), "7068616e-746f-6d20-746f-6e6e61676500");
    }
}
