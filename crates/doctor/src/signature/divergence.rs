//! Losses that are no numbers, and loss scales that cannot fall further: trainers end themselves for them.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::exception::exception_stated;
use crate::text::has_phrase;
use tonnage_core::failure::Class;

pub(super) const LOSS: Signature = Signature {
    name: "loss_is_nan",
    needles: &[
        "oss is nan",
        "oss is NaN",
        "oss is inf",
        "NaN loss",
        "nan loss",
        "iverged with loss = NaN",
        "NanLossDuringTraining",
        "infinite or NaN",
        "found NaN in",
        "NaN detected",
        "oss became NaN",
        "rad norm is nan",
        "on-finite loss",
        "oss: nan, stopping",
        "nan values in its",
        " are Nan/Inf",
        " is nan or inf",
        "either `inf`, `nan`",
        "calculation is NaN",
        "NaN or Inf found",
    ],
    also: &["stop", "Stop", "rror", "xit", "abort", "Abort", "FloatingPoint", "ERROR", "erminat"],
    follow: 0,
    read: |text| {
        // An exception may have backticks of its own.
        let raised = exception_stated(text, true).is_some();
        let said = SAYS.iter().any(|words| has_phrase(text, words)) && (raised || !super::is_talk(text));
        // A step that is skipped is no end.
        let skipped = has_phrase(text, "kipping")
            || has_phrase(text, "OVERFLOW")
            || has_phrase(text, "will be skipped")
            || has_phrase(text, "if ");
        if said && !skipped { diverged() } else { None }
    },
};

const SAYS: &[&str] = &[
    "oss is nan",
    "oss is NaN",
    "oss is inf",
    "NaN loss",
    "nan loss",
    "iverged with loss = NaN",
    "NanLossDuringTrainingError",
    "Function 'infinite or NaN",
    "became infinite or NaN",
    "found NaN in",
    "NaN detected",
    "oss became NaN",
    "rad norm is nan",
    "on-finite loss",
    "oss: nan, stopping",
    "returned nan values in its",
    " are Nan/Inf",
    " is nan or inf",
    "either `inf`, `nan`",
    "calculation is NaN",
    "NaN or Inf found",
];

fn diverged() -> Option<Reading> {
    Reading::whole(FailureCause::Stated { class: Class::Divergence, detail: None })
}

/// DeepSpeed, fairseq and their like.
pub(super) const SCALE: Signature = Signature {
    name: "loss_scale_at_minimum",
    needles: &["oss scale already at minimum", "inimum loss scale reached"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has_phrase(text, "cannot decrease scale anymore") || has_phrase(text, "inimum loss scale reached (");
        if said && !super::is_talk(text) { diverged() } else { None }
    },
};
