//! What GRPO is told, and what it cannot do here, refused before anything is loaded.

use tonnage_core::job::{
    GrpoSpec, GrpoTraining, JobSpec, JudgePlace, JudgeSpec, JudgeWeights, LogProbs, RewardBy, Rollout, Strategy, Task,
    TrainingSpec, keys,
};
use tonnage_torch::{Tensor, Torch, TorchError};

use super::loss::LossTerms;
use crate::error::TrainError;
use crate::optimizer::{Optimizer, StateEntry};
use crate::training::Settings;

/// All that a training by GRPO goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpoSettings {
    /// Rows of a pass, learning rate, optimizer, precision.
    pub plain: Settings,
    /// What changes memory.
    pub spec: GrpoSpec,
    /// What is asked, and how it is paid.
    pub how: GrpoTraining,
    /// Whether layers are recomputed while it trains.
    pub checkpoints: bool,
    /// Whether the policy's positions are rows of a table.
    pub has_position_table: bool,
    /// Optimizer steps of the whole training.
    pub steps: u64,
}

impl GrpoSettings {
    /// Of a job and its training.
    ///
    /// # Errors
    /// When the job says what is not carried here; with the way out.
    pub fn of(job: &JobSpec, training: &TrainingSpec) -> Result<Self, TrainError> {
        let Task::Grpo(spec) = &job.task else {
            return Err(TrainError::refused_with("the job is none of GRPO".to_owned(), "set task = \"grpo\""));
        };
        refuse(job, spec, &training.grpo)?;
        let Some(steps) = training.max_steps else {
            let problem = "`max_steps` is not set: questions are made from seeds, so no epoch ends".to_owned();
            return Err(TrainError::refused_with(problem, "set max_steps to the optimizer steps that are wanted"));
        };
        let plain = Settings::of_job(job, training)?;
        let checkpoints = job.gradient_checkpointing == tonnage_core::job::CheckpointPolicy::EveryLayer;
        let has_position_table = job.model.has_position_table();
        let (spec, how) = ((**spec).clone(), training.grpo.clone());
        Ok(Self { plain, spec, how, checkpoints, has_position_table, steps })
    }

    /// Rows that are generated at once.
    pub fn generation_rows(&self) -> u64 {
        self.plain.micro_batch_size.saturating_mul(self.spec.steps_per_generation)
    }

    /// Passes after which new completions are generated.
    pub fn generate_every(&self) -> u64 {
        self.spec.steps_per_generation.saturating_mul(self.spec.num_iterations).max(1)
    }

    /// Whether log-probabilities are kept from before a batch is trained on: it is trained on in several steps.
    pub fn keeps_old_logps(&self) -> bool {
        !self.plain.accumulation.is_multiple_of(self.generate_every())
    }

    pub(super) fn terms(&self) -> LossTerms {
        LossTerms {
            loss_type: self.how.loss_type,
            epsilon: self.how.epsilon,
            epsilon_high: self.how.epsilon_high,
            beta: self.spec.beta,
            accumulation: self.plain.accumulation,
            steps_per_generation: self.spec.steps_per_generation,
            completion_len: self.spec.completion_len,
        }
    }

    /// What another training must have the same to go on from a checkpoint of this one.
    pub(super) fn in_words(&self) -> String {
        let Self { spec, how, .. } = self;
        format!(
            "num_generations {}, steps_per_generation {}, num_iterations {}, beta {}, questions {:?} of level {}, reward {:?}",
            spec.num_generations,
            spec.steps_per_generation,
            spec.num_iterations,
            spec.beta,
            how.questions,
            how.question_level,
            how.reward
        )
    }

