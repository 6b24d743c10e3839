//! The programs whose configs are read: a file each, which says what becomes of every key.

pub mod accelerate;
pub mod axolotl;
mod axolotl_values;
pub mod deepspeed;
mod deepspeed_offload;
pub mod fsdp;
pub mod grpo;
mod images;
pub mod launch;
pub mod llama_factory;
pub mod llama_factory_v1;
pub mod openrlhf;
pub mod optimizer;
pub mod peft;
pub mod preference;
pub mod python;
pub mod quantized;
mod target_pattern;
pub mod torchtitan;
pub mod trainer;
pub mod trl;
pub mod verl;
pub mod verl_workers;
pub mod words;
