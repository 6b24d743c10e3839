//! The tasks of an array as SLURM writes them: `2-5,9%2`, `1-7:2`.

/// More tasks of an array than any SLURM takes (`MaxArraySize` is at most 4,000,001).
const MOST: u64 = 4_000_001;

/// The tasks, in order; `None` where the list is cut short (`...`) or is none.
pub(super) fn indexes(text: &str) -> Option<Vec<u64>> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let text = text.split('%').next().unwrap_or_default();
    let mut found = Vec::new();
    for part in text.split(',') {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let step: usize = step.trim().parse().ok().filter(|step| *step > 0)?;
        if last < first || last >= MOST {
            return None;
        }
        found.extend((first..=last).step_by(step));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(indexes("2-5,9%2"), Some(vec![2, 3, 4, 5, 9]));
        assert_eq!(indexes("[1-7:2]"), Some(vec![1, 3, 5, 7]));
        assert_eq!(indexes("3"), Some(vec![3]));
        for wrong in ["", "1-3,...", "5-2", "a", "0-18446744073709551615", "1-9:0"] {
            assert_eq!(indexes(wrong), None, "{wrong}");
        }
    }
}
