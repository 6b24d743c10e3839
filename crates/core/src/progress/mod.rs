//! How far a training is, read from what trainers write: bars with a rate, `step N/M`, rounds, epochs. Whole lines come in; what
//! only looks like a step (`Step 1: loading tokenizer`, SLURM's `STEP 7.0`) is none.

mod bar;
mod counter;
mod lines;
mod measurements;
mod tracker;

pub use lines::Lines;
pub use tracker::Tracker;

use serde::{Deserialize, Serialize};

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Batches of an epoch.
    Batch,
    /// Rounds of a swarm or of a federation.
    Round,
    /// Passes over the data.
    Epoch,
    /// Optimizer steps, iterations, updates; of a newer version, anything.
    #[default]
    #[serde(other)]
    Step,
}

impl Unit {
    /// The word that stands before the count (`round 3`).
    pub const fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Batch => "batch",
            Self::Round => "round",
            Self::Epoch => "epoch",
        }
    }
}

/// Where a training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// What is counted.
    pub unit: Unit,
    /// How many of it, as the program counts.
    pub step: u64,
    /// Of how many; within the epoch where there is one.
    pub total: Option<u64>,
    /// The epoch that the step is of, as the program counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
}

impl Progress {
    /// `12/100`, `round 3`, `12/100 of epoch 2/10`.
    pub fn words(&self) -> String {
        let count = match (self.unit, self.total) {
            (Unit::Step, Some(total)) => format!("{}/{total}", self.step),
            (unit, Some(total)) => format!("{} {}/{total}", unit.word(), self.step),
            (unit, None) => format!("{} {}", unit.word(), self.step),
        };
        match (self.epoch, self.epochs) {
            (Some(epoch), Some(epochs)) => format!("{count} of epoch {epoch}/{epochs}"),
            (Some(epoch), None) => format!("{count} of epoch {epoch}"),
            _ => count,
        }
    }

    /// Seconds that are left, if what is to come takes as long as what came since `before`, `seconds` ago; of an epoch whose
    /// number is not known, until its end.
    pub fn seconds_left(&self, before: &Self, seconds: f64) -> Option<f64> {
        let (now, end) = self.position()?;
        let (then, _) = before.position()?;
        let done = now - then;
        (done > 0.0 && seconds > 0.0 && now < end && before.unit == self.unit).then(|| seconds / done * (end - now))
    }

    /// Where it is and where it ends, in epochs where their number is known, else in its own unit.
    fn position(&self) -> Option<(f64, f64)> {
        let total = self.total.filter(|total| *total > 0)? as f64;
        let step = self.step as f64;
        match (self.epoch, self.epochs) {
            // Epochs are counted from 0 or from 1; the last one of those that count from 0 is never `epochs`.
            (Some(epoch), Some(epochs)) => Some((epoch as f64 - 1.0 + step / total, epochs as f64)),
            _ => Some((step, total)),
        }
    }
}

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    progress: Progress,
    /// Whether one line is enough; else it counts once the next says more.
    is_certain: bool,
    /// Whether it is a bar, which counts by itself.
    is_bar: bool,
}

