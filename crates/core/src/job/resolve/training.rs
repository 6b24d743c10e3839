//! The keys of a training that change no byte: they are noted where somebody said them, and have their defaults otherwise.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::chooser::Chooser;
use crate::job::keys::{self, Default, Key};
use crate::job::{
    DataSpec, GenerationSpec, GrpoTraining, HrmTraining, JobError, JobErrorKind, SwarmTraining, TaskName, TrainingSpec,
};

/// What was said of training, data and generation.
pub(super) fn resolve_training(choose: &mut Chooser<'_>, task: TaskName) -> Result<TrainingSpec, JobError> {
    let mut said = Said(choose);
    Ok(TrainingSpec {
        learning_rate: said.said_number(keys::LEARNING_RATE),
        lr_scheduler_type: said.said_word(keys::LR_SCHEDULER_TYPE)?,
        warmup_steps: said.said_number(keys::WARMUP_STEPS),
        weight_decay: said.said_number(keys::WEIGHT_DECAY),
        betas: (said.said_number(keys::ADAM_BETA1), said.said_number(keys::ADAM_BETA2)),
        adam_epsilon: said.said_number(keys::ADAM_EPSILON),
        seed: said.said_size(keys::SEED).unwrap_or_default(),
        init: said.said_word(keys::INIT)?,
        max_steps: said.0.said_size(keys::MAX_STEPS),
        num_train_epochs: said.said_number(keys::NUM_TRAIN_EPOCHS),
        output_dir: said.said_text(keys::OUTPUT_DIR),
        logging_steps: said.said_size(keys::LOGGING_STEPS).unwrap_or(1),
        eval_steps: said.said_size(keys::EVAL_STEPS),
        early_stopping_patience: said.said_size(keys::EARLY_STOPPING_PATIENCE),
        save_steps: said.said_size(keys::SAVE_STEPS).unwrap_or(1),
        save_total_limit: said.said_size(keys::SAVE_TOTAL_LIMIT).unwrap_or(1),
        resume_from_checkpoint: said.said_text(keys::RESUME_FROM_CHECKPOINT),
        use_cpu: said.said_value(keys::USE_CPU).as_bool().unwrap_or_default(),
        lora_alpha: said.said_number(keys::LORA_ALPHA),
        data: resolve_data(&mut said),
        generation: resolve_generation(&mut said),
        // Of other tasks whoever sets one of its keys is told that nothing reads it.
        grpo: if matches!(task, TaskName::Grpo | TaskName::Swarm) {
            resolve_grpo_training(&mut said)?
        } else {
            GrpoTraining::default()
        },
        hrm: if task == TaskName::Hrm { resolve_hrm_training(&mut said)? } else { HrmTraining::default() },
        swarm: if task == TaskName::Swarm { resolve_swarm_training(&mut said)? } else { SwarmTraining::default() },
    })
}

fn resolve_data(said: &mut Said<'_, '_>) -> DataSpec {
    DataSpec {
        train_files: said.said_texts(keys::DATA_TRAIN_FILES),
        eval_files: said.said_texts(keys::DATA_EVAL_FILES),
        eval_share: said.said_number(keys::DATA_EVAL_SHARE),
        tokenizer: said.said_text(keys::DATA_TOKENIZER),
        text_field: said.said_text(keys::DATA_TEXT_FIELD).unwrap_or_default(),
        end_of_text: said.said_text(keys::DATA_END_OF_TEXT),
        assistant_only_loss: said.said_value(keys::DATA_ASSISTANT_ONLY_LOSS).as_bool().unwrap_or(true),
    }
}