    /// `create_optimizer`: matrices decay and come first, biases and norms do not.
    ///
    /// # Errors
    /// Never for settings that [`GrpoSettings::of`] made.
    pub(super) fn optimizer(&self, torch: &'static Torch, named: Vec<(String, Tensor)>) -> Result<Groups, TrainError> {
        let (matrices, rest): (Vec<_>, Vec<_>) = named.into_iter().partition(|(_, tensor)| tensor.sizes().len() >= 2);
        let mut plain = self.plain.clone();
        let tensors = |named: &[(String, Tensor)]| named.iter().map(|(_, tensor)| tensor.clone()).collect::<Vec<_>>();
        let mut groups = vec![(0, plain.optimizer(torch, tensors(&matrices))?)];
        plain.training.weight_decay = 0.0;
        groups.push((matrices.len(), plain.optimizer(torch, tensors(&rest))?));
        let (names, parameters) = matrices.into_iter().chain(rest).unzip();
        Ok(Groups { groups, names, parameters })
    }
}

fn refuse(job: &JobSpec, spec: &GrpoSpec, how: &GrpoTraining) -> Result<(), TrainError> {
    let refused = |problem: String, hint: &str| Err(TrainError::refused_with(problem, hint));
    if spec.rollout != Rollout::Generate {
        return refused(
            "`grpo.rollout` = \"vllm\": `tonnage train` generates by itself".to_owned(),
            "leave [vllm] out",
        );
    }
    if spec.log_probs == LogProbs::Fused {
        let problem = "`grpo.log_probs` = \"fused\": TRL's fused head is Triton's, which only Python runs".to_owned();
        return refused(problem, "set grpo.log_probs = \"full_logits\", whose memory the estimate then says");
    }
    if !spec.padded {
        let problem = "`grpo.padded` = false: completions end at lengths of their own, so rows are padded".to_owned();
        return refused(problem, "set grpo.padded = true, so that the estimate has their masks");
    }
    if spec.cast_lm_head_to_fp32 {
        return refused("`grpo.cast_lm_head_to_fp32` is not carried".to_owned(), "leave it out");
    }
    if job.precision.scales_loss() {
        return refused("fp16's scaled loss is not carried with GRPO".to_owned(), "set precision = \"amp-bf16\"");
    }
    if job.parallel.world_size > 1 || job.parallel.strategy != Strategy::None {
        return refused("GRPO trains on one GPU here".to_owned(), "leave `parallel` and `world_size` out");
    }
    if how.warm_start_reward > 0.0 && how.reward != RewardBy::Verifier {
        let problem = "`grpo.warm_start_reward` with a judge: only a verifier knows right answers".to_owned();
        return refused(problem, "set grpo.warm_start_reward = 0.0, or grpo.reward = \"verifier\"");
    }
    refuse_judge(spec.judge.as_ref(), how.reward)
}

fn refuse_judge(judge: Option<&JudgeSpec>, reward: RewardBy) -> Result<(), TrainError> {
    let refused = |problem: &str, hint: &str| Err(TrainError::refused_with(problem.to_owned(), hint));
    match (judge, reward) {
        (None, RewardBy::Verifier) => Ok(()),
        (None, _) => refused("`grpo.reward` asks a judge, and there is none", "set judge.model to a model's folder"),
        (Some(_), RewardBy::Verifier) => {
            let problem = "there is a judge, and `grpo.reward` = \"verifier\" never asks it";
            refused(problem, "set grpo.reward = \"judge_score\" or \"judge_answer\", or leave [judge] out")
        }
        (Some(judge), _) if !matches!(judge.weights, JudgeWeights::Fp32 | JudgeWeights::Bf16) => {
            refused("a quantized judge's kernels are Python's", "set judge.weights = \"bf16\" or \"fp32\"")
        }
        (Some(judge), _) if !matches!(judge.place, JudgePlace::SameGpu | JudgePlace::Cpu) => {
            let problem = format!("`{}`: the judge lies beside the policy, or on the CPU", keys::JUDGE_PLACE);
            refused(&problem, "set judge.place = \"same_gpu\" or \"cpu\"")
        }
        (Some(judge), _) if judge.phase != tonnage_core::job::JudgePhase::Generate => {
            refused("`judge.phase` = \"forward\": what a judge says is read as text", "set judge.phase = \"generate\"")
        }
        (Some(_), _) => Ok(()),
    }
}

