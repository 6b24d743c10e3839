//! What a scheduler ends though nothing is wrong with it.

use super::{Reading, Signature};
use crate::failure::cause::FailureCause;
use crate::failure::text::has;

/// SLURM's `*** JOB 123 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***`, of a job or a step.
pub(super) const TIME_LIMIT: Signature = Signature {
    name: "slurm_time_limit",
    needles: &["DUE TO TIME LIMIT"],
    also: &[],
    follow: 0,
    read: |text| {
        let said = has(text, "error: *** ") && has(text, " CANCELLED AT ") && text.ends_with("DUE TO TIME LIMIT ***");
        if said && !text.contains('`') { Reading::whole(FailureCause::TimeLimit) } else { None }
    },
};
