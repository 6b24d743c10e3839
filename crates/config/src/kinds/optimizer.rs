//! What `optim` names: core's words for optimizers, and those that mean something nearby.

use tonnage_core::job::words::{Meaning, meaning_of_value};
use tonnage_core::job::{Allowance, Key, Kind, OptimizerKind, keys};

use super::words::SCALAR;
use crate::facts::Facts;
use crate::rule::{Became, OFF, Said};
use crate::tree::{is_null, plain_text};

/// An optimizer's word, the key's value, and what differs.
type Word = (&'static str, &'static str, Option<(&'static str, Allowance)>);

const APEX: &str = "apex's fused AdamW is simulated as PyTorch's; the range allows a fifth of the peak";
const MUON: &str =
    "a trainer's own Muon is simulated as Muon for matrices beside AdamW; the range allows a fifth of the peak";

/// Words of transformers (5.17, training_args.py, `OptimizerNames`), Axolotl and LLaMA-Factory that core lacks, or has for another
/// implementation.
const WORDS: &[Word] = &[
    ("adamw_hf", "adamw", None),
    ("adamw_apex_fused", "adamw_fused", Some((APEX, Allowance::Fifth))),
    ("muon", "muon", Some((MUON, Allowance::Fifth))),
];

/// What an optimizer's word comes to.
pub fn read(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    let word = word.trim_start_matches("optimizernames.");
    let nearby = WORDS.iter().find(|(theirs, ..)| *theirs == word).map(|(_, ours, noted)| (*ours, &[][..], *noted));
    let known = || known_word(word).map(|(ours, others)| (ours, others, None));
    match nearby.or_else(known) {
        Some((ours, others, noted)) => {
            facts.set_text(keys::OPTIMIZER, ours, said.place);
            others.iter().for_each(|(key, value)| facts.set_text(key, value, said.place));
            noted.map_or(Became::Used(keys::OPTIMIZER), |(text, allowance)| Became::Noted(text.to_owned(), allowance))
        }
        None => Became::Refused(format!("the optimizer `{}` is not simulated", crate::text::brief_text(word))),
    }
}

/// `weight_decay`, which some optimizers add to a copy of the gradients.
pub fn decay(facts: &mut Facts, said: &Said<'_>) -> Became {
    let text = plain_text(said.value);
    let rate = text.trim().parse::<f64>();
    facts.says_decay |= rate.is_ok();
    match rate {
        Ok(rate) if rate > 0.0 && rate.is_finite() => {
            // As TOML writes it: YAML has `.1` and `1e-2` too.
            facts.set_text(keys::WEIGHT_DECAY, format!("{rate:?}"), said.place);
            Became::Used(keys::WEIGHT_DECAY)
        }
        Ok(_) => Became::NoMemory(OFF),
        Err(_) if is_null(said.value) || text == "auto" => Became::NoMemory(SCALAR),
        Err(_) => Became::NotUnderstood,
    }
}

/// The decay that a trainer has where its files say none: only optimizers that copy gradients for it are told.
pub fn imply_decay(facts: &mut Facts, rate: &str, why: &str) {
    let word = facts.value_of(keys::OPTIMIZER).unwrap_or_default();
    let kind = serde_json::from_value::<OptimizerKind>(word.into());
    if kind.is_ok_and(OptimizerKind::adds_decay) && !facts.says_decay {
        facts.imply_key(keys::WEIGHT_DECAY, rate, why);
    }
}

/// The key's value that a word is, or is another name of, and what else it says.
fn known_word(word: &str) -> Option<(&'static str, &'static [(&'static str, &'static str)])> {
    let Kind::Choice(words) = &Key::find(keys::OPTIMIZER)?.kind else { return None };
    match meaning_of_value(keys::OPTIMIZER, &word.into()) {
        Some(Meaning::Says([(keys::OPTIMIZER, ours), others @ ..])) => Some((ours, others)),
        _ => words.iter().map(|(ours, _)| *ours).find(|ours| *ours == word).map(|ours| (ours, &[][..])),
    }
}
