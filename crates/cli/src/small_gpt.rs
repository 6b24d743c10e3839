//! The flags of the founders' small-GPT trainer and guide, which stand beside those of every job.

use clap::{Arg, ArgAction, ArgMatches};
use tonnage_core::job::keys;
use tonnage_core::job::{Origin, Override};

use crate::failure::Failure;

/// Sizes of a small GPT without a config file: flag, field of the config, key of a small-GPT file, meaning.
const GPT_FLAGS: [(&str, &str, &str, &str); 4] = [
    ("model-layer", "model.n_layer", "model_layer", "Layers of a small GPT"),
    ("model-head", "model.n_head", "model_head", "Attention heads of a small GPT"),
    ("model-embd", "model.n_embd", "model_embd", "Hidden size of a small GPT"),
    ("model-positions", "model.n_positions", "model_positions", "Positions of a small GPT"),
];

/// The guide's own words for the batch and for fp16 autocast.
const BATCH_SIZE: &str = "batch-size";
const MIXED_PRECISION: &str = "mixed-precision";

/// The heading of their help.
const HEADING: &str = "Small GPT";

/// Flags of the founders' small-GPT trainer, under its names.
pub fn small_gpt_flags() -> Vec<Arg> {
    let sizes = GPT_FLAGS.iter().map(|(flag, _, _, doc)| {
        let parser = clap::value_parser!(u64).range(1..);
        Arg::new(*flag)
            .long(*flag)
            .value_name("N")
            .value_parser(parser)
            .help(*doc)
            .help_heading(HEADING)
            .hide_short_help(true)
    });
    let batch_size = Arg::new(BATCH_SIZE)
        .long(BATCH_SIZE)
        .value_name("N")
        .value_parser(clap::value_parser!(u64).range(1..))
        .conflicts_with(keys::MICRO_BATCH_SIZE)
        .help("Rows of a batch of a small GPT")
        .help_heading(HEADING)
        .hide_short_help(true);
    let mixed_precision = Arg::new(MIXED_PRECISION)
        .long(MIXED_PRECISION)
        .action(ArgAction::SetTrue)
        .conflicts_with(keys::PRECISION)
        .help("A small GPT under fp16 autocast")
        .help_heading(HEADING)
        .hide_short_help(true);
    sizes.chain([batch_size, mixed_precision]).collect()
}

/// What the flags of a small GPT say: where no model is named, the text of a small-GPT file; else changes to the model.
pub fn read_guide(
    matches: &ArgMatches,
    model: Option<&str>,
    overrides: &mut Vec<Override>,
) -> Result<Option<String>, clap::Error> {
    let sizes: Vec<_> = GPT_FLAGS.iter().filter_map(|row| Some((row, *matches.get_one::<u64>(row.0)?))).collect();
    let batch_size = matches.get_one::<u64>(BATCH_SIZE);
    let mixed_precision = matches.get_flag(MIXED_PRECISION);
    let Some(model) = model else {
        let mut text: String = sizes.iter().map(|((_, _, key, _), size)| format!("{key} = {size}\n")).collect();
        text.extend(batch_size.map(|rows| format!("batch_size = {rows}\n")));
        text.push_str(if mixed_precision { "use_amp = true\n" } else { "" });
        return Ok(Some(text).filter(|_| !sizes.is_empty()));
    };
    let mut set = |key: &str, value: String, flag: &str| {
        overrides.push(Override::new(key, value, Origin::Flag(format!("--{flag}"))));
    };
    sizes.iter().for_each(|((flag, field, ..), size)| set(field, size.to_string(), flag));
    if let Some(rows) = batch_size {
        set(keys::MICRO_BATCH_SIZE, rows.to_string(), BATCH_SIZE);
    }
    if mixed_precision {
        set(keys::PRECISION, "amp-fp16".to_owned(), MIXED_PRECISION);
    }
    let is_file = model.to_lowercase().ends_with(".toml");
    match batch_size.map(|_| BATCH_SIZE).or(mixed_precision.then_some(MIXED_PRECISION)) {
        Some(flag) if !is_file => Err(of_a_small_gpt(flag).into_clap()),
        _ => Ok(None),
    }
}

/// Elsewhere these words leave open which batch, and which half precision, is meant.
fn of_a_small_gpt(flag: &str) -> Failure {
    let hint = if flag == BATCH_SIZE {
        "say `--micro-batch-size` for the rows of a pass, `--global-batch-size` for those of a step"
    } else {
        "say `--precision amp-bf16` or `--precision amp-fp16`"
    };
    Failure::bad_input(format!(
        "`--{flag}` is for a small GPT, given by its training file or by `--model-embd` and its like"
    ))
    .with_hint(hint)
}
