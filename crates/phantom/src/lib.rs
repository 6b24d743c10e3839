//! A GPU that isn't there: preloaded into a process, this library stands in for CUDA and its companions.
//!
//! Kernels launch and do nothing; device memory is address space that nobody touches; what the host asks about the
//! device is answered from a description. All of PyTorch's own host code then runs for real, its caching allocator
//! included, so the memory figures are those of a GPU of the described size.
//!
//! # How a process comes to use it
//! ```text
//! rustc --crate-type cdylib --edition 2024 -C opt-level=2 -C panic=abort -C link-arg=-Wl,-soname,libcuda.so.1 src/lib.rs
//! LD_PRELOAD=/dir/libtonnage_phantom.so python train.py
//! ```
//! The soname makes it the driver library that PyTorch and Triton look for by name. A folder in `LD_LIBRARY_PATH` with
//! links named `libcuda.so.1` and `libnvidia-ml.so.1` to the very same file does so too, and serves NVML's users.
//! Loaded, it sets `TORCH_CUDNN_SDPA_DEPRIORITIZED=1` unless that is set, which keeps attention on PyTorch's own kernels,
//! whose memory is known; cuDNN's is not.
//!
//! # Settings
//! | variable | meaning |
//! |---|---|
//! | `TONNAGE_PHANTOM_DEVICES` | the devices, see below; left out: one NVIDIA H200 |
//! | `TONNAGE_PHANTOM_LEDGER` | a file in which several processes account for the devices they share; made when missing |
//! | `TONNAGE_PHANTOM_USAGE` | a folder in which every process writes the most that it held of each device, as `used-PID` |
//! | `TONNAGE_PHANTOM_PYTHONPATH` | a folder that is put first on `PYTHONPATH` where it is not on it, also if a command replaced that |
//! | `TONNAGE_PHANTOM_QUIET` | `1`: no announcement on stderr |
//! | `TONNAGE_PHANTOM_LOG` | `1`: every allocation and release of device memory on stderr |
//! | `TONNAGE_PHANTOM_ALLOW_REAL_DRIVER` | `1`: load even where an NVIDIA driver is present |
//! | `TONNAGE_PHANTOM_ANNOUNCED` | set by the library itself, so that child processes stay silent |
//!
//! `CUDA_VISIBLE_DEVICES` works as with CUDA. `TONNAGE_PHANTOM_DEVICES` has an entry a device, separated by `;`, each of
//! `key=value` pairs separated by `,`: `name` (without "Phantom"), `total` (bytes; what CUDA reports), `usable` (bytes that
//! can be allocated, context included; default `total`), `context` (bytes that a process's first use takes; default 0,
//! because few are measured), `cc` (`9.0`), `sms` (multiprocessors), `l2` (bytes), `smem` (shared memory of a
//! multiprocessor, bytes), `threads` (of a multiprocessor), `uuid` (32 hexadecimal digits), `count` (so many alike). Only
//! `total` is required. Whatever cannot be read is refused at start, with status 2.
//!
//! # What it does not know
//! Workspaces of cuSOLVER, cuSPARSE, cuFFT and cuDNN are counted as nothing, as are NCCL's buffers and the memory of an
//! instantiated graph: none of them is documented, and no hardware was measured. A `cudaMallocAsync` pool is modelled
//! without fragmentation. Copies to and from the device of up to 4096 bytes are performed, so that scalars written by the
//! host read back; larger reads give zeros, except at once after the copy that they read back.

// What happens at load does not happen in tests, which link the library.
#![cfg_attr(test, allow(dead_code))]

mod accepted;
mod announce;
mod boundary;
mod config;
mod cublas;
mod cudnn;
mod cusolver;
mod cusparse;
mod device;
mod driver;
mod error;
mod error_table;
mod factors;
mod memory;
mod nccl;
pub mod nvml;
mod runtime;
mod state;
mod sys;
mod transforms;
mod unsupported;
