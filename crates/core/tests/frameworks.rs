//! The defaults of each framework, against six-line scripts that say nothing either (`testdata/frameworks/scripts`, rehearsed).

use serde_json::Value;
use tonnage_core::estimate::{Estimate, estimate};
use tonnage_core::job::{JobSource, Override, Resolved};

const CONFIG: &str = include_str!("../../../testdata/frameworks/config.json");
const TRUTH: &str = include_str!("../../../testdata/frameworks/truth.json");

fn resolved(assignments: &[&str]) -> Resolved {
    let overrides: Vec<_> = assignments.iter().map(|text| Override::assignment(text).unwrap()).collect();
    JobSource::new().config("config.json", CONFIG).resolve(&overrides).unwrap()
}

#[test]
fn a_script_that_says_nothing_is_estimated_to_the_byte() {
    let truth: Value = serde_json::from_str(TRUTH).unwrap();
    for framework in ["loop", "trainer", "trl"] {
        let said = [
            "model=config.json".to_owned(),
            format!("framework={framework}"),
            format!("seq_len={}", truth["seq_len"]),
            format!("steps={}", truth["steps"]),
            "gpu=h100".to_owned(),
        ];
        let job = resolved(&said.each_ref().map(String::as_str)).job;
        let estimate = estimate(&job).unwrap();
        let expected = ["peak_allocated_bytes", "peak_reserved_bytes"].map(|key| truth[framework][key].as_u64());
        assert_eq!([estimate.peak_allocated_bytes, estimate.peak_reserved_bytes].map(Some), expected, "{framework}");
    }
}

#[test]
fn a_default_says_whose_it_is() {
    let whose = |framework: &str, key: &str| {
        let said = ["model=config.json", "gpu=h100", framework];
        resolved(&said).origin(key).unwrap().to_string()
    };
    let cases = [
        ("framework=trainer", "optimizer", "Hugging Face Trainer's"),
        ("framework=trl", "precision", "TRL 1.16's SFTConfig"),
        ("framework=loop", "use_cache", "a plain loop leaves"),
        ("framework=trainer", "precision", "from_pretrained of transformers 5 loads"),
        ("framework=accelerate", "clip_grad_norm", "a plain loop does not clip"),
    ];
    for (framework, key, why) in cases {
        assert!(whose(framework, key).contains(why), "{framework} {key}: {}", whose(framework, key));
    }
}

/// Notes and caveats of an answer, with the kind of loss and whether layers are Liger's.
fn answered(assignments: &[&str]) -> (String, String, bool) {
    let said = [&["model=config.json", "seq_len=128", "gpu=h100"], assignments].concat();
    let resolved = resolved(&said);
    let estimate = estimate(&resolved.job).unwrap();
    let caveats = estimate.caveats.iter().map(|caveat| caveat.text.clone());
    let said = resolved.notes.into_iter().chain(caveats).collect::<Vec<_>>().join("\n");
    (said, format!("{:?}", resolved.job.logits.loss), resolved.job.liger_kernels)
}

#[test]
fn the_trainers_flag_brings_ligers_layers_and_its_loss() {
    let (said, loss, layers) = answered(&["use_liger_kernel=true"]);
    assert_eq!((loss.as_str(), layers), ("Liger", true));
    assert!(!said.contains("of Liger only"), "{said}");
    // SFTTrainer keeps its own head.
    let (_, loss, layers) = answered(&["use_liger_kernel=true", "framework=trl"]);
    assert_eq!((loss.as_str(), layers), ("Full", true));
    let (said, loss, layers) = answered(&["loss=liger"]);
    assert_eq!((loss.as_str(), layers), ("Liger", false));
    assert!(said.contains("of Liger only the fused loss"), "{said}");
    // It has nothing for GPT-2, and the Trainer goes on without.
    let (said, loss, _) = answered(&["model=gpt2", "use_liger_kernel=true"]);
    assert_eq!(loss, "Full");
    assert!(said.contains("Liger has no kernels for `gpt2`"), "{said}");
}

#[test]
fn a_row_of_one_token_gives_the_head_of_sft_nothing_to_predict() {
    let of_length = |length: &str, framework: &str| {
        let said = ["model=config.json", "gpu=h100", length, framework].map(|text| Override::assignment(text).unwrap());
        JobSource::new().config("config.json", CONFIG).resolve(&said).map(|resolved| estimate(&resolved.job).is_ok())
    };
    let refused = of_length("seq_len=1", "framework=trl").unwrap_err();
    assert!(refused.to_string().contains("none to predict"), "{refused}");
    for (length, framework) in
        [("seq_len=2", "framework=trl"), ("seq_len=1", "framework=trainer"), ("seq_len=1", "framework=loop")]
    {
        assert_eq!(of_length(length, framework), Ok(true), "{length} {framework}");
    }
}

