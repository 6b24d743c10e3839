//! Runs a job on abstract tensors, phase by phase, and records its trace.

mod agi2;
mod cache_growth;
mod cache_position;
mod calls;
mod dpo;
mod fine_tune;
mod fused_head;
mod generate;
mod generation_config;
mod grpo;
mod hrm;
mod infer;
mod inputs;
mod liger;
mod loading;
mod models;
mod prepared;
mod repeat;
mod repetition;
mod sampling;
mod schedule;
mod settled;
mod simulate;
mod simulation;
mod swarm;
mod tokens;
mod train;
mod trainer;

pub(crate) use fine_tune::{TrainingLoop, training_loop};
pub use grpo::simulate_judge;
pub use models::parameter_count;
pub use repetition::Repetition;
pub use settled::WANDERING_ALLOWANCE;
pub use simulate::{simulate, simulate_with_other_devices};
pub use simulation::{SimulateError, Simulation};
