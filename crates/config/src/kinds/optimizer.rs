//! What `optim` names: Hugging Face's words for optimizers.

use tonnage_core::job::{Allowance, keys};

use crate::facts::Facts;
use crate::rule::{Became, Said};

/// An optimizer's word, the key's value, and what differs.
type Word = (&'static str, &'static str, Option<(&'static str, Allowance)>);

const APEX: &str = "apex's fused AdamW is simulated as PyTorch's; the range allows a fifth of the peak";
const HF_ADAFACTOR: &str =
    "transformers' own Adafactor is simulated as PyTorch's; the range allows a fifth of the peak";

const TORCHAO: &str = "torchao's AdamW of 8-bit states is simulated as bitsandbytes', whose states and scales are as large; its \
                       compiled step was not measured, the range allows a fifth of the peak";
const TORCHAO_4BIT: &str = "torchao's AdamW of 4-bit states is simulated as one of 8 bits, whose states are twice as large; its compiled \
                            step was not measured, the range allows a fifth of the peak";
const MUON: &str =
    "a trainer's own Muon is simulated as Muon for matrices beside AdamW; the range allows a fifth of the peak";

/// `OptimizerNames` of transformers 5.17 (training_args.py), and those of Axolotl and LLaMA-Factory that mean the same.
const WORDS: &[Word] = &[
    ("adamw_torch", "adamw", None),
    ("adamw_torch_fused", "adamw_fused", None),
    ("adamw_hf", "adamw", None),
    ("adamw", "adamw", None),
    ("adam", "adam", None),
    ("adamw_apex_fused", "adamw_fused", Some((APEX, Allowance::Fifth))),
    ("adafactor", "adafactor", Some((HF_ADAFACTOR, Allowance::Fifth))),
    ("sgd", "sgd", None),
    ("lion_32bit", "lion", None),
    ("adamw_bnb_8bit", "adamw8bit", None),
    ("adamw_8bit", "adamw8bit", None),
    ("paged_adamw_8bit", "paged_adamw_8bit", None),
    ("paged_adamw_32bit", "paged_adamw_32bit", None),
    ("schedule_free_adamw", "schedule_free_adamw", None),
    ("paged_adamw", "paged_adamw_32bit", None),
    ("adamw_torch_8bit", "adamw8bit", Some((TORCHAO, Allowance::Fifth))),
    ("ao_adamw_8bit", "adamw8bit", Some((TORCHAO, Allowance::Fifth))),
    ("adamw_torch_4bit", "adamw8bit", Some((TORCHAO_4BIT, Allowance::Fifth))),
    ("ao_adamw_4bit", "adamw8bit", Some((TORCHAO_4BIT, Allowance::Fifth))),
    ("muon", "muon", Some((MUON, Allowance::Fifth))),
];

/// What an optimizer's word comes to.
pub fn read(facts: &mut Facts, said: &Said<'_>) -> Became {
    let word = said.word();
    let word = word.trim_start_matches("optimizernames.");
    match WORDS.iter().find(|(theirs, ..)| *theirs == word) {
        Some((_, ours, noted)) => {
            facts.set_text(keys::OPTIMIZER, ours, said.place);
            facts.takes_shards |= noted.is_some_and(|(text, _)| matches!(text, TORCHAO | TORCHAO_4BIT));
            match noted {
                Some((text, allowance)) => Became::Noted((*text).to_owned(), *allowance),
                None => Became::Used(keys::OPTIMIZER),
            }
        }
        None => Became::Refused(format!("the optimizer `{}` is not simulated", crate::text::brief_text(word))),
    }
}
