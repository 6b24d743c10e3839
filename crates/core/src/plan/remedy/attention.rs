//! Attention without a matrix of scores.

use super::{Remedy, Results, change_one, done};
use crate::job::Attention;
use crate::job::keys;

pub(super) const SDPA: Remedy = Remedy {
    name: "sdpa",
    text: "let PyTorch choose a kernel that keeps no attention scores",
    results: Results::Rounding,
    caution: "",
    apply: |job| match job.attention {
        Attention::Eager | Attention::Math => change_one(keys::ATTENTION, "sdpa"),
        _ => done("attention keeps no scores already"),
    },
};
