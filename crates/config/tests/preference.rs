//! Configs of trainers of preferences and rollouts come to their tasks.

use tonnage_config::{ConfigText, Kind, read_files};
use tonnage_core::job::{Allowance, JobError, JobSource, Resolved, TaskName};

const TRL: &str = "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 600\nper_device_train_batch_size: 4\nbeta: 0.1\n";
const AXOLOTL: &str = "base_model: Qwen/Qwen2.5-0.5B\nsequence_len: 600\nmicro_batch_size: 2\nbf16: true\n";

fn resolved(kind: Option<Kind>, text: &str) -> Result<Resolved, JobError> {
    read_files(&[(kind, ConfigText { name: "run.yaml", text })])?.as_source(JobSource::new())?.resolve(&[])
}

fn said(resolved: &Resolved, keys: &[&str]) -> Vec<String> {
    let value =
        |key: &&str| resolved.provenance.iter().find(|value| value.key == **key).map(|value| value.value.clone());
    keys.iter().map(|key| value(key).unwrap_or_default()).collect()
}

#[test]
fn trls_trainers_are_told_by_keys_that_no_other_has() {
    let cases = [
        ("desirable_weight: 1.0\n", TaskName::Kto),
        ("loss_type: apo_zero_unpaired\n", TaskName::Kto),
        ("cpo_alpha: 0.5\n", TaskName::Cpo),
        ("normalize_advantages: false\nnum_generations: 2\n", TaskName::Rloo),
        ("num_generations: 4\n", TaskName::Grpo),
        ("loss_type: sigmoid\n", TaskName::Dpo),
    ];
    for (more, task) in cases {
        assert_eq!(resolved(None, &format!("{TRL}{more}")).unwrap().job.task.name(), task, "{more}");
    }
}

#[test]
fn those_without_a_key_of_their_own_are_named() {
    let orpo = resolved(Some(Kind::TrlOrpo), TRL).unwrap();
    assert_eq!(
        said(&orpo, &["task", "prompt_len", "completion_len", "precision"]),
        ["\"orpo\"", "300", "300", "\"bf16-amp\""]
    );
    let kto = resolved(Some(Kind::TrlKto), &format!("{TRL}precompute_ref_log_probs: true\n")).unwrap();
    let keys = ["task", "kto.precompute_ref_log_probs", "kto.loss", "precision"];
    assert_eq!(said(&kto, &keys), ["\"kto\"", "true", "\"kto\"", "\"amp-bf16\""]);
    let alpha = resolved(Some(Kind::TrlCpo), &format!("{TRL}loss_type: alphapo\ncpo_alpha: 1.0\n")).unwrap();
    assert_eq!(said(&alpha, &["task", "cpo.loss"]), ["\"cpo\"", "\"simpo\""]);
    assert_eq!(said(&alpha, &["cpo.alpha"])[0].parse::<f64>(), Ok(0.0));
}

#[test]
fn axolotl_trains_them_with_trl() {
    let of = |more: &str| resolved(Some(Kind::Axolotl), &format!("{AXOLOTL}{more}")).unwrap();
    let lora = "adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj]\n";
    for (rl, task) in [("kto", TaskName::Kto), ("orpo", TaskName::Orpo), ("simpo", TaskName::Cpo)] {
        assert_eq!(of(&format!("{lora}rl: {rl}\n")).job.task.name(), task);
    }
    let simpo = of(&format!("{lora}rl: simpo\ncpo_alpha: 0.0\n"));
    assert_eq!(said(&simpo, &["cpo.loss", "prompt_len"]), ["\"simpo\"", "300"]);
    // In full it keeps a model that the trainer never sees.
    let keeps_more = |resolved: &Resolved| {
        resolved
            .job
            .left_open
            .iter()
            .any(|left| left.allowance == Allowance::Unknown && left.text.contains("a model more"))
    };
    assert!(keeps_more(&of("rl: kto\n")) && keeps_more(&of("rl: simpo\n")));
    assert!(!keeps_more(&simpo) && !keeps_more(&of("rl: orpo\n")));
}
