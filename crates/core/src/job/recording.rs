//! What a row is to a model of recordings, as its config says.

use super::{FieldError, ModelSpec, Seq2SeqSpec, Task, keys};

/// The most positions or frequencies of a recording: what is computed of one stays a `u64`.
const MAX_POSITIONS: u64 = 1 << 24;

impl ModelSpec {
    /// Says in the config that the encoder is not trained, where the task says so.
    pub(super) fn freeze_encoder(&mut self, task: &Task) {
        if let Task::Seq2SeqLm(Seq2SeqSpec { freeze_encoder: true, .. }) = task {
            self.config.0.insert(keys::FREEZE_ENCODER.to_owned(), true.into());
        }
    }

    /// Frequencies and frames of its rows, where they are recordings: two frames make a position.
    ///
    /// # Errors
    /// When its config says neither.
    pub fn recording(&self) -> Result<Option<[u64; 2]>, FieldError> {
        if !self.facts().hears {
            return Ok(None);
        }
        let positions = self.config.bounded("max_source_positions", 1500, MAX_POSITIONS)?;
        Ok(Some([self.config.bounded("num_mel_bins", 80, MAX_POSITIONS)?, 2 * positions]))
    }
}

#[cfg(test)]
mod tests {
    use crate::job::{JobSource, Task};

    #[test]
    fn a_recording_has_as_many_positions_as_its_config_says() {
        let whisper = JobSource::model("openai/whisper-tiny");
        let job = whisper.resolve(&[]).unwrap().job;
        let Task::Seq2SeqLm(spec) = &job.task else { panic!("{:?}", job.task) };
        assert_eq!((job.seq_len, spec.target_len, job.model.recording()), (1500, 128, Ok(Some([80, 3000]))));
        for (key, value, problem) in [
            ("seq_len", "128", "a recording of 3000 frames is 1500 positions"),
            ("padded", "true", "recordings are all of one length"),
            ("target_len", "449", "more than the 448 positions"),
            ("task", "generate", "is simulated where it is trained on labels alone"),
            ("task", "causal_lm", "is no decoder"),
        ] {
            let error = whisper.clone().set(key, value).resolve(&[]).unwrap_err();
            assert!(error.problem.contains(problem), "{error}");
        }
        let frozen = whisper.set("freeze_encoder", true);
        assert!(frozen.resolve(&[]).is_ok());
        assert!(frozen.set("lora.r", 8).set("lora.targets", "[\"q_proj\"]").resolve(&[]).is_err());
        let t5 = JobSource::model("t5-small").set("freeze_encoder", true).resolve(&[]).unwrap_err();
        assert!(t5.problem.contains("`freeze_encoder` has no meaning"), "{t5}");
        let gpt2 = JobSource::model("gpt2").set("task", "seq2seq_lm").resolve(&[]).unwrap_err();
        assert!(gpt2.problem.contains("`gpt2` is no encoder-decoder"), "{gpt2}");
    }
}
