//! Fewer tokens a row.

use super::{Applied, Remedy, Results, done, not_for, one};
use crate::spec::Task;

pub(super) const SHORTER_COMPLETIONS: Remedy = Remedy {
    name: "shorter_completions",
    text: "cut completions to half their length",
    results: Results::Changed,
    caution: "",
    apply: |job| match &job.task {
        Task::Grpo(grpo) => halved("completion_len", grpo.completion_len),
        Task::Swarm(swarm) => halved("completion_len", swarm.completion_len),
        Task::Dpo(dpo) => halved("completion_len", dpo.completion_len),
        _ => not_for("rows have no completions"),
    },
};

pub(super) const SHORTER_ROWS: Remedy = Remedy {
    name: "shorter_rows",
    text: "cut rows to half their length",
    results: Results::Changed,
    caution: "",
    apply: |job| match &job.task {
        Task::CausalLm | Task::MaskedLm => halved("seq_len", job.seq_len),
        _ => not_for("the length of rows is not free"),
    },
};

fn halved(key: &'static str, tokens: u64) -> Applied {
    if tokens < 2 { done("one token is left") } else { one(key, (tokens / 2).to_string()) }
}
