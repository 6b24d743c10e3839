//! The driver API (libcuda), as far as PyTorch, Triton and Python's CUDA bindings reach it: by linking, by `dlsym`, and by
//! `cuGetProcAddress`. What is not here is not found by name, which is how an older driver answers.

mod context;
mod device;
mod launch;
mod memory;
mod modules;
mod streams;
mod virtual_memory;
