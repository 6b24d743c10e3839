//! The lease that a run's supervisor gives: of the nodes of a GPU only so many are between forward and optimizer at once. Files and
//! variables are those of the Python module (crates/run/python/guard).

use std::fs::File;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

use crate::error::TrainError;

/// Between two tries.
const LOOKS: Duration = Duration::from_millis(5);

/// Held until it is dropped; a node that dies gives it back by dying.
pub(super) struct Lease {
    #[expect(dead_code, reason = "the lock is held as long as this lives")]
    lock: Option<Flock<File>>,
}

/// Waits for one of the run's leases; without any everyone is let in.
pub(super) fn wait_for_lease() -> Result<Lease, TrainError> {
    let folder = std::env::var_os("TONNAGE_LEASES").map(PathBuf::from);
    let count = std::env::var("TONNAGE_LEASE").ok().and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    let Some(folder) = folder.filter(|_| count > 0) else { return Ok(Lease { lock: None }) };
    loop {
        for slot in 0..count {
            let path = folder.join(format!("lease-{slot}"));
            let file = File::create(&path).map_err(|error| TrainError::about_file(&path, error))?;
            if let Ok(lock) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                return Ok(Lease { lock: Some(lock) });
            }
        }
        thread::sleep(LOOKS);
    }
}