fn resolve_generation(said: &mut Said<'_, '_>) -> GenerationSpec {
    let draws = [keys::GENERATION_TEMPERATURE, keys::GENERATION_TOP_K, keys::GENERATION_TOP_P];
    // Who says how to draw wants to draw, unless beams are followed.
    let is_implied = draws.iter().any(|key| said.0.is_said(key)) && !said.0.is_said(keys::GENERATION_NUM_BEAMS);
    let do_sample = match said.0.is_said(keys::GENERATION_DO_SAMPLE) {
        true => said.said_value(keys::GENERATION_DO_SAMPLE).as_bool().unwrap_or_default(),
        false => is_implied,
    };
    GenerationSpec {
        max_new_tokens: said.said_size(keys::GENERATION_MAX_NEW_TOKENS).unwrap_or(1),
        do_sample,
        temperature: said.said_number(keys::GENERATION_TEMPERATURE),
        top_k: said.said_size(keys::GENERATION_TOP_K).unwrap_or_default(),
        top_p: said.said_number(keys::GENERATION_TOP_P),
        num_beams: said.said_size(keys::GENERATION_NUM_BEAMS).unwrap_or(1),
        prompt: said.said_text(keys::GENERATION_PROMPT).unwrap_or_default(),
    }
}

fn resolve_grpo_training(said: &mut Said<'_, '_>) -> Result<GrpoTraining, JobError> {
    let epsilon = said.said_number(keys::GRPO_EPSILON);
    Ok(GrpoTraining {
        questions: said.said_texts(keys::GRPO_QUESTIONS),
        question_level: said.said_size(keys::GRPO_QUESTION_LEVEL).unwrap_or(1),
        answer_form: said.said_word(keys::GRPO_ANSWER_FORM)?,
        reward: said.said_word(keys::GRPO_REWARD)?,
        epsilon,
        epsilon_high: said.said_value(keys::GRPO_EPSILON_HIGH).as_f64().unwrap_or(epsilon),
        loss_type: said.said_word(keys::GRPO_LOSS_TYPE)?,
        scale_rewards: said.said_word(keys::GRPO_SCALE_REWARDS)?,
        dynamic_sampling: said.said_value(keys::GRPO_DYNAMIC_SAMPLING).as_bool().unwrap_or_default(),
        mask_truncated_completions: said
            .said_value(keys::GRPO_MASK_TRUNCATED_COMPLETIONS)
            .as_bool()
            .unwrap_or_default(),
        eval_questions: said.said_size(keys::GRPO_EVAL_QUESTIONS).unwrap_or_default(),
        warm_start_reward: said.said_number(keys::GRPO_WARM_START_REWARD),
        warm_start_learning_rate: said.said_number(keys::GRPO_WARM_START_LEARNING_RATE),
        warm_start_steps: said.said_size(keys::GRPO_WARM_START_STEPS).unwrap_or_default(),
    })
}

fn resolve_hrm_training(said: &mut Said<'_, '_>) -> Result<HrmTraining, JobError> {
    Ok(HrmTraining {
        puzzles: said.said_word(keys::HRM_PUZZLES)?,
        side: said.said_size(keys::HRM_SIDE),
        train_puzzles: said.said_size(keys::HRM_TRAIN_PUZZLES).unwrap_or_default(),
        eval_puzzles: said.said_size(keys::HRM_EVAL_PUZZLES).unwrap_or_default(),
        clues_min: said.said_size(keys::HRM_CLUES_MIN),
        clues_max: said.said_size(keys::HRM_CLUES_MAX),
        guesses_min: said.said_size(keys::HRM_GUESSES_MIN).unwrap_or_default(),
        augmentations: said.said_size(keys::HRM_AUGMENTATIONS).unwrap_or_default(),
        eval_views: said.said_size(keys::HRM_EVAL_VIEWS).unwrap_or(1),
        puzzle_emb_lr: said.said_value(keys::HRM_PUZZLE_EMB_LR).as_f64(),
        puzzle_emb_weight_decay: said.said_value(keys::HRM_PUZZLE_EMB_WEIGHT_DECAY).as_f64(),
    })
}

