//! [`Peaks`]: what runs of a configuration were measured to take beside what was predicted, and what later runs are promised for it.
//! Higher peaks count at once. Lower ones make room only when two runs came to their end with them, and never by all of what was saved.

use crate::journal::Ended;
use crate::plan::Predicted;

/// Runs that must have come to their end before a lower peak is believed: one says nothing of how runs differ.
const BELIEVED: usize = 2;
/// What is kept above the highest peak: the margin of a verdict, per cent of the peak and at least so many bytes.
const MARGIN_PERCENT: u64 = 2;
const LEAST_MARGIN: u64 = 64 << 20;

/// Peaks of a configuration's runs, on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// By how much the highest was above what was predicted, of all runs.
    above: u64,
    /// Predicted less measured, of runs that came to their end as they were planned.
    below: Vec<u64>,
    /// The highest of these, measured.
    highest: u64,
}

impl Peaks {
    /// Takes note of how a run ended.
    pub fn note_end(&mut self, end: &Ended) {
        let (Some(measured), Some(predicted)) = (end.measured_bytes, end.predicted_bytes) else { return };
        let on_a_gpu = |bytes: u64| bytes.saturating_mul(end.processes.max(1));
        self.above = self.above.max(on_a_gpu(measured.saturating_sub(predicted)));
        if end.is_whole {
            self.below.push(on_a_gpu(predicted.saturating_sub(measured)));
            self.highest = self.highest.max(on_a_gpu(measured));
        }
    }

    /// By how much more than predicted a run is to be promised.
    pub const fn more_bytes(&self) -> u64 {
        self.above
    }

    /// By how much less: what the worst of the runs saved, but for a margin and for what runs differ by.
    pub fn less_bytes(&self) -> u64 {
        let (Some(least), Some(most)) = (self.below.iter().min(), self.below.iter().max()) else { return 0 };
        if self.above > 0 || self.below.len() < BELIEVED {
            return 0;
        }
        let margin = (self.highest / 100 * MARGIN_PERCENT).max(LEAST_MARGIN);
        least.saturating_sub(margin.max(most - least))
    }

    /// What a run is promised of a GPU: what surely is enough by the prediction, and by these peaks. Never more than the GPU: alone a run
    /// may always be tried.
    pub fn promised_bytes(&self, predicted: &Predicted) -> u64 {
        // Where no size surely is enough, what was saved of it is not known either.
        let safe = match predicted.safe_bytes {
            u64::MAX => u64::MAX,
            safe => safe.saturating_add(self.above).saturating_sub(self.less_bytes()),
        };
        let least = predicted.total_bytes.saturating_add(self.above).saturating_sub(self.less_bytes());
        safe.min(predicted.usable_bytes).max(least.min(predicted.usable_bytes.max(predicted.total_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn end(predicted: u64, measured: u64, is_whole: bool) -> Ended {
        Ended {
            predicted_bytes: Some(predicted),
            measured_bytes: Some(measured),
            processes: 1,
            is_whole,
            ..Ended::default()
        }
    }

    fn predicted() -> Predicted {
        Predicted { total_bytes: 10 * GIB, safe_bytes: 11 * GIB, usable_bytes: 24 * GIB, ..Predicted::default() }
    }

    #[test]
    fn higher_peaks_count_at_once_and_lower_ones_when_two_runs_had_them() {
        let mut peaks = Peaks::default();
        assert_eq!(peaks.promised_bytes(&predicted()), 11 * GIB);
        peaks.note_end(&end(9 * GIB, 6 * GIB, false));
        peaks.note_end(&end(9 * GIB, 6 * GIB, true));
        assert_eq!(peaks.less_bytes(), 0, "one run, and one that did not come to its end");
        peaks.note_end(&end(9 * GIB, 5 * GIB, true));
        // Runs differ by a GiB, which is more than two per cent.
        assert_eq!(peaks.less_bytes(), 2 * GIB);
        assert_eq!(peaks.promised_bytes(&predicted()), 9 * GIB);
        peaks.note_end(&end(9 * GIB, 12 * GIB, false));
        assert_eq!((peaks.more_bytes(), peaks.less_bytes()), (3 * GIB, 0));
        assert_eq!(peaks.promised_bytes(&predicted()), 14 * GIB);
        peaks.note_end(&end(9 * GIB, 90 * GIB, false));
        assert_eq!(peaks.promised_bytes(&predicted()), 24 * GIB, "alone it may always be tried");
    }

    #[test]
    fn several_processes_and_unknown_sizes() {
        let mut peaks = Peaks::default();
        for _ in 0..2 {
            peaks.note_end(&Ended { processes: 4, ..end(3 * GIB, 2 * GIB, true) });
        }
        assert_eq!(peaks.less_bytes(), 4 * GIB - 8 * GIB / 100 * 2);
        let unknown = Predicted { safe_bytes: u64::MAX, ..predicted() };
        assert_eq!(peaks.promised_bytes(&unknown), 24 * GIB, "no size surely is enough: the whole GPU");
        peaks.note_end(&Ended::default());
        assert_eq!(peaks.more_bytes(), 0, "what was not measured says nothing");
    }
}
