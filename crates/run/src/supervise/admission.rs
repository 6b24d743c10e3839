//! Admission: a run's predicted bytes in the ledgers of its GPUs.

use std::path::Path;

use tonnage_core::record::RunRecord;

use crate::RunError;
use crate::launch::Identity;
use crate::ledger::{Claim, Full, Ledger};

/// The GPUs of a run, and their ledgers.
pub(super) struct Admission {
    run: String,
    /// Each with the nodes on it.
    ledgers: Vec<(Ledger, Vec<usize>)>,
}

impl Admission {
    /// The ledgers below `root` of the GPUs that `run` uses; `ranks` of a plain command take a GPU each.
    pub fn open(root: &Path, run: &RunRecord, ranks: u64) -> Result<Self, RunError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let gpus = gpus(run, ranks);
        let open =
            |(gpu, nodes): (String, Vec<usize>)| Ok((Ledger::open(root, &format!("{}-{gpu}", host.trim()))?, nodes));
        Ok(Self { run: run.id.clone(), ledgers: gpus.into_iter().map(open).collect::<Result<_, RunError>>()? })
    }

    /// What other runs have of the fullest of these GPUs.
    pub fn taken(&self) -> Result<u64, RunError> {
        let mut most = 0;
        for (ledger, _) in &self.ledgers {
            let others = ledger.claims()?.into_iter().filter(|claim| claim.run != self.run);
            most = most.max(others.map(|claim| claim.bytes).sum());
        }
        Ok(most)
    }

    /// Claims `total` of each GPU's `usable` bytes, divided among the nodes on it; gives all back where one GPU is full.
    pub fn claim(&self, total: u64, usable: u64) -> Result<Result<(), Full>, RunError> {
        let own = Identity::of(std::process::id().cast_signed());
        let own = own.ok_or_else(|| RunError::Missing("/proc cannot be read".to_owned()))?;
        let most = self.ledgers.iter().map(|(_, nodes)| nodes.len() as u64).max().unwrap_or(1).max(1);
        for (ledger, nodes) in &self.ledgers {
            let claim = |node: &usize| Claim {
                run: self.run.clone(),
                node: *node,
                bytes: total / most,
                pid: own.pid,
                began: own.began,
            };
            let claims: Vec<Claim> = nodes.iter().map(claim).collect();
            if let Err(full) = ledger.claim(&claims, usable)? {
                self.release()?;
                return Ok(Err(full));
            }
        }
        Ok(Ok(()))
    }

    /// Gives everything back.
    pub fn release(&self) -> Result<(), RunError> {
        self.ledgers.iter().try_for_each(|(ledger, _)| ledger.release(&self.run, None))
    }
}

/// The GPUs, each with the nodes on it: those the nodes name, or the visible ones.
fn gpus(run: &RunRecord, ranks: u64) -> Vec<(String, Vec<usize>)> {
    let mut gpus: Vec<(String, Vec<usize>)> = Vec::new();
    for (index, gpu) in run.nodes.iter().enumerate().filter_map(|(index, node)| Some((index, node.gpu.clone()?))) {
        match gpus.iter_mut().find(|(name, _)| *name == gpu) {
            Some((_, nodes)) => nodes.push(index),
            None => gpus.push((gpu, vec![index])),
        }
    }
    if !gpus.is_empty() {
        return gpus;
    }
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let visible: Vec<String> =
        visible.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let name = |rank: u64| usize::try_from(rank).ok().and_then(|at| visible.get(at).cloned());
    (0..ranks.max(1)).map(|rank| (name(rank).unwrap_or_else(|| rank.to_string()), vec![0])).collect()
}
