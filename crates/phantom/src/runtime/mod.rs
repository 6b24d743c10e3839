//! The CUDA runtime (libcudart of CUDA 12 and 13), a file an area. Names and signatures are the runtime's; the exported
//! functions carry no symbol version, which the loader accepts for any that a caller asks for.

mod capture;
mod device;
mod entry_point;
mod errors;
mod events;
mod graphs;
mod ipc;
mod kernels;
mod libraries;
mod memory;
mod pools;
mod properties;
mod streams;
mod user_objects;
mod version;

pub use capture::Streams;
pub use device::{attribute, device_limit};
pub use entry_point::find_entry;
pub use kernels::occupancy_of;
pub use version::{driver_version, runtime_version};
