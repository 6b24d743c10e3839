//! DoRA and modules that are trained in full beside adapters: what is estimated where they are not simulated.

use tonnage_core::job::{Allowance, JobError, JobErrorKind, JobSource, LeftOpen, keys};
use tonnage_core::step::{SimulateError, simulate};

const MODULES_TO_SAVE: &str = "modules that are trained in full beside the adapters are not simulated in such a job: they take their \
                               weights, gradients and states more";
const DORA: &str = "DoRA's magnitudes and norms are not simulated in such a job: they take more";

/// The job without what is not simulated beside the rest of it.
pub fn with_known_adapters(mut source: JobSource) -> JobSource {
    for (key, text) in [(keys::LORA_USE_DORA, DORA), (keys::LORA_MODULES_TO_SAVE, MODULES_TO_SAVE)] {
        if is_refused(&source, key) {
            source.overrides.retain(|given| given.key != key);
            source = source.left_open([LeftOpen { text: text.to_owned(), allowance: Allowance::Unknown }]);
        }
    }
    source
}

/// Whether the job is not simulated for this key: one short row of it says so.
fn is_refused(source: &JobSource, key: &str) -> bool {
    let is_of_key = |error: &JobError| error.key() == Some(key) && error.kind == JobErrorKind::Unsimulated;
    if !source.overrides.iter().any(|given| given.key == key) {
        return false;
    }
    let mut job = match source.resolve(&[]) {
        Ok(resolved) => resolved.job,
        Err(error) => return is_of_key(&error),
    };
    (job.micro_batch_size, job.gradient_accumulation_steps, job.steps) = (1, 1, 1);
    job.seq_len = job.seq_len.min(8);
    matches!(simulate(&job), Err(SimulateError::Job(error)) if is_of_key(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_simulated_is_left_open_and_what_is_stays() {
        let said = |settings: &[(&str, &str)], key: &str| {
            let source = JobSource::model("Qwen/Qwen2.5-0.5B").set(keys::LORA_R, 8);
            let source = settings.iter().fold(source, |source, (key, value)| source.set(key, *value));
            let known = with_known_adapters(source);
            assert!(known.resolve(&[]).is_ok());
            (known.overrides.iter().any(|given| given.key == key), known.left_open.len())
        };
        let dora = (keys::LORA_USE_DORA, "true");
        assert_eq!(said(&[dora], keys::LORA_USE_DORA), (true, 0));
        assert_eq!(said(&[dora, (keys::QUANTIZATION, "nf4")], keys::LORA_USE_DORA), (false, 1));
        let saved = (keys::LORA_MODULES_TO_SAVE, "embed_tokens,lm_head");
        assert_eq!(said(&[saved], keys::LORA_MODULES_TO_SAVE), (true, 0));
        let norms = (keys::LORA_MODULES_TO_SAVE, "embed_tokens,input_layernorm");
        assert_eq!(said(&[norms], keys::LORA_MODULES_TO_SAVE), (false, 1));
        let shards = [saved, (keys::PARALLEL, "fsdp2"), (keys::WORLD_SIZE, "4")];
        assert_eq!(said(&shards, keys::LORA_MODULES_TO_SAVE), (false, 1));
    }
}
