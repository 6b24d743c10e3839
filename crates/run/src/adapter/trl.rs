//! TRL's flags on top of the Trainer's: what its `GRPOConfig` adds.

use std::path::Path;
use tonnage_core::job::keys;
use tonnage_core::job::keys::GRPO_STEPS_PER_GENERATION;

use super::{Adapter, flags};
use crate::RunError;

pub(super) static TRL: Adapter = Adapter { name: "TRL", matches: is_trl, set: set_argument, finish: |_, _| {} };

fn is_trl(argv: &[String]) -> bool {
    flags::has_flag(argv, &["--num_generations", "--max_completion_length", "--steps_per_generation"])
        || argv.first().is_some_and(|word| word.rsplit('/').next() == Some("trl"))
}

fn set_argument(argv: &mut Vec<String>, key: &str, value: &str, _folder: &Path) -> Result<bool, RunError> {
    let flag = match key {
        GRPO_STEPS_PER_GENERATION => "--steps_per_generation",
        keys::NUM_GENERATIONS => "--num_generations",
        keys::COMPLETION_LEN => "--max_completion_length",
        _ => return Ok(false),
    };
    // Given the size of the generated batch itself, GRPOConfig refuses the number of steps beside it.
    if flag == "--steps_per_generation" && flags::has_flag(argv, &["--generation_batch_size"]) {
        return Ok(true);
    }
    flags::set_flag(argv, flag, value);
    Ok(true)
}
