//! Options of launchers: torchrun, `accelerate launch`, deepspeed.

use tonnage_core::job::keys;

use super::words::{LAUNCH, LOGS};
use crate::facts::Facts;
use crate::rule::Rule::{Free, Reads};
use crate::rule::{Became, Row, Said};

/// Every option that is known, under each way of writing it.
pub const ROWS: &[Row] = &[
    ("nproc_per_node", Reads(per_node)),
    ("nproc-per-node", Reads(per_node)),
    ("nnodes", Reads(node_count)),
    ("num_processes", Reads(process_count)),
    ("num_gpus", Reads(per_node)),
    ("num_nodes", Reads(node_count)),
    ("multi_gpu", Free("more than one process: `num_processes` says how many")),
    ("num_machines", Free("processes of all machines are counted")),
    ("mixed_precision", Reads(super::accelerate::mixed_precision)),
    ("gradient_accumulation_steps", Reads(super::trainer::accumulation_steps)),
    ("include", Reads(included_gpus)),
    ("config_file", Reads(config_file)),
    ("node_rank", Free(LAUNCH)),
    ("machine_rank", Free(LAUNCH)),
    ("master_addr", Free(LAUNCH)),
    ("master_port", Free(LAUNCH)),
    ("main_process_ip", Free(LAUNCH)),
    ("main_process_port", Free(LAUNCH)),
    ("rdzv_backend", Free(LAUNCH)),
    ("rdzv_endpoint", Free(LAUNCH)),
    ("rdzv_id", Free(LAUNCH)),
    ("rdzv_conf", Free(LAUNCH)),
    ("standalone", Free(LAUNCH)),
    ("max_restarts", Free(LAUNCH)),
    ("hostfile", Free(LAUNCH)),
    ("use_env", Free(LAUNCH)),
    ("module", Free(LAUNCH)),
    ("gpu_ids", Free(LAUNCH)),
    ("num_cpu_threads_per_process", Free(LAUNCH)),
    ("dynamo_backend", Reads(super::accelerate::dynamo_backend)),
    ("redirects", Free(LOGS)),
    ("tee", Free(LOGS)),
    ("log_dir", Free(LOGS)),
    ("log-dir", Free(LOGS)),
    ("role", Free(LAUNCH)),
    ("local-ranks-filter", Free(LOGS)),
    ("u", Free(LOGS)),
];

fn size_said(said: &Said<'_>, key: &str) -> u64 {
    let value = said.other(key).or_else(|| said.other(&key.replace('_', "-")));
    value.and_then(|value| value.as_u64()).unwrap_or(1).max(1)
}

fn per_node(facts: &mut Facts, said: &Said<'_>) -> Became {
    let nodes = size_said(said, "nnodes").max(size_said(said, "num_nodes"));
    match said.value.as_u64() {
        Some(of_node) => {
            facts.set_text(keys::WORLD_SIZE, of_node.saturating_mul(nodes), said.place);
            Became::Used(keys::WORLD_SIZE)
        }
        None => unknown_count(said),
    }
}

fn node_count(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        // With the processes of a node it was counted already, or is counted with them.
        Some(nodes) => {
            let of_node = size_said(said, "nproc_per_node").max(size_said(said, "num_gpus"));
            facts.set_text(keys::WORLD_SIZE, nodes.saturating_mul(of_node), said.place);
            Became::Used(keys::WORLD_SIZE)
        }
        None => unknown_count(said),
    }
}

pub(super) fn process_count(facts: &mut Facts, said: &Said<'_>) -> Became {
    match said.value.as_u64() {
        Some(_) => facts.set_key(keys::WORLD_SIZE, said.value, said.place),
        None => unknown_count(said),
    }
}

/// A number that a variable or the machine decides.
fn unknown_count(_: &Said<'_>) -> Became {
    let text = "how many processes there are is not said as a number: say --world-size";
    Became::Noted(text.to_owned(), tonnage_core::job::Allowance::Unknown)
}

/// DeepSpeed's `localhost:0,1,2,3`.
fn included_gpus(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    let ranks: usize = word.split('@').map(|node| node.rsplit(':').next().unwrap_or_default().split(',').count()).sum();
    facts.set_text(keys::WORLD_SIZE, ranks, said.place);
    Became::Used(keys::WORLD_SIZE)
}

fn config_file(facts: &mut Facts, said: &Said<'_>) -> Became {
    facts.became_named(said, "accelerate's config")
}
