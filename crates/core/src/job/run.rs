//! What a training's time and price depend on beside its steps: how many there are, and what the user measured or pays.

use super::JobSpec;

/// How long a training is, and what is known of its time and price. It changes no byte.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunSpec {
    /// How long; `None` when nobody says.
    pub length: Option<RunLength>,
    /// Seconds of an optimizer step as the user measured it.
    pub step_seconds: Option<f64>,
    /// What the user pays for an hour of one GPU.
    pub dollars_per_gpu_hour: Option<f64>,
    /// `torch.set_float32_matmul_precision("high")`
    pub allow_tf32: bool,
}

/// How long a training is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunLength {
    /// So many optimizer steps.
    Steps(u64),
    /// So many tokens, padding included.
    Tokens(u64),
    /// So often through so many rows.
    Epochs {
        /// Passes over the rows; a part of one too.
        epochs: f64,
        /// Rows of the data set.
        rows: u64,
    },
}

impl RunLength {
    /// Optimizer steps of `job`; a last step that is not full is one.
    pub fn steps(self, job: &JobSpec) -> u64 {
        let rows = rows_per_step(job).max(1);
        match self {
            Self::Steps(steps) => steps,
            Self::Tokens(tokens) => tokens.div_ceil(rows.saturating_mul(job.seq_len.max(1))),
            Self::Epochs { epochs, rows: of_data } => {
                let data_rows_per_step = rows as f64 / job.task.facts().rows_per_data_row() as f64;
                (epochs * of_data as f64 / data_rows_per_step).ceil() as u64
            }
        }
        .max(1)
    }
}

/// Rows of an optimizer step over all ranks (completions for GRPO, pairs for DPO).
pub fn rows_per_step(job: &JobSpec) -> u64 {
    let ranks = job.parallel.replicas();
    job.micro_batch_size.saturating_mul(job.gradient_accumulation_steps).saturating_mul(ranks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::from_case;

    #[test]
    fn steps_follow_from_rows_and_tokens() {
        let job = from_case(&json!({"micro_batch": 8, "grad_accum": 2, "seq_len": 100})).unwrap();
        assert_eq!(RunLength::Steps(7).steps(&job), 7);
        assert_eq!(RunLength::Tokens(16_000).steps(&job), 10);
        assert_eq!(RunLength::Tokens(16_001).steps(&job), 11);
        assert_eq!(RunLength::Epochs { epochs: 3.0, rows: 160 }.steps(&job), 30);
    }

    #[test]
    fn a_prompt_has_several_completions() {
        let job = from_case(&json!({"kind": "trl_grpo", "batch": 8, "num_generations": 8})).unwrap();
        assert_eq!(RunLength::Epochs { epochs: 1.0, rows: 100 }.steps(&job), 100);
    }
}
