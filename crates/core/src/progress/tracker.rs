//! [`Tracker`]: the progress of an attempt, from all that its lines say. Several things may be counted at once (a training's bar,
//! an evaluation's inside it); the one that was there first and is not over is the training.

use super::{Progress, Said, Unit, progress_in_line};

/// So many things are told apart; the oldest that is over makes room.
const MOST: usize = 8;
/// Steps that take less than this together are no steps of a training, in milliseconds.
const LEAST_MS: u64 = 50;

/// Something that is counted.
#[derive(Clone, Debug)]
struct Series {
    last: Progress,
    is_certain: bool,
    is_bar: bool,
    /// Steps that it was seen to make, and how often it was seen to rise.
    made: u64,
    rises: u64,
    first_ms: u64,
    last_ms: u64,
}

/// What was read of an attempt's lines.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    all: Vec<Series>,
}

impl Tracker {
    /// Reads a whole line that came at `at_ms`, on any clock that does not go back.
    pub fn read_line(&mut self, line: &str, at_ms: u64) {
        if let Some(said) = progress_in_line(line) {
            self.take_said(&said, at_ms);
        }
    }

    /// Reads a last line without an end; where more may come, only what is whole by itself.
    pub fn read_rest(&mut self, rest: &str, at_ms: u64, is_final: bool) {
        if let Some(said) = progress_in_line(rest).filter(|said| is_final || said.is_bar) {
            self.take_said(&said, at_ms);
        }
    }

    fn take_said(&mut self, said: &Said, at_ms: u64) {
        let Some(series) = self.all.iter_mut().find(|series| series.is_of(said)) else {
            if self.all.len() >= MOST {
                let over = self.all.iter().position(Series::is_over).unwrap_or(0);
                self.all.remove(over);
            }
            self.all.push(Series::new(said, at_ms));
            return;
        };
        series.take_said(said, at_ms);
    }

    fn current_series(&self) -> Option<&Series> {
        let known = || self.all.iter().filter(|series| series.is_known());
        let counted = |series: &&Series| series.last.total.is_some();
        // An epoch that is counted by itself says least.
        let fine = |series: &&Series| series.last.unit != Unit::Epoch;
        known()
            .filter(counted)
            .filter(fine)
            .find(|series| !series.is_over())
            .or_else(|| known().filter(counted).find(|series| !series.is_over()))
            .or_else(|| known().filter(fine).rfind(|series| series.last.total.is_none()))
            .or_else(|| known().next_back())
    }

    /// Where the training is.
    pub fn progress(&self) -> Option<Progress> {
        let current = self.current_series()?;
        let mut progress = current.last;
        // `Epoch 2/5` on a line of its own, and a bar in the epoch.
        let epoch = self.all.iter().rfind(|series| series.last.unit == Unit::Epoch && series.last.total.is_some());
        if let Some(epoch) = epoch.filter(|_| progress.unit == Unit::Batch && progress.epoch.is_none()) {
            (progress.epoch, progress.epochs) = (Some(epoch.last.step), epoch.last.total);
        }
        Some(progress)
    }

    /// Steps of the training that this attempt was seen to make; `None` where they were not seen to rise, in time that
    /// steps take.
    pub fn steps_made(&self) -> Option<u64> {
        let series = self.current_series().filter(|series| !series.is_over() || series.last.epoch.is_some())?;
        let rose = series.rises >= 2 || (series.is_bar && series.rises >= 1);
        (rose && series.last_ms.saturating_sub(series.first_ms) >= LEAST_MS).then_some(series.made)
    }
}

impl Series {
    const fn new(said: &Said, at_ms: u64) -> Self {
        Self {
            last: said.progress,
            is_certain: said.is_certain,
            is_bar: said.is_bar,
            made: 0,
            rises: 0,
            first_ms: at_ms,
            last_ms: at_ms,
        }
    }

    /// A bar is told from another by its total.
    fn is_of(&self, said: &Said) -> bool {
        let (old, new) = (&self.last, &said.progress);
        self.is_bar == said.is_bar && old.unit == new.unit && (!self.is_bar || old.total == new.total)
    }

