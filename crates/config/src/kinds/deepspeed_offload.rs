//! DeepSpeed's `offload_optimizer`, which stages 1 and 2 are simulated with.

use tonnage_core::job::{Allowance, keys};

use super::words::{OFFLOAD, TIMES};
use crate::facts::Facts;
use crate::rule::Rule::{Free, Reads};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{find_entry, is_null, is_on, plain_text};

/// What an offload's path says.
pub(super) const OFFLOADED_TO: &str = "where it is offloaded to";

pub(super) const OFFLOADED_STATES: &[Row] = &[
    ("device", Reads(offload_states)),
    ("pin_memory", Reads(pin_states)),
    ("nvme_path", Free(OFFLOADED_TO)),
    ("buffer_count", Free("buffers of the host")),
    ("buffer_size", Free("buffers of the host")),
    ("max_in_cpu", Free("buffers of the host")),
    ("fast_init", Free(TIMES)),
    ("pipeline", Free(TIMES)),
    ("pipeline_read", Free(TIMES)),
    ("pipeline_write", Free(TIMES)),
    ("ratio", Free("how much of it: only stage 3 reads it")),
    ("super_offload", Free("only stage 3 reads it")),
    ("cpuadam_cores_perc", Free("which processor cores")),
];

/// A device that something is offloaded to.
pub(super) fn offload_device(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "none" | "null" | "" | "false" => Became::NoMemory(OFF),
        _ => Became::Noted(OFFLOAD.to_owned(), Allowance::Less),
    }
}

/// The device of the optimizer's states: on the CPU at stages 1 and 2 it is simulated.
pub(super) fn offload_states(facts: &mut Facts, said: &Said<'_>) -> Became {
    let zero = find_entry(said.file, "zero_optimization").map(|entry| entry.node.value());
    let stage = zero.and_then(|zero| zero.get("stage").cloned()).or_else(|| said.other("zero_stage"));
    if said.word() != "cpu" || !stage.is_some_and(|stage| matches!(plain_text(&stage).as_str(), "1" | "2")) {
        return offload_device(facts, said);
    }
    facts.set_text(keys::DEEPSPEED_OFFLOAD_OPTIMIZER, true, said.place);
    Became::Used(keys::DEEPSPEED_OFFLOAD_OPTIMIZER)
}

/// Whether they are pinned, where they are simulated to lie there.
fn pin_states(facts: &mut Facts, said: &Said<'_>) -> Became {
    let device = Said { value: &said.other("device").unwrap_or_default(), ..*said };
    if is_null(said.value) || !matches!(offload_states(facts, &device), Became::Used(_)) {
        return Became::NoMemory("how the host holds what is offloaded");
    }
    facts.set_text(keys::DEEPSPEED_OFFLOAD_PIN_MEMORY, is_on(said.value), said.place);
    Became::Used(keys::DEEPSPEED_OFFLOAD_PIN_MEMORY)
}
