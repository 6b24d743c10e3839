//! A small GPT as its trainer's guide gives it: a training file or flags, one answer, and what has no meaning refused.

use serde_json::Value;

use super::{json, tonnage};

const LILWILL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lilwill.toml");
/// The same job in the words of the guide's own command.
const FLAGS: [&str; 10] =
    ["--model-embd", "384", "--model-layer", "6", "--model-head", "6", "--batch-size", "24", "--seq-len", "512"];

fn answer(args: &[&str]) -> Value {
    json(&[&["estimate", "--gpu", "h100", "--json"], args].concat())
}

fn figures(answer: &Value) -> [u64; 4] {
    let size = |value: &Value| value.as_u64().unwrap();
    [
        size(&answer["model"]["param_count"]),
        size(&answer["peak_allocated_bytes"]),
        size(&answer["peak_reserved_bytes"]),
        size(&answer["total_bytes"]),
    ]
}

/// What the trainer's own model and loop took, measured.
fn measured(case: &str) -> [u64; 2] {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/truth/agi2_truth.json");
    let truth: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    ["peak_allocated_bytes", "peak_reserved_bytes"].map(|name| truth["cases"][case][name].as_u64().unwrap())
}

#[test]
fn file_and_flags_give_the_measured_figures_of_the_trainer() {
    for (file, flags, case) in
        [(vec!["--precision", "fp32"], vec![], "lilwill_fp32"), (vec![], vec!["--mixed-precision"], "lilwill_ampfp16")]
    {
        let of_file = figures(&answer(&[&[LILWILL], file.as_slice()].concat()));
        assert_eq!(of_file, figures(&answer(&[FLAGS.as_slice(), flags.as_slice()].concat())), "{case}");
        assert_eq!(of_file[0], 29_946_240);
        assert_eq!(of_file[1..3], measured(case), "{case}");
    }
    // The guide's second example, whose command leaves most to the defaults, in its words and in ours.
    let sizes = ["--model-embd", "768", "--model-layer", "12"];
    let guide = figures(&answer(&[sizes.as_slice(), &["--batch-size", "8", "--mixed-precision"]].concat()));
    let ours = figures(&answer(&[sizes.as_slice(), &["-b", "8", "--precision", "amp-fp16"]].concat()));
    let changed = figures(&answer(&[&[LILWILL], sizes.as_slice(), &["--batch-size", "8"]].concat()));
    assert_eq!((guide, guide), (ours, changed));
    assert_eq!(guide[1..3], measured("medium_ampfp16"));
}

#[test]
fn a_card_that_the_trainer_does_not_fit_on_is_no_fit() {
    let code = |args: &[&str]| tonnage(&[&["estimate", LILWILL, "--quiet"], args].concat()).status.code();
    assert_eq!(code(&["--precision", "fp32", "--gpu", "t4"]), Some(1));
    assert_eq!(code(&["--precision", "fp32", "--gpu", "l4"]), Some(0));
}

#[test]
fn what_the_trainer_has_not_is_refused_or_said() {
    let refused = |args: &[&str]| {
        let output = tonnage(&[&["estimate"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for (args, key) in [
        (&["--attention", "sdpa"][..], "`attention`"),
        (&["--world-size", "2", "--parallel", "data_parallel"], "`world_size`"),
        (&["--precision", "bf16"], "`precision`"),
        (&["--lora-r", "8", "--lora-targets", "w_q"], "`lora`"),
        (&["--task", "generate"], "`task`"),
    ] {
        let message = refused(&[&[LILWILL], args].concat());
        assert!(message.contains(key) && message.contains("tonnage rehearse"), "{args:?}: {message}");
    }
    assert_eq!(figures(&answer(&[LILWILL, "--attention", "eager"])), figures(&answer(&[LILWILL])));
    assert!(refused(&["gpt2", "--batch-size", "8"]).contains("--micro-batch-size"));
    assert!(refused(&["gpt2", "--mixed-precision"]).contains("--precision amp-bf16"));
    let screen = String::from_utf8(tonnage(&["estimate", LILWILL, "--gradient-checkpointing"]).stdout).unwrap();
    assert!(screen.contains("no switch for gradient checkpointing"), "{screen}");
}

#[test]
fn the_guides_headline_takes_one_call() {
    let screen = tonnage(&["estimate", LILWILL, "--legacy", "--compare", "fp32,amp-fp16"]).stdout;
    let screen = String::from_utf8(screen).unwrap();
    assert!(screen.contains("0.54 GiB") && screen.contains("0.31 GiB"), "{screen}");
    let compared = json(&["estimate", LILWILL, "--legacy", "--compare", "fp32,amp-fp16", "--json"]);
    let bytes = compared["compare"][1]["estimate"]["legacy"]["total_bytes"].as_u64();
    let alone = json(&["estimate", LILWILL, "--legacy", "--json"])["legacy"]["total_bytes"].as_u64();
    assert!(bytes.is_some() && bytes == alone, "{bytes:?} {alone:?}");
}
