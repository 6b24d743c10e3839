//! Early stopping: how long nothing has become better.

use serde::{Deserialize, Serialize};

/// What is kept of losses, by which a training ends early.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Patience {
    /// The lowest loss; `None` before there is any.
    best: Option<f64>,
    /// Losses since then.
    without_gain: u64,
    /// Of the epoch that runs: the sum of its steps' losses, and how many they are.
    sum: f64,
    steps: u64,
    /// Whether it has ended for that.
    pub is_over: bool,
}

impl Patience {
    /// Adds a step's loss to its epoch.
    pub fn step(&mut self, loss: f64) {
        self.sum += loss;
        self.steps += 1;
    }

    /// Ends an epoch, whose mean loss counts.
    pub fn epoch(&mut self, most: u64) -> bool {
        let mean = self.sum / self.steps.max(1) as f64;
        (self.sum, self.steps) = (0.0, 0);
        self.loss(mean, most)
    }

    /// Takes a loss; whether `most` in a row were no lower than the lowest before them.
    pub fn loss(&mut self, loss: f64, most: u64) -> bool {
        if self.best.is_none_or(|best| loss < best) {
            self.best = Some(loss);
            self.without_gain = 0;
        } else {
            self.without_gain += 1;
        }
        self.is_over = self.without_gain >= most;
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_nothing_becomes_better() {
        let mut patience = Patience::default();
        let ended: Vec<bool> = [3.0, 2.0, 2.0, 1.9, 2.5, 1.9, f64::NAN].map(|loss| patience.loss(loss, 3)).into();
        assert_eq!(ended, [false, false, false, false, false, false, true]);
        assert!(patience.is_over);
    }

    #[test]
    fn an_epoch_counts_by_its_mean_and_is_kept_whole() {
        let mut patience = Patience::default();
        let mut epoch = |losses: [f64; 2]| {
            losses.into_iter().for_each(|loss| patience.step(loss));
            let kept = serde_json::to_string(&patience).unwrap();
            patience = serde_json::from_str(&kept).unwrap();
            patience.epoch(1)
        };
        assert_eq!([epoch([4.0, 2.0]), epoch([1.0, 4.0]), epoch([2.5, 2.5])], [false, false, true]);
    }
}
