//! Why one setting does not go with others: a row each, of which the first that holds is told.

use crate::job::{JobError, JobErrorKind};

/// The other key, whether it is in the way, why, and the way out.
pub(super) type Reason = (&'static str, bool, &'static str, &'static str);

/// Refuses `setting`, which `key` sets, for the first reason that holds.
pub(super) fn refuse_first(
    setting: &str,
    key: &str,
    reasons: impl IntoIterator<Item = Reason>,
) -> Result<(), JobError> {
    let Some((other, _, why, hint)) = reasons.into_iter().find(|(_, is_in_the_way, ..)| *is_in_the_way) else {
        return Ok(());
    };
    let problem = format!("{setting} does not go with `{other}` as it is: {why}");
    Err(JobError::of_kind(JobErrorKind::Unsimulated, problem).about(&[key, other]).hint(hint).or_rehearse())
}
