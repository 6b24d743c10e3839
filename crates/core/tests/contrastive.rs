//! Images and their texts: what is simulated of them, and what is refused by name.

use tonnage_core::estimate::estimate;
use tonnage_core::job::{Framework, JobError, JobSource, Task};

const CLIP: &str = "openai/clip-vit-base-patch32";

fn refused(model: &str, settings: &[(&str, &str)]) -> JobError {
    let source = settings.iter().fold(JobSource::model(model), |source, (key, value)| source.set(key, *value));
    source.resolve(&[]).unwrap_err()
}

#[test]
fn a_model_of_images_and_texts_is_trained_on_them_by_default() {
    for (model, tokens) in [(CLIP, 77), ("google/siglip-base-patch16-224", 64)] {
        let job = JobSource::model(model).resolve(&[]).unwrap().job;
        assert_eq!((job.task, job.framework, job.seq_len), (Task::Contrastive, Framework::Trainer, tokens));
    }
}

#[test]
fn what_was_not_measured_is_refused_by_its_key() {
    for (settings, about) in [
        ([("parallel", "fsdp2"), ("world_size", "4")].as_slice(), "parallel"),
        (&[("precision", "fp16")], "precision"),
        (&[("attention", "flash_attention_2")], "attention"),
        (&[("framework", "trl")], "framework"),
        (&[("activation_offloading", "streams")], "activation_offloading"),
        (&[("task", "inference_forward")], "task"),
        (&[("task", "causal_lm")], "task"),
        (&[("task", "image_classification")], "task"),
        (&[("seq_len", "78")], "seq_len max_new_tokens"),
        (&[("dropout", "0.1")], "model"),
        (&[("model.image_size", "336")], "model"),
    ] {
        let error = refused(CLIP, settings);
        assert_eq!(error.keys.join(" "), about, "{settings:?}: {error}");
        assert!(error.hint.is_some(), "{error}");
    }
    let other = refused("gpt2", &[("task", "contrastive")]);
    assert!(other.problem.contains("no towers of images and of texts"), "{other}");
}

/// Scores that eager attention holds of the patches of so many images.
#[test]
fn pairs_beyond_any_memory_are_refused_by_their_number() {
    let source = JobSource::model("google/siglip-so400m-patch14-384").set("attention", "eager").set("gpu", "h200");
    let job = source.set("micro_batch_size", 1_u64 << 20).resolve(&[]).unwrap().job;
    let error = estimate(&job).unwrap_err().to_string();
    assert!(error.starts_with("`micro_batch_size`: 1048576 pairs"), "{error}");
}

/// What OpenAI's configs have beside a tower's config holds in its place (`CLIPConfig.__post_init__`).
#[test]
fn a_second_config_of_a_tower_holds_in_place_of_the_first() {
    let parameters = |second: &str| {
        let config = format!(
            r#"{{"model_type": "clip", "text_config": {{"vocab_size": 1000}}, "vision_config": {{}}{second}}}"#
        );
        let model = tonnage_core::job::hf::parse_config("clip", "config.json", &config).unwrap().spec;
        tonnage_core::step::parameter_count(&model).unwrap()
    };
    let [first, null, second] =
        ["", r#", "text_config_dict": null"#, r#", "text_config_dict": {"vocab_size": 2000}"#].map(parameters);
    assert_eq!((null, second - first), (first, 1000 * 512));
}

#[test]
fn a_rank_has_its_own_pairs() {
    let peak = |rows: u64, world: &str| {
        let source = JobSource::model(CLIP).set("micro_batch_size", rows).set("precision", "bf16").set("gpu", "h200");
        let source = source.set("parallel", "ddp").set("world_size", world).set("padded", "false");
        estimate(&source.resolve(&[]).unwrap().job).unwrap().peak_allocated_bytes
    };
    let (one, two) = (peak(512, "2"), peak(1024, "2"));
    assert!(two > one && two < 2 * one, "weights do not grow: {one} {two}");
    assert_eq!(peak(512, "8"), one, "nothing is gathered");
}