    fn take_said(&mut self, said: &Said, at_ms: u64) {
        let (old, new) = (self.last, said.progress);
        if new.epoch > old.epoch || new.step > old.step {
            self.rises += 1;
            // In a new epoch, batches are counted from the beginning.
            self.made += if new.epoch > old.epoch { new.step.max(1) } else { new.step - old.step };
        } else if new.step < old.step && !self.is_bar {
            // It began anew: what it made before is no evidence of what it makes now.
            (self.made, self.rises, self.first_ms) = (0, 0, at_ms);
        }
        self.last = Progress { total: new.total.or(old.total), epochs: new.epochs.or(old.epochs), ..new };
        self.is_certain |= said.is_certain;
        self.last_ms = at_ms;
    }

    const fn is_known(&self) -> bool {
        self.is_certain || self.rises > 0
    }

    fn is_over(&self) -> bool {
        let counted = self.last.total.is_some_and(|total| self.last.step >= total);
        counted && self.last.epochs.is_none_or(|epochs| self.last.epoch.is_some_and(|epoch| epoch >= epochs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracked(lines: &[&str], ms: u64) -> Tracker {
        let mut tracker = Tracker::default();
        for (at, line) in lines.iter().enumerate() {
            tracker.read_line(line, at as u64 * ms);
        }
        tracker
    }

    #[test]
    fn steps_count_when_they_rise_in_time() {
        let lines = ["STEP 1 rows 32", "STEP 2 rows 32", "STEP 3 rows 32", "STEP 4 rows 32"];
        let slow = tracked(&lines, 100);
        assert_eq!((slow.progress().map(|p| p.step), slow.steps_made()), (Some(4), Some(3)));
        assert_eq!(tracked(&lines, 0).steps_made(), None, "four lines in no time are no steps");
        assert_eq!(tracked(&lines[..1], 100).progress(), None, "one line without a total may be anything");
    }

    #[test]
    fn a_resumed_training_made_what_it_made_since() {
        let tracker = tracked(&["step 501/1000", "step 502/1000", "step 503/1000"], 100);
        assert_eq!((tracker.progress().map(|p| p.step), tracker.steps_made()), (Some(503), Some(2)));
    }

    #[test]
    fn an_evaluations_bar_is_not_the_training() {
        let bar = |step: u64, total: u64| format!("{}%|##| {step}/{total} [00:01<00:01, 1.0it/s]", step * 100 / total);
        let lines = [bar(0, 500), bar(100, 500), bar(0, 50), bar(50, 50), bar(110, 500), bar(20, 50)];
        let tracker = tracked(&lines.each_ref().map(String::as_str), 100);
        assert_eq!(tracker.progress().map(|p| (p.step, p.total)), Some((110, Some(500))));
        assert_eq!(tracker.steps_made(), Some(110));
    }

    #[test]
    fn a_loop_before_the_training_is_no_evidence() {
        let lines = ["100%|##| 1000/1000 [00:01<00:00, 900.0it/s]"; 2];
        assert_eq!(tracked(&["10%|#| 100/1000 [00:01<00:00, 900.0it/s]", lines[0], lines[1]], 100).steps_made(), None);
    }

    #[test]
    fn rounds_with_bars_in_them_are_rounds() {
        let lines = [
            "round 1/2000",
            "100%|##| 8/8 [00:01<00:00, 9.0it/s]",
            "round 2/2000",
            "50%|#| 4/8 [00:01<00:01, 9.0it/s]",
        ];
        assert_eq!(tracked(&lines, 100).progress().map(|p| (p.unit, p.step)), Some((Unit::Round, 2)));
    }

    #[test]
    fn epochs_of_their_own_lines_are_joined_to_batches() {
        let lines = ["Epoch 1/5", "100/100 [====] - loss: 0.3", "Epoch 2/5", "10/100 [=>..] - loss: 0.3"];
        let found = tracked(&lines, 100).progress().unwrap();
        assert_eq!((found.step, found.epoch, found.epochs), (10, Some(2), Some(5)));
        let lines = ["Epoch 1 Batch 99/100", "Epoch 1 Batch 100/100", "Epoch 2 Batch 1/100"];
        assert_eq!(tracked(&lines, 100).steps_made(), Some(2));
    }
}
