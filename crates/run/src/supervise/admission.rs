//! Admission: a run's predicted bytes in the ledgers of its GPUs.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use tonnage_core::record::RunRecord;

use crate::RunError;
use crate::launch::Identity;
use crate::ledger::{Claim, Full, Ledger};

/// The GPUs of a run, and their ledgers.
pub(super) struct Admission {
    run: String,
    folder: PathBuf,
    /// Each with the nodes on it; none where there is no job, whose bytes nobody knows.
    ledgers: Vec<(Ledger, Vec<usize>)>,
    /// Whether something was claimed.
    claims: Cell<bool>,
}

/// What other runs have of the fullest GPU.
pub(super) struct Taken {
    pub bytes: u64,
    /// Runs among them whose supervisor died, and whose processes live.
    pub abandoned: Vec<String>,
}

impl Admission {
    /// The ledgers below `root` of the GPUs that `run`, in `folder`, uses; `ranks` of a plain command take a GPU each. `None`
    /// is a run without a job.
    pub fn open(root: &Path, folder: &Path, run: &RunRecord, ranks: Option<u64>) -> Result<Self, RunError> {
        let gpus = ranks.map_or_else(Vec::new, |ranks| gpus_of_nodes(run, ranks));
        let open = |(gpu, nodes): (String, Vec<usize>)| Ok((Ledger::of_gpu(root, &gpu)?, nodes));
        let ledgers = gpus.into_iter().map(open).collect::<Result<_, RunError>>()?;
        Ok(Self { run: run.id.clone(), folder: folder.to_owned(), ledgers, claims: Cell::new(false) })
    }

    /// A run that promises nothing, where nothing can be promised.
    pub fn none(run: &RunRecord) -> Self {
        Self { run: run.id.clone(), folder: PathBuf::new(), ledgers: Vec::new(), claims: Cell::new(false) }
    }

    /// What other runs have of the fullest of these GPUs.
    pub fn taken(&self) -> Result<Taken, RunError> {
        let mut taken = Taken { bytes: 0, abandoned: Vec::new() };
        for (ledger, _) in &self.ledgers {
            let others = ledger.claims()?.into_iter().filter(|claim| claim.run != self.run);
            let others: Vec<Claim> = others.collect();
            taken.bytes = taken.bytes.max(others.iter().map(|claim| claim.bytes).sum());
            let dead = others.into_iter().filter(|claim| !claim.is_supervised()).map(|claim| claim.run);
            taken.abandoned.extend(dead);
        }
        taken.abandoned.small_sort();
        taken.abandoned.dedup();
        Ok(taken)
    }

    /// Claims `total` of each GPU's `usable` bytes, divided among the nodes on it; gives all back where one GPU is full.
    pub fn claim(&self, total: u64, usable: u64) -> Result<Result<(), Full>, RunError> {
        let own = Identity::of(std::process::id().cast_signed()).ok_or(RunError::NoProc)?;
        let most = self.ledgers.iter().map(|(_, nodes)| nodes.len() as u64).max().unwrap_or(1).max(1);
        for (ledger, nodes) in &self.ledgers {
            let claim = |node: &usize| Claim {
                run: self.run.clone(),
                node: *node,
                bytes: total / most,
                pid: own.pid,
                began: own.began,
                folder: self.folder.clone(),
            };
            let claims: Vec<Claim> = nodes.iter().map(claim).collect();
            self.claims.set(true);
            if let Err(full) = ledger.claim(&claims, usable)? {
                self.release()?;
                return Ok(Err(full));
            }
        }
        Ok(Ok(()))
    }

    /// Gives everything back.
    pub fn release(&self) -> Result<(), RunError> {
        if !self.claims.replace(false) {
            return Ok(());
        }
        self.ledgers.iter().try_for_each(|(ledger, _)| ledger.release(&self.run, None))
    }
}

/// The GPUs, each with the nodes on it: those the nodes name, or the visible ones.
fn gpus_of_nodes(run: &RunRecord, ranks: u64) -> Vec<(String, Vec<usize>)> {
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
