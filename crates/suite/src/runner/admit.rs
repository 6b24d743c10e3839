//! What may be started now: bytes of every GPU that nobody was promised, by the ledger that all of a user's runs share.

use std::path::Path;
use tonnage_core::small_sort::SmallSort;

use tonnage_run::RunError;
use tonnage_run::launch::Identity;
use tonnage_run::ledger::{Claim, Ledger};
use tonnage_run::store::RunFolder;

use super::Options;
use super::active::Active;
use crate::peaks::Peaks;
use crate::plan::{Predicted, pack_item};

/// Runs that are looked at behind the first for which there is no room.
pub(super) const LOOKAHEAD: usize = 64;

/// The GPUs of this machine.
pub(super) struct Gpus {
    ledgers: Vec<(String, Ledger)>,
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
        Ok(Self { ledgers })
    }

    /// What a run needs by its prediction, and by what earlier runs like it were measured to take.
    pub fn need_of(predicted: Option<&Predicted>, peaks: &Peaks) -> Need {
        let Some(predicted) = predicted else { return Need { gpus: 0, bytes: 0, usable: 0 } };
        Need {
            gpus: pack_item(Some(predicted)).gpus,
            bytes: peaks.promised_bytes(predicted),
            usable: predicted.usable_bytes,
        }
    }

    /// GPUs with room; none of a run that takes none. `None` where there is no room now.
    pub fn room_for(&self, need: &Need, active: &[Active]) -> Result<Option<Vec<String>>, RunError> {
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
        free.small_sort_by_key(|(room, _)| std::cmp::Reverse(*room));
        free.truncate(need.gpus);
        Ok((free.len() == need.gpus).then(|| free.into_iter().map(|(_, gpu)| gpu).collect()))
    }

    /// Promises `bytes` of each of `gpus` to a run, until its supervisor promises them itself.
    pub fn promise_bytes(&self, folder: &RunFolder, gpus: &[String], bytes: u64) -> Result<(), RunError> {
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