#[test]
fn ligers_layers_and_loss_lower_the_peak_as_far_as_they_are_asked_for() {
    let peak = |assignments: &[&str]| {
        let said = [&["model=config.json", "seq_len=1024", "gpu=h100"], assignments].concat();
        estimate(&resolved(&said).job).unwrap().peak_allocated_bytes
    };
    let [all, loss_only, none] = [&["use_liger_kernel=true"][..], &["loss=liger"], &[]].map(peak);
    assert!(all < loss_only && loss_only < none, "{all} {loss_only} {none}");
}

#[test]
fn what_a_trainer_does_not_do_is_said_and_allowed_for() {
    for assignments in [
        &["zero_grad_set_to_none=false"][..],
        &["train_mode=false"],
        &["parallel=data_parallel", "world_size=2"],
        &["framework=trl", "parallel=fsdp2", "world_size=2"],
    ] {
        let said = [&["model=config.json", "seq_len=128", "gpu=h100"], assignments].concat();
        let estimate = estimate(&resolved(&said).job).unwrap();
        let caveat = estimate.caveats.iter().find(|caveat| caveat.code == "plain_loop");
        assert!(caveat.is_some_and(|caveat| caveat.widens_bytes > 0), "{assignments:?}");
    }
    for assignments in [&["precision=amp-fp16"][..], &["keep_outputs=true"], &["use_cache=true"], &["world_size=2"]] {
        let said = [&["model=config.json", "seq_len=128", "gpu=h100"], assignments].concat();
        let estimate = estimate(&resolved(&said).job).unwrap();
        assert!(estimate.caveats.iter().all(|caveat| caveat.code != "plain_loop"), "{assignments:?}");
    }
}

#[test]
fn rows_that_may_be_padded_widen_an_answer_with_the_flash_attn_package() {
    let widened = |rows: &str| {
        let said =
            ["model=config.json", "seq_len=512", "gpu=h100", "precision=bf16", "attention=flash_attention_2", rows];
        let caveats = estimate(&resolved(&said).job).unwrap().caveats;
        caveats.iter().find(|caveat| caveat.code == "flash_attn_from_source").map(|caveat| caveat.widens_bytes)
    };
    assert_eq!(widened("micro_batch_size=1"), Some(0));
    // Six layers' outputs once more, and three copies while one runs: 4 rows x 512 tokens x 512 x 2 bytes each.
    assert_eq!(widened("micro_batch_size=4"), Some(4 * 512 * 512 * 2 * 9));
}

#[test]
fn the_range_reaches_to_padded_rows_until_somebody_says_how_long_rows_are() {
    for assignments in [
        &["framework=trainer", "micro_batch_size=4", "seq_len=256"][..],
        &["framework=trl", "micro_batch_size=4", "seq_len=256", "precision=bf16", "gradient_checkpointing=true"],
        &["task=dpo", "micro_batch_size=1", "prompt_len=512", "completion_len=256"],
    ] {
        let asked = |padded: &[&str]| {
            let said = [&["model=config.json", "gpu=h100"], assignments, padded].concat();
            estimate(&resolved(&said).job).unwrap()
        };
        let reaches = |estimate: &Estimate| estimate.range.1;
        let [unknown, padded, even] = [asked(&[]), asked(&["padded=true"]), asked(&["padded=false"])];
        assert_eq!(unknown.peak_reserved_bytes, even.peak_reserved_bytes, "{assignments:?}");
        assert!(reaches(&padded) > reaches(&even), "{assignments:?}: the masks take nothing");
        assert_eq!(reaches(&unknown), reaches(&padded), "{assignments:?}");
        let told = |estimate: &Estimate| estimate.caveats.iter().any(|caveat| caveat.code == "padded_rows");
        assert!(told(&unknown) && !told(&padded) && !told(&even), "{assignments:?}");
    }
    let refused = JobSource::model("gpt2").set("task", "grpo").set("padded", "true").resolve(&[]).unwrap_err();
    assert!(refused.to_string().contains("GRPO and RLOO have a key of their own"), "{refused}");
}
