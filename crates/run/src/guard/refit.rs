//! What an out-of-memory message says about the estimate: how much the GPU really has for this job, and how much more
//! than calculated the job needs.

use tonnage_core::record::{CorrectionRecord, FailureRecord, PredictionRecord};
use tonnage_core::units::Bytes;

/// The correction that `failure` of an attempt `predicted` so asks for, on top of `now`; `None` where its message has no
/// numbers.
///
/// What the job needed at least is what was not free when it asked, and what it asked for; other processes' memory is
/// not the job's, and is taken off what the GPU has. A message without pids shows others only as a larger context.
pub fn refit_estimate(
    failure: &FailureRecord,
    predicted: Option<&PredictionRecord>,
    now: &CorrectionRecord,
) -> Option<CorrectionRecord> {
    let number = |name: &str| failure.numbers.iter().find(|(other, _)| other == name).map(|(_, bytes)| *bytes);
    let (total, free, requested) = (number("total")?, number("free")?, number("requested")?);
    let others = number("other_processes").unwrap_or(0);
    let usable = total.saturating_sub(others);
    let needed = usable.saturating_sub(free).saturating_add(requested);
    let calculated = predicted.map_or(0, |predicted| predicted.total_bytes);
    let offset = if calculated == 0 { 0 } else { needed.saturating_sub(calculated) };
    let evidence = format!(
        "needed at least {} ({} in use, {} asked for){}; the GPU has {}{}{}",
        Bytes(needed),
        Bytes(usable.saturating_sub(free)),
        Bytes(requested),
        where_predicted(predicted),
        Bytes(total),
        if others > 0 { format!(", {} of it other processes'", Bytes(others)) } else { String::new() },
        misdescribed_words(needed, calculated),
    );
    Some(CorrectionRecord { offset_bytes: offset.max(now.offset_bytes), usable_bytes: Some(usable), evidence })
}

/// From so many times on, in tenths, a job is not what its description says: what an estimate does not know is less.
const MISDESCRIBED_TENTHS: u64 = 15;

/// The suspicion that the job's description is wrong, where the message shows much more than it comes to.
fn misdescribed_words(needed: u64, calculated: u64) -> String {
    let tenths = needed.saturating_mul(10).checked_div(calculated).unwrap_or(0);
    if tenths < MISDESCRIBED_TENTHS {
        return String::new();
    }
    format!(
        ". That is {}.{} times what the job comes to, or more: does it say the model, seq_len, precision and attention that \
         the script uses?",
        tenths / 10,
        tenths % 10
    )
}

/// What it was held against, where anything was calculated.
fn where_predicted(predicted: Option<&PredictionRecord>) -> String {
    match predicted.map(|predicted| (predicted.total_bytes, predicted.corrected_bytes)) {
        None | Some((0, _)) => String::new(),
        Some((calculated, corrected)) if corrected > calculated => {
            format!(" where {} was predicted ({} calculated)", Bytes(corrected), Bytes(calculated))
        }
        Some((calculated, _)) => format!(" where {} was calculated", Bytes(calculated)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn failure(numbers: &[(&str, u64)]) -> FailureRecord {
        let numbers = numbers.iter().map(|(name, gib)| ((*name).to_owned(), gib * GIB)).collect();
        FailureRecord { numbers, ..FailureRecord::default() }
    }

    fn predicted(gib: u64) -> PredictionRecord {
        PredictionRecord { total_bytes: gib * GIB, ..PredictionRecord::default() }
    }

    #[test]
    fn what_was_in_use_and_asked_for_was_needed() {
        let failure = failure(&[("total", 24), ("free", 1), ("requested", 3)]);
        let correction = refit_estimate(&failure, Some(&predicted(20)), &CorrectionRecord::default()).unwrap();
        assert_eq!((correction.offset_bytes, correction.usable_bytes), (6 * GIB, Some(24 * GIB)));
        let known_too_big = refit_estimate(&failure, Some(&predicted(30)), &CorrectionRecord::default()).unwrap();
        assert_eq!(known_too_big.offset_bytes, 0);
        let said = |predicted: Option<&PredictionRecord>| {
            refit_estimate(&failure, predicted, &CorrectionRecord::default()).unwrap().evidence
        };
        let corrected = PredictionRecord { corrected_bytes: 22 * GIB, ..predicted(20) };
        assert!(said(Some(&corrected)).contains(" where 22.00 GiB was predicted (20.00 GiB calculated); "));
        assert!(said(None).contains(" asked for); the GPU has"));
        assert!(!said(Some(&predicted(20))).contains("times"), "a quarter more is no other job");
        assert!(
            said(Some(&predicted(8))).contains("That is 3.2 times what the job comes to"),
            "{}",
            said(Some(&predicted(8)))
        );
    }

    #[test]
    fn a_neighbour_is_not_the_jobs_need() {
        let failure = failure(&[("total", 24), ("free", 1), ("requested", 3), ("other_processes", 10)]);
        let correction = refit_estimate(&failure, Some(&predicted(12)), &CorrectionRecord::default()).unwrap();
        assert_eq!((correction.offset_bytes, correction.usable_bytes), (4 * GIB, Some(14 * GIB)));
    }

    #[test]
    fn a_message_without_numbers_says_nothing() {
        assert_eq!(refit_estimate(&failure(&[("requested", 3)]), None, &CorrectionRecord::default()), None);
    }
}
