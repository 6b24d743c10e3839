//! [`place_of`]: what a log's path says of who wrote it.

/// The rank and the attempt that a log's path names: torchrun's `RUN/attempt_0/3/stderr.log`, or `rank_3.log`.
pub fn place_of(path: &str) -> (Option<u32>, Option<u32>) {
    let parts: Vec<&str> = path.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let attempt_at = parts.iter().rposition(|part| part.starts_with("attempt_"));
    let attempt = attempt_at.and_then(|at| parts.get(at)?.strip_prefix("attempt_")?.parse().ok());
    let folder = attempt_at.and_then(|at| parts.get(at + 1)?.parse().ok());
    let rank = folder.or_else(|| parts.iter().rev().find_map(|part| rank_in_name(part)));
    (rank, attempt)
}

/// `rank3.log`, `rank_3.err`, `train-rank-3.out`
fn rank_in_name(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let after = lower.get(lower.rfind("rank")? + 4..)?.trim_start_matches(['_', '-', '.', '=']);
    let end = after.find(|character: char| !character.is_ascii_digit()).unwrap_or(after.len());
    after.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_ranks() {
        let cases = [
            ("logs/none_x/attempt_0/3/stderr.log", (Some(3), Some(0))),
            ("out/rank_12.log", (Some(12), None)),
            ("out/train-Rank=2.err", (Some(2), None)),
            ("frank.log", (None, None)),
            ("attempt_x/y", (None, None)),
        ];
        for (path, place) in cases {
            assert_eq!(place_of(path), place, "{path}");
        }
    }
}
