//! What a count of a simulation's events says without a replay.

use super::SimulatedJob;
use crate::estimate::caveat::Direction;
use crate::estimate::{Engine, EstimateError, outside_bytes};
use crate::gpu::Gpu;
use crate::job::JobSpec;
use crate::trace::Phase;

/// No job of a GPU's size reserves so many times what is alive at its peak: only a caveat's share of it is counted so, and with too much a GPU
/// is replayed that need not be.
const MOST_RESERVED_OF_LIVE: u64 = 8;

impl SimulatedJob<'_> {
    /// How many events were simulated, and what a replay does one by one of tokens that grow: what a search counts.
    pub(crate) fn effort(&self) -> u64 {
        self.events().saturating_add(self.trace.replayed_one_by_one())
    }

    /// The least bytes that the job takes, from one count of its events: what is alive at the fullest moment, and the context; with the
    /// phase of that moment. `None` where `gpu`, of the job's own device, may have as much: then a replay must say.
    ///
    /// # Errors
    /// When the parameters cannot be counted.
    pub(crate) fn far_exceeds(&self, gpu: &Gpu) -> Result<Option<(u64, Phase)>, EstimateError> {
        let job = JobSpec { gpu: gpu.clone(), ..self.job.clone() };
        if Engine::of_job(&job).is_some() {
            return Ok(None);
        }
        let (live, phase) = *self.live.get_or_init(|| self.trace.most_live_bytes());
        let caveats = self.caveats(&job, live)?;
        let less = caveats.iter().filter(|caveat| caveat.direction != Direction::More);
        let less = less.map(|caveat| caveat.widens_bytes).fold(0, u64::saturating_add);
        // What a job may take less is a share of what it reserves.
        let most = less.saturating_mul(MOST_RESERVED_OF_LIVE).saturating_add(gpu.usable_bytes);
        let least = live.saturating_add(outside_bytes(gpu).low);
        Ok(phase.filter(|_| live > most).map(|phase| (least, phase)))
    }

    /// Whether verdicts on GPUs of its device take no further replay of all its events.
    pub(crate) fn is_replayed(&self) -> bool {
        self.peaks.get().is_some()
    }
}
