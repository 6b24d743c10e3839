//! PyTorch's CUDA caching allocator, block by block; it knows bytes and nothing else.

mod config;

pub use config::AllocatorConfig;
