//! PyTorch's CUDA caching allocator, block by block; it knows bytes and nothing else.
//!
//! One device; blocks of one stream never serve another. It follows PyTorch 2.11 (`c10/cuda/CUDACachingAllocator.cpp`) decision by decision, so a
//! replay of a job's requests gives the figures of `torch.cuda.memory_stats()` to the byte.

mod arena;
mod arrangement;
mod caching;
mod config;
mod expandable;
pub(crate) mod growing;
mod memory_map;
mod parse;
mod pool;
mod pool_kind;
mod release;
mod replay;
mod stats;

pub use arena::BlockId;
pub use arrangement::Arrangement;
pub(crate) use caching::ADDRESS_SPACE;
pub use caching::{CachingAllocator, OutOfMemory};
pub use config::AllocatorConfig;
pub use memory_map::{BlockState, MappedBlock, Segment};
pub use parse::{ConfigError, IGNORED_KEYS};
pub use pool_kind::PoolKind;
pub(crate) use replay::Follower;
pub use replay::{ReplayOom, Replayed, Request, replay, replay_trace};
pub use stats::Stats;
