//! PyTorch's CUDA caching allocator, block by block, and the [traces](trace::Trace) that it replays; it knows bytes and nothing else.
//!
//! One device; blocks of one stream never serve another. It follows PyTorch 2.11 (`c10/cuda/CUDACachingAllocator.cpp`) decision by decision, so a
//! replay of a job's requests gives the figures of `torch.cuda.memory_stats()` to the byte.
//!
//! It is a crate of its own because an answer's time goes into it: it is compiled for speed, what runs jobs for size.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod arena;
mod arrangement;
mod bins;
mod caching;
mod config;
mod expandable;
pub mod growing;
mod long_bins;
mod memory_map;
pub mod nearest;
mod parse;
mod pass;
mod peaks;
mod pool;
mod pool_kind;
mod release;
mod replay;
mod stats;
pub mod trace;
pub mod units;

pub use arena::BlockId;
pub use arrangement::Arrangement;
pub use caching::{ADDRESS_SPACE, CachingAllocator, OutOfMemory};
pub use config::AllocatorConfig;
pub use memory_map::{BlockState, MappedBlock, Segment};
pub use parse::{ConfigError, IGNORED_KEYS};
pub use pass::{Pass, counted_peaks};
pub use peaks::{Peaks, PhasePeak};
pub use pool_kind::PoolKind;
pub use replay::{Follower, ReplayOom, Replayed, Request, replay, replay_trace};
pub use stats::Stats;
