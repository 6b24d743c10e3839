//! Fewer tokens a row.

use super::{Applied, Remedy, Results, already_done, change_one, not_for};
use crate::job::LossOf;
use crate::job::keys;

pub(super) const SHORTER_COMPLETIONS: Remedy = Remedy {
    name: "shorter_completions",
    text: "cut completions to half their length",
    results: Results::Changed,
    caution: "",
    apply: |job| match job.task.facts().completion_len() {
        Some(tokens) => halved_length(keys::COMPLETION_LEN, tokens),
        None => not_for("rows have no completions"),
    },
};

pub(super) const SHORTER_ROWS: Remedy = Remedy {
    name: "shorter_rows",
    text: "cut rows to half their length",
    results: Results::Changed,
    caution: "",
    apply: |job| match job.task.facts().loss() {
        LossOf::NextToken | LossOf::MaskedToken | LossOf::Class => halved_length(keys::SEQ_LEN, job.seq_len),
        LossOf::Trainer | LossOf::Nobody => not_for("the length of rows is not free"),
    },
};

fn halved_length(key: &'static str, tokens: u64) -> Applied {
    if tokens < 2 { already_done("one token is left") } else { change_one(key, (tokens / 2).to_string()) }
}