/// Two groups of parameters as one optimizer.
pub(super) struct Groups {
    /// The place of each group's first parameter.
    groups: Vec<(usize, Box<dyn Optimizer>)>,
    /// Of all parameters, in their order.
    pub names: Vec<String>,
    parameters: Vec<Tensor>,
}

impl Optimizer for Groups {
    fn step(&mut self) -> Result<(), TorchError> {
        self.groups.iter_mut().try_for_each(|(_, group)| group.step())
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.groups.iter_mut().for_each(|(_, group)| group.set_learning_rate(rate));
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn state(&self) -> Vec<StateEntry<'_>> {
        let mut all = Vec::new();
        for (first, group) in &self.groups {
            all.extend(
                group.state().into_iter().map(|entry| StateEntry { parameter: entry.parameter + first, ..entry }),
            );
        }
        all
    }

    fn restore(
        &mut self,
        torch: &'static Torch,
        parameter: usize,
        name: &str,
        tensor: Tensor,
    ) -> Result<(), TorchError> {
        let at = usize::from(parameter >= self.groups[1].0);
        let (first, group) = &mut self.groups[at];
        group.restore(torch, parameter - *first, name, tensor)
    }
}

#[cfg(test)]
mod tests {
    use tonnage_core::job::JobSource;

    use super::*;

    fn settings(set: &[(&str, &str)]) -> Result<GrpoSettings, TrainError> {
        let plain = [
            ("task", "grpo"),
            ("framework", "loop"),
            ("precision", "fp32"),
            ("max_steps", "5"),
            ("grpo.padded", "true"),
            ("grpo.log_probs", "full_logits"),
        ];
        let source = plain.iter().chain(set).fold(JobSource::model("gpt2"), |job, (key, value)| job.set(key, value));
        let resolved = source.resolve(&[]).expect("a job");
        GrpoSettings::of(&resolved.job, &resolved.training)
    }

    #[test]
    fn a_job_is_taken_as_it_is() {
        let found = settings(&[("micro_batch_size", "16"), ("grpo.steps_per_generation", "2")]).unwrap();
        assert_eq!((found.generation_rows(), found.generate_every(), found.keeps_old_logps()), (32, 2, true));
        assert_eq!((found.how.epsilon, found.how.epsilon_high, found.has_position_table), (0.2, 0.2, true));
        assert!(!settings(&[("gradient_accumulation_steps", "4")]).unwrap().keeps_old_logps());
        assert_eq!(settings(&[("grpo.epsilon", "0.1")]).unwrap().terms().epsilon_high, 0.1);
    }

    #[test]
    fn what_it_cannot_do_is_refused_with_the_way_out() {
        for (key, value, wanted) in [
            ("grpo.log_probs", "fused", "full_logits"),
            ("grpo.padded", "false", "grpo.padded = true"),
            ("grpo.rollout", "vllm", "leave [vllm] out"),
            ("grpo.cast_lm_head_to_fp32", "true", "leave it out"),
            ("precision", "amp-fp16", "amp-bf16"),
            ("grpo.reward", "judge_score", "judge.model"),
            ("optimizer", "lion", "adamw_fused"),
        ] {
            let error = settings(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{key}: {error}");
        }
    }

    #[test]
    fn a_judge_is_one_that_runs_here() {
        for (set, wanted) in [
            (("judge.weights", "int8"), "bf16"),
            (("judge.place", "offload"), "same_gpu"),
            (("judge.phase", "forward"), "generate"),
            (("grpo.reward", "verifier"), "judge_score"),
            (("grpo.warm_start_reward", "0.2"), "verifier"),
        ] {
            let error =
                settings(&[("judge.model", "gpt2"), ("grpo.reward", "judge_score"), set]).unwrap_err().to_string();
            assert!(error.contains(wanted), "{set:?}: {error}");
        }
        assert!(settings(&[("judge.model", "gpt2"), ("grpo.reward", "judge_answer")]).is_ok());
    }
}