fn resolve_swarm_training(said: &mut Said<'_, '_>) -> Result<SwarmTraining, JobError> {
    Ok(SwarmTraining {
        folder: said.said_text(keys::SWARM_FOLDER),
        experiment: said.said_text(keys::SWARM_EXPERIMENT).unwrap_or_default(),
        filter: said.said_word(keys::SWARM_FILTER)?,
        foreign_advantages: said.said_word(keys::SWARM_FOREIGN_ADVANTAGES)?,
        specialties: said.said_value(keys::SWARM_SPECIALTIES).as_bool().unwrap_or_default(),
        round_seconds: said.said_number(keys::SWARM_ROUND_SECONDS),
        quorum: said.said_number(keys::SWARM_QUORUM),
        keep_rounds: said.said_size(keys::SWARM_KEEP_ROUNDS).unwrap_or_default(),
        publish_every: said.said_size(keys::SWARM_PUBLISH_EVERY).unwrap_or_default(),
        max_file_mib: said.said_size(keys::SWARM_MAX_FILE_MIB).unwrap_or_default(),
    })
}

/// Hands out values, and notes only those that somebody said.
struct Said<'c, 'a>(&'c mut Chooser<'a>);

impl Said<'_, '_> {
    fn said_value(&mut self, name: &str) -> Value {
        let default = match Key::find(name).map(|key| key.default) {
            Some(Default::Fixed(json, _)) => serde_json::from_str(json).unwrap_or_default(),
            _ => Value::Null,
        };
        let is_noted = self.0.provenance.iter().any(|value| value.key == name);
        match self.0.settings.get(name) {
            Some(setting) if is_noted => setting.value.clone(),
            Some(_) => self.0.take_value(name, default, ""),
            None => default,
        }
    }

    fn said_number(&mut self, name: &str) -> f64 {
        self.said_value(name).as_f64().unwrap_or_default()
    }

    fn said_size(&mut self, name: &str) -> Option<u64> {
        self.said_value(name).as_u64()
    }

    fn said_text(&mut self, name: &str) -> Option<String> {
        self.said_value(name).as_str().map(str::to_owned)
    }

    fn said_texts(&mut self, name: &str) -> Vec<String> {
        let value = self.said_value(name);
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn said_word<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, JobError> {
        let word = self.said_value(name);
        serde_json::from_value(word)
            .map_err(|error| JobError::of_kind(JobErrorKind::Value, format!("`{name}`: {error}")).about(&[name]))
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{Init, JobSource, LearningRateSchedule};

    const FILE: &str = "model = \"gpt2\"\nlearning_rate = 3e-4\nlr_scheduler_type = \"cosine\"\nnum_train_epochs = 3\n\
                        init = \"from_config\"\n[data]\ntrain_files = \"a.txt\"\n[generation]\ntemperature = 0.8\n";

    #[test]
    fn what_is_said_is_noted_and_changes_no_byte() {
        let plain = JobSource::model("gpt2").resolve(&[]).unwrap();
        let said = JobSource::from_file("a.toml", FILE).resolve(&[]).unwrap();
        assert_eq!(said.job, plain.job);
        assert_eq!(said.training.learning_rate, 3e-4);
        assert_eq!(said.training.lr_scheduler_type, LearningRateSchedule::Cosine);
        assert_eq!((said.training.init, said.training.num_train_epochs), (Init::FromConfig, 3.0));
        assert_eq!(said.training.data.train_files, ["a.txt"]);
        assert!(said.training.generation.do_sample && !plain.training.generation.do_sample);
        let noted = |key: &str| said.provenance.iter().filter(|value| value.key == key).count();
        assert_eq!((noted("learning_rate"), noted("seed"), noted("num_train_epochs")), (1, 0, 1));
    }

    #[test]
    fn other_programs_words_are_taken() {
        let said = JobSource::model("gpt2").set("lr", "1e-3").set("warmup_ratio", 0.1).set("train_file", "b.jsonl");
        let said = said.resolve(&[]).unwrap().training;
        assert_eq!((said.learning_rate, said.warmup_steps), (1e-3, 0.1));
        assert_eq!(said.data.train_files, ["b.jsonl"]);
    }

    #[test]
    fn epochs_with_rows_are_noted_once() {
        let file = "model = \"gpt2\"\ntrain_rows = 100\nnum_train_epochs = 2\n";
        let said = JobSource::from_file("a.toml", file).resolve(&[]).unwrap();
        assert_eq!(said.provenance.iter().filter(|value| value.key == "num_train_epochs").count(), 1);
    }
}
