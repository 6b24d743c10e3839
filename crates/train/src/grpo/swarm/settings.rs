//! What a node of a swarm is told, and what it cannot do here, refused before anything is loaded.

use std::path::PathBuf;

use tonnage_core::job::{
    Baseline, GrpoSpec, JobSpec, LogProbs, Rollout, SwarmSpec, SwarmTraining, Task, TrainingSpec, keys,
};

use super::super::settings::GrpoSettings;
use crate::error::TrainError;
use crate::training::Settings;

/// All that a node goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct SwarmSettings {
    /// What it learns by, in GRPO's words.
    pub grpo: GrpoSettings,
    /// What changes memory.
    pub spec: SwarmSpec,
    /// What is shared, and how.
    pub how: SwarmTraining,
    /// Whether there is a begin token on the device while it generates.
    pub begins: bool,
}

impl SwarmSettings {
    /// Of a job and its training.
    ///
    /// # Errors
    /// When the job says what is not carried here; with the way out.
    pub fn of(job: &JobSpec, training: &TrainingSpec) -> Result<Self, TrainError> {
        let refused = |problem: &str, hint: &str| Err(TrainError::refused_with(problem.to_owned(), hint));
        let Task::Swarm(spec) = &job.task else {
            return refused("the job is none of a swarm", "set task = \"swarm\"");
        };
        let Some(steps) = training.max_steps else {
            return refused(
                "`max_steps` is not set: a swarm's rounds have no end of their own",
                "set it to the rounds",
            );
        };
        if job.precision.scales_loss() {
            return refused("fp16's scaled loss is not carried in a swarm", "set precision = \"amp-bf16\"");
        }
        if spec.local_questions == 0 {
            return refused(
                "`swarm.local_questions` = 0: a node that generates nothing has nothing to share",
                "set it to 1 or more",
            );
        }
        if spec.num_generations < 2 {
            return refused(
                "`num_generations` = 1: a group of one has nothing to be compared with",
                "set it to 2 or more",
            );
        }
        let grpo = GrpoSpec {
            prompt_len: spec.prompt_len,
            completion_len: spec.completion_len,
            num_generations: spec.num_generations,
            steps_per_generation: 1,
            num_iterations: 1,
            baseline: Baseline::Group,
            beta: 0.0,
            log_probs: LogProbs::FullLogits,
            rollout: Rollout::Generate,
            padded: true,
            cast_lm_head_to_fp32: false,
            judge: None,
        };
        Ok(Self {
            grpo: GrpoSettings {
                plain: Settings::of_job(job, training)?,
                spec: grpo,
                how: training.grpo.clone(),
                checkpoints: job.gradient_checkpointing == tonnage_core::job::CheckpointPolicy::EveryLayer,
                has_position_table: job.model.has_position_table(),
                steps,
            },
            spec: (**spec).clone(),
            how: training.swarm.clone(),
            begins: job.model.has_begin_token(),
        })
    }

    /// Where nodes meet, for a job whose checkpoints go to `output`.
    pub fn shared_folder(&self, output: &std::path::Path) -> PathBuf {
        self.how.folder.as_ref().map_or_else(|| output.join("swarm"), PathBuf::from)
    }

    /// Bytes of what a peer publishes in a round, at most.
    pub const fn most_bytes(&self) -> u64 {
        self.how.max_file_mib << 20
    }

    /// What another training must have the same to go on from a checkpoint of this one.
    pub(super) fn in_words(&self) -> String {
        let Self { grpo, spec, how, .. } = self;
        format!(
            "I {} J {} G {}, questions {:?} of level {}, {} {}, filter {:?}, foreign advantages {:?}, {} {}",
            spec.local_questions,
            spec.external_questions,
            spec.num_generations,
            grpo.how.questions,
            grpo.how.question_level,
            keys::SWARM_SPECIALTIES,
            how.specialties,
            how.filter,
            how.foreign_advantages,
            keys::SWARM_EXPERIMENT,
            how.experiment
        )
    }
}