/// What a line says of progress, if anything.
fn progress_in_line(line: &str) -> Option<Said> {
    let plain = lines::without_colours(line);
    bar::read_bar(&plain).or_else(|| counter::read_counter(&plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Expected = Option<(Unit, u64, Option<u64>)>;

    fn check(cases: &[(&str, Expected)]) {
        for (line, wanted) in cases {
            let found =
                progress_in_line(line).map(|said| (said.progress.unit, said.progress.step, said.progress.total));
            assert_eq!(found, *wanted, "{line}");
        }
    }

    #[test]
    fn reads_what_trainers_write() {
        use Unit::{Batch, Epoch, Round, Step};
        check(&[
            // tqdm, Hugging Face's Trainer, Lightning, diffusers, Keras.
            (" 12%|█▏        | 12/100 [00:03<00:22,  4.00it/s]", Some((Step, 12, Some(100)))),
            ("100%|##########| 100/100 [00:03<00:00,  4.00it/s]", Some((Step, 100, Some(100)))),
            ("  0%|          | 0/500 [00:00<?, ?it/s]", Some((Step, 0, Some(500)))),
            (
                "Epoch 3:  50%|█████     | 50/100 [00:12<00:12,  4.1it/s, v_num=0, loss=2.1]",
                Some((Batch, 50, Some(100))),
            ),
            (
                "Steps:   5%|▌         | 5/100 [00:30<09:30,  6.00s/it, lr=1e-5, step_loss=0.1]",
                Some((Step, 5, Some(100))),
            ),
            ("[rank0]:  2%|▏         | 2/100 [00:03<00:22,  4.00s/it]", Some((Step, 2, Some(100)))),
            ("10/100 [==>...........................] - ETA: 5s - loss: 0.3", Some((Batch, 10, Some(100)))),
            (" 50/100 ━━━━━━━━━━ 5s 50ms/step - loss: 0.3", Some((Batch, 50, Some(100)))),
            ("{'loss': 2.31, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'step': 30}", Some((Step, 30, None))),
            // Lines.
            ("step 3/10 loss 2.1", Some((Step, 3, Some(10)))),
            ("step 3/10", Some((Step, 3, Some(10)))),
            ("Step: 40, loss=0.2", Some((Step, 40, None))),
            ("STEP 4 rows 32", Some((Step, 4, None))),
            ("iter 250: loss 2.10, time 12ms", Some((Step, 250, None))),
            ("step 250: train loss 2.1043, val loss 2.2", Some((Step, 250, None))),
            ("global_step=7 lr=1e-4", Some((Step, 7, None))),
            ("{\"step\": 9, \"loss\": 1}", Some((Step, 9, None))),
            ("iteration 5 of 20", Some((Step, 5, Some(20)))),
            (
                "  iteration       10/  500000 | consumed samples:           80 | elapsed time per iteration (ms): 1234.5 | \
              learning rate: 1.500E-04 | lm loss: 9.2E+00 | number of skipped iterations:   0 |",
                Some((Step, 10, Some(500_000))),
            ),
            (
                "[2026-11-22 05:30:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[[0.9, 0.999]]",
                Some((Step, 10, None)),
            ),
            (
                "[titan] 2026-11-22 05:30:00,123 - root - INFO - step: 10  loss:  7.2  memory: 12.3GiB(20.1%)  tps: 1,234",
                Some((Step, 10, None)),
            ),
            ("Epoch 1 | iter 1 step 7 | loss train: 2.5, val: n/a | iter time: 12.5 ms", Some((Step, 7, None))),
            ("\u{1b}[32mstep 3/10\u{1b}[0m", Some((Step, 3, Some(10)))),
            // Epochs with batches.
            ("Epoch 1 Batch 3/100", Some((Batch, 3, Some(100)))),
            ("Epoch [1/10], Step [100/600], Loss: 0.1", Some((Step, 100, Some(600)))),
            ("Epoch: [0][10/391]\tTime 0.1 (0.2)\tLoss 2.3 (2.4)", Some((Batch, 10, Some(391)))),
            ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 0.512", Some((Batch, 640, Some(60_000)))),
            ("epoch 001:  10 / 391 loss=9.2, ppl=580, wps=12", Some((Batch, 10, Some(391)))),
            ("Epoch 2/5", Some((Epoch, 2, Some(5)))),
            ("Epoch 3: loss 0.4", Some((Epoch, 3, None))),
            // Rounds.
            ("round 3/2000", Some((Round, 3, Some(2000)))),
            ("[Round 3]", Some((Round, 3, None))),
            ("step 3", Some((Step, 3, None))),
            ("2026-11-22 05:30:00 | INFO | Starting step 3", Some((Step, 3, None))),
            ("Starting round: 3/2000", Some((Round, 3, Some(2000)))),
            ("[node-1] Round 12/100 reward 0.4", Some((Round, 12, Some(100)))),
        ]);
    }

    #[test]
    fn headings_downloads_and_schedulers_are_none() {
        check(&[
            ("Step 1: loading tokenizer", None),
            ("Step 2/4: building the dataset", None),
            ("Step 3/10 : RUN pip install torch==2.1", None),
            ("STEP 4 - training with 8 workers", None),
            ("Step 5. Evaluate on 3 sets", None),
            ("Step 2: loading 8 shards", None),
            ("step 1 of the tutorial", None),
            ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-22T05:00:00 DUE TO TIME LIMIT ***", None),
            ("slurmstepd: error: *** JOB 99 STEP 3 ON n1 CANCELLED", None),
            ("Loading checkpoint shards:  50%|█████     | 2/4 [00:01<00:01,  1.9it/s]", None),
            ("Map: 100%|██████████| 1000/1000 [00:00<00:00, 5000.00 examples/s]", None),
            ("model.safetensors:  10%|█         | 52.4M/548M [00:01<00:10, 48.2MB/s]", None),
            ("Fetching 5 files:  20%|██        | 1/5 [00:01<00:04,  1.1s/it]", None),
            (" 50%|█████     | 512/1024 [00:01<00:01, 300kB/s]", None),
            ("steps per epoch: 100", None),
            ("num_steps = 500", None),
            ("warmup_steps: 100", None),
            ("max_steps=40", None),
            ("save_steps 500", None),
            ("footsteps 12", None),
            ("loss 2.1", None),
            ("step", None),
            ("Training for 3 epochs", None),
            ("JOB 99 STEP 3", None),
            ("see step 3", None),
        ]);
    }

    #[test]
    fn what_is_left_follows_from_what_was_done_since() {
        let at = |step: u64| Progress { step, total: Some(1000), ..Progress::default() };
        // Resumed at 500: what went before it took no time of this attempt.
        assert_eq!(at(600).seconds_left(&at(500), 50.0), Some(200.0));
        assert_eq!(at(600).seconds_left(&at(600), 50.0), None);
        assert_eq!(at(1000).seconds_left(&at(500), 50.0), None);
        let of = |epoch: u64, step: u64| Progress {
            unit: Unit::Batch,
            step,
            total: Some(10),
            epoch: Some(epoch),
            epochs: Some(4),
        };
        assert_eq!(of(2, 5).seconds_left(&of(1, 0), 30.0), Some(50.0));
        assert_eq!(of(2, 5).words(), "batch 5/10 of epoch 2/4");
    }

    #[test]
    fn units_of_newer_versions_are_read() {
        let read: Progress = serde_json::from_str(r#"{"unit": "galaxy", "step": 3, "future": 1}"#).unwrap();
        assert_eq!((read.unit, read.step), (Unit::Step, 3));
    }
}
