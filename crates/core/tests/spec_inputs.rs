//! Everything that parses what a user hands over: the examples resolve, and no bytes make a parser panic.

use proptest::prelude::*;
use serde_json::Value;
use tonnage_core::gpu::Gpu;
use tonnage_core::job::{
    Architecture, JobError, JobSource, KEYS, Override, Precision, Resolved, find_architecture, from_case, hf,
    safetensors,
};
use tonnage_core::model_type::known_model_types;

fn resolved(job_file: &str, overrides: &[Override]) -> Result<Resolved, JobError> {
    JobSource::from_file("job.toml", job_file).resolve(overrides)
}

#[test]
fn the_examples_resolve() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            resolved(&text, &[]).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            seen += 1;
        }
    }
    assert!(seen >= 5);
}

#[test]
fn the_small_gpt_file_is_the_guides_job() {
    let text = include_str!("../../../examples/lilwill.toml");
    let Resolved { job, notes, .. } = resolved(text, &[]).unwrap();
    assert_eq!((job.model.model_type.as_str(), job.micro_batch_size, job.seq_len), ("agi2", 24, 512));
    assert_eq!(job.model.config.size("n_embd", 768), Ok(384));
    assert_eq!(job.precision, Precision::AmpFp16);
    assert!(notes.iter().any(|note| note.contains("`learning_rate`")), "{notes:?}");
}

#[test]
fn the_reference_cases_read() {
    let text = r#"[{"id": "mini", "model": {"family": "gpt2", "n_layer": 6}, "micro_batch": 24, "seq_len": 512,
        "precision": "amp_fp16", "attn": "eager"}]"#;
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert!(cases.iter().all(|case| from_case(case).is_ok()));
}

/// Text in which a key of the table, a plausible value and noise meet.
fn nearly_a_job_file() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        (0..KEYS.len()).prop_map(|index| KEYS[index].name.to_owned()),
        prop::sample::select(vec!["model_embd", "model_layer", "use_amp", "batch_size", "lora", "[lora]", "[model]"])
            .prop_map(str::to_owned),
        "[a-z_.\\[\\]]{0,12}",
    ];
    let value = prop_oneof![
        (0..KEYS.len()).prop_map(|index| KEYS[index].example.to_owned()),
        "-?[0-9]{1,20}",
        "\"[ -~]{0,12}\"",
        "\\PC{0,12}",
    ];
    let line = (key, value).prop_map(|(key, value)| format!("{key} = {value}\n"));
    prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
}

/// A config in which any field may be anything.
fn nearly_a_config() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec![
        "model_type",
        "architectures",
        "hidden_size",
        "n_embd",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "text_config",
        "quantization_config",
        "torch_dtype",
        "is_encoder_decoder",
    ]);
    let value = prop::sample::select(vec![
        "\"llama\"",
        "\"mpt\"",
        "[\"GPT2LMHeadModel\"]",
        "64",
        "0",
        "-1",
        "1e300",
        "null",
        "true",
        "{}",
        "[]",
        "{\"model_type\": \"llama\"}",
        "{\"text_config\": {}}",
        "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}",
        "{\"quant_method\": \"awq\", \"group_size\": -2}",
    ]);
    let entry = (field, value).prop_map(|(field, value)| format!("\"{field}\": {value}"));
    prop::collection::vec(entry, 0..8).prop_map(|entries| format!("{{{}}}", entries.join(", ")))
}

proptest! {
    #[test]
    fn no_text_breaks_the_job_parser(text in "\\PC{0,200}") {
        let _ = resolved(&text, &[]);
    }

    #[test]
    fn no_nearly_right_job_breaks_the_job_parser(text in nearly_a_job_file()) {
        let _ = resolved(&text, &[]);
        let _ = resolved(&format!("model = \"gpt2\"\n{text}"), &[]);
    }

    #[test]
    fn no_assignment_breaks_the_flags(index in 0..KEYS.len(), value in "\\PC{0,24}") {
        let flag = Override::flag(KEYS[index].name, value);
        if let Ok(resolved) = resolved("model = \"gpt2\"", &[flag]) {
            prop_assert!(resolved.job.micro_batch_size >= 1);
        }
    }

    #[test]
    fn no_text_breaks_the_config_parser(text in prop_oneof!["\\PC{0,200}", nearly_a_config()]) {
        if let Ok(model) = hf::parse_config("m", "config.json", &text) {
            let model_type = model.spec.model_type.as_str();
            prop_assert!(known_model_types().contains(&model_type) || find_architecture(model_type) == Some(Architecture::Decoder));
            let _ = model.spec.config.layers("num_hidden_layers", 1);
        }
    }

    #[test]
    fn no_bytes_break_the_safetensors_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(safetensors::parse_header(&bytes).is_err() || bytes.len() >= 10);
    }

    #[test]
    fn no_header_breaks_the_safetensors_parser(header in "[{}\\[\\]\",:a-zF0-9 ]{0,80}") {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        let _ = safetensors::parse_header(&bytes);
        let _ = safetensors::parse_index(&header);
    }

    #[test]
    fn no_text_breaks_the_gpu_parser(
        text in prop_oneof!["\\PC{0,40}", "[0-9.e+-]{1,8} ?[GMKTgmk]i?[bB](,[a-z_=0-9.]{0,12}){0,3}"],
    ) {
        if let Ok(gpu) = Gpu::parse(&text) {
            prop_assert!(gpu.usable_bytes >= 1 << 20 && gpu.usable_bytes <= 1 << 50);
        }
    }

    #[test]
    fn a_larger_number_is_kept_as_it_is(batch in 1_u64..1_000_000) {
        let flag = Override::flag("micro_batch_size", batch.to_string());
        prop_assert_eq!(resolved("model = \"gpt2\"\nseq_len = 1", &[flag]).map(|r| r.job.micro_batch_size), Ok(batch));
    }
}
