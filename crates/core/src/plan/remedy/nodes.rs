//! Processes that share a GPU.

use super::{Applied, Declined, Remedy, Results, already_done, change_one, not_for};
use crate::job::keys;
use crate::job::{JobSpec, SwarmSpec};
use crate::plan::fit::verdict_on;

fn shared_gpu(job: &JobSpec) -> Result<&SwarmSpec, Declined> {
    match job.task.swarm() {
        Some(swarm) if swarm.nodes > swarm.gpus => Ok(swarm),
        _ => Err(Declined::NotApplicable("no processes share a GPU")),
    }
}

pub(super) const LEASE: Remedy = Remedy {
    name: "lease",
    text: "let one node of a GPU train at a time while the others generate",
    results: Results::Same,
    caution: "waiting for the lease while a GPU has nothing else to run is not in the factor",
    apply: |job| match shared_gpu(job)? {
        swarm if swarm.lease == Some(1) => already_done("one node trains at a time already"),
        swarm if !swarm.empty_cache => not_for("nodes that keep their cache give nothing back between turns"),
        _ => change_one(keys::SWARM_LEASE, "1"),
    },
};

pub(super) const FEWER: Remedy = Remedy {
    name: "fewer_nodes",
    text: "run as many nodes as fit, or half as many where all do",
    results: Results::Changed,
    caution: "the factor is a round's: each node sees more of the GPU, the swarm has fewer",
    apply: fewer_nodes,
};

/// The most nodes that surely fit; at least one a GPU, for which other remedies must then do.
fn fewer_nodes(job: &JobSpec) -> Applied {
    let swarm = shared_gpu(job)?;
    let verdict = verdict_on(job, &job.gpu).map_err(|error| Declined::Refused(error.to_string()))?;
    let each = verdict.room.iter().find(|room| room.lease == swarm.lease).map_or(0, |room| room.processes);
    let most = each.max(1).saturating_mul(swarm.gpus);
    let nodes = if most < swarm.nodes { most } else { (swarm.nodes / 2).max(1) };
    change_one(keys::SWARM_NODES, nodes.to_string())
}
