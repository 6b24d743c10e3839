//! Attention without a matrix of scores.

use super::{Remedy, Results, already_done, change_one};
use crate::job::Attention;
use crate::job::keys;

pub(super) const SDPA: Remedy = Remedy {
    name: "sdpa",
    text: "let PyTorch choose a kernel that keeps no attention scores",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.attention {
        Attention::Eager | Attention::Math => change_one(keys::ATTENTION, "sdpa"),
        _ => already_done("attention keeps no scores already"),
    },
};
