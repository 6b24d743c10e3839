//! [`Peaks`]: the peaks of every phase and the moment of the highest; [`Tally`] gathers them as phases end.

use crate::Stats;
use crate::growing::Place;
use crate::trace::{Phase, PhaseKind};

/// The peaks of a phase; what is alive when it begins counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhasePeak {
    /// The phase; of several with the same label (gradient accumulation), one entry stands for all.
    pub phase: Phase,
    /// The most that was allocated.
    pub allocated: u64,
    /// The most that was reserved.
    pub reserved: u64,
}

/// The figures of one pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Of every phase, in their order.
    pub phases: Vec<PhasePeak>,
    /// The event at which the allocated bytes are highest for the first time.
    pub place: Place,
    /// The most that was allocated.
    pub allocated: u64,
    /// The most that was reserved.
    pub reserved: u64,
    /// The most that was requested, each request rounded up to 512 bytes.
    pub rounded512: u64,
    /// What is reserved for each stream at the end.
    pub reserved_by_stream: Vec<u64>,
    /// What is allocated when the models are loaded.
    pub after_load: u64,
    /// What is allocated when the steps are over.
    pub steady_state: u64,
}

impl Peaks {
    /// The phase of the peak: the first whose own peak is the highest.
    pub fn peak_phase(&self) -> Option<Phase> {
        self.phases.iter().find(|peak| peak.allocated == self.allocated).map(|peak| peak.phase)
    }
}

/// What was reached since a phase began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// What is allocated now.
    pub allocated: u64,
    /// The most that was allocated.
    pub peak_allocated: u64,
    /// The most that was reserved.
    pub peak_reserved: u64,
    /// The most of the live requests.
    pub peak_rounded512: u64,
}

impl From<&Stats> for Reached {
    fn from(stats: &Stats) -> Self {
        Self {
            allocated: stats.allocated,
            peak_allocated: stats.peak_allocated,
            peak_reserved: stats.peak_reserved,
            peak_rounded512: stats.peak_rounded512,
        }
    }
}

/// The figures of the phases that ended, and the phase that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    running: Option<Phase>,
    peaks: Peaks,
}

impl Tally {
    /// Notes the moment of the highest peak so far; the first of equals.
    pub fn note_rise(&mut self, allocated: u64, place: Place) {
        if allocated > self.peaks.allocated {
            (self.peaks.allocated, self.peaks.place) = (allocated, place);
        }
    }

    /// A phase begins: the one before it has `reached` this.
    pub fn begin_phase(&mut self, phase: Phase, reached: Reached) {
        self.end_running(reached);
        self.running = Some(phase);
        if phase.kind == PhaseKind::End {
            self.peaks.steady_state = reached.allocated;
        }
    }

    /// The last phase ends.
    pub fn finish(mut self, reached: Reached, reserved_by_stream: Vec<u64>) -> Peaks {
        self.end_running(reached);
        Peaks { reserved_by_stream, ..self.peaks }
    }

    fn end_running(&mut self, reached: Reached) {
        let (allocated, reserved) = (reached.peak_allocated, reached.peak_reserved);
        if let Some(phase) = self.running.filter(|phase| phase.kind != PhaseKind::End) {
            if phase.kind == PhaseKind::Load {
                self.peaks.after_load = reached.allocated;
            }
            // Steps come one after another: what is of another step lies before all of this one's.
            let of_step = self.peaks.phases.iter_mut().rev().take_while(|peak| peak.phase.step == phase.step);
            match of_step.into_iter().find(|peak| peak.phase == phase) {
                Some(peak) => {
                    peak.allocated = peak.allocated.max(allocated);
                    peak.reserved = peak.reserved.max(reserved);
                }
                None => self.peaks.phases.push(PhasePeak { phase, allocated, reserved }),
            }
        }
        self.peaks.rounded512 = self.peaks.rounded512.max(reached.peak_rounded512);
        self.peaks.reserved = self.peaks.reserved.max(reserved);
    }
}
