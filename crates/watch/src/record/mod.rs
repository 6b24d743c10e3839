//! Recordings: JSON lines that are at the same time scripts for the scripted NVML library (docs/watch.md). `keys` is the
//! table of what a line can say of a device, `check` refuses what none can, `writer` writes what changed, `reader` makes samples of it, and `store`
//! keeps a bounded history of them on disk.

mod check;
mod device;
mod keys;
mod reader;
mod store;
mod told;
mod value;
mod writer;

pub use reader::{Recording, RecordingError};
pub use store::{Store, StoreError, private_file};
pub use writer::Recorder;
