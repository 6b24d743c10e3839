//! What may be started now: bytes of every GPU that nobody was promised, by the ledger that all of a user's runs share.

use std::collections::HashMap;
use std::path::Path;

use tonnage_run::RunError;
use tonnage_run::launch::Identity;
use tonnage_run::ledger::{Claim, Ledger};
use tonnage_run::store::RunFolder;

use super::Options;
use super::active::Active;
use crate::pack::Item;
use crate::plan::Predicted;

/// Runs that are looked at behind the first for which there is no room.
pub(super) const LOOKAHEAD: usize = 64;

/// The GPUs of this machine.
pub(super) struct Gpus {
    ledgers: Vec<(String, Ledger)>,
    /// By how much peaks of a configuration's earlier runs were above what was predicted.
    above: HashMap<String, u64>,
}

/// What a run needs.
pub(super) struct Need {
    pub gpus: usize,
    pub bytes: u64,
    pub usable: u64,
}

impl Gpus {
    pub fn open(root: &Path, options: &Options) -> Result<Self, RunError> {
        let ledger = |gpu: &String| Ok((gpu.clone(), Ledger::of_gpu(root, gpu)?));
        let ledgers = options.gpus.iter().map(ledger).collect::<Result<_, RunError>>()?;
        Ok(Self { ledgers, above: HashMap::new() })
    }

    /// What a run of `configuration` needs, by its prediction and by what earlier runs of it were measured to take.
    pub fn need(&self, item: &Item, predicted: Option<&Predicted>, configuration: &str) -> Need {
        let more = self.above.get(configuration).copied().unwrap_or(0);
        let usable = predicted.map_or(0, |predicted| predicted.usable_bytes);
        // It never needs more than a whole GPU: alone it may always be tried.
        let bytes = item.bytes.saturating_add(more).min(usable.max(item.bytes));
        Need { gpus: if predicted.is_some() { item.gpus } else { 0 }, bytes, usable }
    }

    /// What a run was measured to take counts for later ones of its configuration.
    pub fn learn(&mut self, configuration: &str, measured: Option<u64>, predicted: Option<u64>) {
        if let (Some(measured), Some(predicted)) = (measured, predicted) {
            let above = self.above.entry(configuration.to_owned()).or_default();
            *above = (*above).max(measured.saturating_sub(predicted));
        }
    }

    /// GPUs with room; none of a run that takes none. `None` where there is no room now.
    pub fn room(&self, need: &Need, active: &[Active]) -> Result<Option<Vec<String>>, RunError> {
        if need.gpus == 0 {
            return Ok(Some(Vec::new()));
        }
        let mut free = Vec::new();
        for (gpu, ledger) in &self.ledgers {
            let mine: Vec<&Active> = active.iter().filter(|one| one.gpus.contains(gpu)).collect();
            let others =
                ledger.claims()?.into_iter().filter(|claim| mine.iter().all(|one| one.folder.id() != claim.run));
            let taken: u64 = others.map(|claim| claim.bytes).chain(mine.iter().map(|one| one.bytes)).sum();
            let room = need.usable.saturating_sub(taken);
            if room >= need.bytes {
                free.push((room, gpu.clone()));
            }
        }
        free.sort_by_key(|(room, _)| std::cmp::Reverse(*room));
        free.truncate(need.gpus);
        Ok((free.len() == need.gpus).then(|| free.into_iter().map(|(_, gpu)| gpu).collect()))
    }

    /// Promises `bytes` of each of `gpus` to a run, until its supervisor promises them itself.
    pub fn promise(&self, folder: &RunFolder, gpus: &[String], bytes: u64) -> Result<(), RunError> {
        let own = Identity::of(std::process::id().cast_signed()).ok_or(RunError::NoProc)?;
        let claim = Claim {
            run: folder.id().to_owned(),
            node: 0,
            bytes,
            pid: own.pid,
            began: own.began,
            folder: folder.path().to_owned(),
        };
        for (_, ledger) in self.ledgers.iter().filter(|(gpu, _)| gpus.contains(gpu)) {
            // That there is room was seen; whoever came between is seen by the supervisor's own preflight.
            if ledger.claim(std::slice::from_ref(&claim), u64::MAX)?.is_err() {
                break;
            }
        }
        Ok(())
    }
}
