//! TRL's `KTOConfig`, `ORPOConfig` and `CPOConfig`, beside what all configs of TRL have, and what `RLOOConfig` has beside `GRPOConfig`'s.

use tonnage_core::job::{Allowance, keys};

use super::trl::answer_length;
use super::words::LOSS;
use crate::facts::Facts;
use crate::rule::Rule::{Notes, Reads, Refuses, Sets};
use crate::rule::{Became, OFF, Row, Rule, Said};
use crate::tree::{is_null, plain_text};

const GENERATES: &str = "an evaluation that generates is not simulated";
const ENCODERS: &str = "encoder-decoders are not simulated";

/// `KTOConfig`, beside `TrainingArguments`.
pub const KTO: &[Row] = &[
    ("max_length", Reads(answer_length)),
    ("max_prompt_length", Sets(keys::PROMPT_LEN)),
    ("max_completion_length", Sets(keys::COMPLETION_LEN)),
    ("precompute_ref_log_probs", Sets(keys::KTO_PRECOMPUTE_REF_LOG_PROBS)),
    ("precompute_ref_batch_size", Rule::Free("rows of a pass before training, without gradients")),
    ("loss_type", Sets(keys::KTO_LOSS)),
    ("beta", Rule::Free(LOSS)),
    ("desirable_weight", Rule::Free(LOSS)),
    ("undesirable_weight", Rule::Free(LOSS)),
    ("train_sampling_strategy", Rule::Free("the order of rows")),
    ("generate_during_eval", Notes(GENERATES, Allowance::Unknown)),
    ("is_encoder_decoder", Refuses(ENCODERS)),
];

/// `ORPOConfig`.
pub const ORPO: &[Row] = &[
    ("max_length", Reads(answer_length)),
    ("max_prompt_length", Sets(keys::PROMPT_LEN)),
    ("max_completion_length", Rule::Free("only encoder-decoders read it")),
    ("beta", Rule::Free(LOSS)),
    ("generate_during_eval", Notes(GENERATES, Allowance::Unknown)),
    ("is_encoder_decoder", Refuses(ENCODERS)),
];

/// `CPOConfig`.
pub const CPO: &[Row] = &[
    ("max_length", Reads(answer_length)),
    ("max_prompt_length", Sets(keys::PROMPT_LEN)),
    ("max_completion_length", Rule::Free("only encoder-decoders read it")),
    ("loss_type", Reads(cpo_loss)),
    ("cpo_alpha", Reads(cpo_alpha)),
    ("alpha", Reads(alpha_of_rewards)),
    ("beta", Rule::Free(LOSS)),
    ("simpo_gamma", Rule::Free(LOSS)),
    ("label_smoothing", Rule::Free(LOSS)),
    ("generate_during_eval", Notes(GENERATES, Allowance::Unknown)),
    ("is_encoder_decoder", Refuses(ENCODERS)),
];

/// `RLOOConfig`, where it is not `GRPOConfig`.
pub const RLOO: &[Row] = &[
    (
        "normalize_advantages",
        Notes("a mean and a deviation of the advantages more are not simulated: a few numbers", Allowance::None),
    ),
    ("reward_clip_range", Rule::Free("a number a row more while rewards are counted")),
];

/// The trainer of a config by keys and values that no other has.
pub(super) fn is_kto(word: &str) -> bool {
    matches!(word, "kto" | "apo_zero_unpaired")
}

/// `loss_type`; AlphaPO's name stands for SimPO's loss without the likelihood (cpo_config.py).
fn cpo_loss(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.word() != "alphapo" {
        return facts.set_key(keys::CPO_LOSS, said.value, said.place);
    }
    facts.set_text(keys::CPO_LOSS, "simpo", said.place);
    facts.set_text(keys::CPO_ALPHA, 0.0, said.place);
    Became::Used(keys::CPO_LOSS)
}

fn cpo_alpha(facts: &mut Facts, said: &Said<'_>) -> Became {
    if said.other("loss_type").is_some_and(|loss| plain_text(&loss) == "alphapo") {
        return Became::NoMemory("0 with loss_type alphapo, whatever is said");
    }
    facts.set_key(keys::CPO_ALPHA, said.value, said.place)
}

/// `alpha`: other rewards, of a number a row each.
fn alpha_of_rewards(_: &mut Facts, said: &Said<'_>) -> Became {
    if is_null(said.value) || said.value.as_f64() == Some(0.0) {
        return Became::NoMemory(OFF);
    }
    Became::NoMemory("a few numbers a row more, while the loss is counted")
}
