//! DeepSpeed's `offload_optimizer`, and `offload_param` of stage 3.

use tonnage_core::job::{Allowance, keys};

use super::words::{OFFLOAD, TIMES};
use crate::facts::Facts;
use crate::rule::Rule::{self, Free, Reads};
use crate::rule::{Became, OFF, Row, Said};
use crate::tree::{find_entry, is_null, is_on, plain_text};

const OF_STATES: &str = "only offload_optimizer has it";
/// What an offload's path says.
pub(super) const OFFLOADED_TO: &str = "where it is offloaded to";

pub(super) const OFFLOADED_STATES: &[Row] = &rows(
    [Reads(offload_states), Reads(pin_states)],
    ["how much of it: below 1 all is counted on the GPU", "another way to step: all is counted on the GPU"],
);

pub(super) const OFFLOADED_PARAMS: &[Row] = &rows([Reads(offload_params), Reads(pin_params)], [OF_STATES, OF_STATES]);

/// The rows of either, which differ in what reads them and in why `ratio` and `super_offload` need not be read.
const fn rows([device, pin_memory]: [Rule; 2], [ratio, super_offload]: [&'static str; 2]) -> [Row; 13] {
    [
        ("device", device),
        ("pin_memory", pin_memory),
        ("nvme_path", Free(OFFLOADED_TO)),
        ("buffer_count", Free("buffers of the host")),
        ("buffer_size", Free("buffers of the host")),
        ("max_in_cpu", Free("buffers of the host")),
        ("fast_init", Free(TIMES)),
        ("pipeline", Free(TIMES)),
        ("pipeline_read", Free(TIMES)),
        ("pipeline_write", Free(TIMES)),
        ("ratio", Free(ratio)),
        ("super_offload", Free(super_offload)),
        ("cpuadam_cores_perc", Free("which processor cores")),
    ]
}

/// A device that something is offloaded to.
pub(super) fn offload_device(_: &mut Facts, said: &Said<'_>) -> Became {
    match said.word().as_str() {
        "none" | "null" | "" | "false" => Became::NoMemory(OFF),
        _ => Became::Noted(OFFLOAD.to_owned(), Allowance::Less),
    }
}

/// The stage of ZeRO, in a file of DeepSpeed's or of accelerate's.
fn stage_of(said: &Said<'_>) -> String {
    let zero = find_entry(said.file, "zero_optimization").map(|entry| entry.node.value());
    let stage = zero.and_then(|zero| zero.get("stage").cloned()).or_else(|| said.other("zero_stage"));
    stage.map(|stage| plain_text(&stage)).unwrap_or_default()
}

/// Whether every step is taken on the host: stage 3 leaves what is beyond `ratio` on the GPU, and `super_offload` steps otherwise.
fn steps_all_on_host(said: &Said<'_>, stage: &str) -> bool {
    let leaves_some = said.other("ratio").is_some_and(|ratio| ratio.as_f64() != Some(1.0));
    matches!(stage, "1" | "2") || (stage == "3" && !leaves_some && !said.other_is_on("super_offload"))
}

/// The device of the optimizer's states: on the CPU it is simulated.
pub(super) fn offload_states(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.word() != "cpu" || !steps_all_on_host(said, &stage_of(said)) {
        return offload_device(facts, said);
    }
    facts.set_text(keys::DEEPSPEED_OFFLOAD_OPTIMIZER, true, said.place);
    Became::Used(keys::DEEPSPEED_OFFLOAD_OPTIMIZER)
}

/// The device of weights that nothing gathers: on the CPU at stage 3 it is simulated.
pub(super) fn offload_params(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.word() != "cpu" || stage_of(said) != "3" {
        return offload_device(facts, said);
    }
    facts.set_text(keys::DEEPSPEED_OFFLOAD_PARAM, true, said.place);
    Became::Used(keys::DEEPSPEED_OFFLOAD_PARAM)
}

fn pin_states(facts: &mut Facts, said: &Said<'_>) -> Became {
    pin(facts, said, (offload_states, keys::DEEPSPEED_OFFLOAD_PIN_MEMORY))
}

fn pin_params(facts: &mut Facts, said: &Said<'_>) -> Became {
    pin(facts, said, (offload_params, keys::DEEPSPEED_OFFLOAD_PARAM_PIN_MEMORY))
}

/// Whether something is pinned, where it is simulated to lie on the host.
fn pin(
    facts: &mut Facts,
    said: &Said<'_>,
    (offload, key): (fn(&mut Facts, &Said<'_>) -> Became, &'static str),
) -> Became {
    let device = Said { value: &said.other("device").unwrap_or_default(), ..*said };
    if is_null(said.value) || !matches!(offload(facts, &device), Became::Used(_)) {
        return Became::NoMemory("how the host holds what is offloaded");
    }
    facts.set_text(key, is_on(said.value), said.place);
    Became::Used(key)
}
