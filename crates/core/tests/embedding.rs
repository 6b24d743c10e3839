//! What embeddings refuse, and what must hold of them whatever their sizes.

use tonnage_core::estimate::estimate;
use tonnage_core::job::{JobError, JobSource, JobSpec};

const BERT: &str = r#"model = { model_type = "bert", num_hidden_layers = 2, hidden_size = 32, num_attention_heads = 2, intermediate_size = 64, vocab_size = 99, architectures = ["BertModel"] }
gpu = "h100"
seq_len = 64
"#;

fn resolve(rest: &str) -> Result<JobSpec, JobError> {
    JobSource::from_file("job.toml", format!("{BERT}{rest}")).resolve(&[]).map(|resolved| resolved.job)
}

fn peak(rest: &str) -> u64 {
    let job = resolve(&format!("task = \"embedding\"\nmicro_batch_size = 32\n{rest}")).unwrap();
    estimate(&job).unwrap().peak_allocated_bytes
}

#[test]
fn the_bare_model_is_embedded_with_and_nothing_else() {
    assert!(resolve("task = \"embedding\"").is_ok());
    assert!(resolve("task = \"masked_lm\"").is_err());
}

#[test]
fn what_was_not_measured_is_refused_with_a_way_out() {
    let refused = [
        "world_size = 2\nparallel = \"ddp\"",
        "micro_batch_size = 512\nembedding.mini_batch_size = 1",
        "precision = \"bf16\"\nlora.r = 8",
        "attention = \"math\"",
        "framework = \"accelerate\"",
        "activation_offloading = \"save_on_cpu\"",
        "embedding.anchor_len = 600",
    ];
    for rest in refused {
        let error = resolve(&format!("task = \"embedding\"\n{rest}")).expect_err(rest);
        assert!(error.hint.as_ref().is_some_and(|hint| !hint.is_empty()), "{rest}: {error}");
    }
}

#[test]
fn a_smaller_part_of_a_cached_batch_takes_less() {
    let peaks = ["", "embedding.mini_batch_size = 16", "embedding.mini_batch_size = 4"].map(peak);
    assert!(peaks.is_sorted_by(|larger, smaller| larger > smaller), "{peaks:?}");
}

#[test]
fn each_more_negative_takes_more() {
    let peaks = [0, 1, 2, 3].map(|negatives| peak(&format!("embedding.negatives = {negatives}")));
    assert!(peaks.is_sorted_by(|smaller, larger| smaller < larger), "{peaks:?}");
}
