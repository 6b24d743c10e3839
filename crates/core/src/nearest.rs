//! The known name that a mistyped one most likely meant.

/// Bytes; longer names are not compared: nobody mistypes them, and the distance costs the product of both lengths.
const MAX_NAME: usize = 96;

/// The candidate closest to `name`, if it is close enough to be worth suggesting.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = if name.len() > MAX_NAME { String::new() } else { plain(name) };
    // A third of the letters may be wrong; what is left out at either end (`batch_size`) is found by `extends`.
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let other = plain(candidate);
            let distance = if extends(&other, &name) { 1 } else { edit_distance(&name, &other) };
            (distance <= limit && !name.is_empty()).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Lowercase without separators, as people differ in `-`, `_` and spaces.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

fn extends(long: &str, short: &str) -> bool {
    short.len() >= 4 && (long.starts_with(short) || long.ends_with(short))
}

/// Letters to insert, drop, replace or swap with their neighbour to get from `a` to `b`; row by row of the table.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = above[j] + usize::from(a[i] != b[j]);
            let mut cost = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                cost = cost.min(before[j - 1] + 1);
            }
            row.push(cost);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_or_nothing() {
        let keys = ["micro_batch_size", "seq_len", "optimizer", "precision", "gpu", "steps"];
        let cases = [
            ("micro-batch-size", Some("micro_batch_size")),
            ("microbatch", Some("micro_batch_size")),
            ("batch_size", Some("micro_batch_size")),
            ("seqlen", Some("seq_len")),
            ("optimiser", Some("optimizer")),
            ("percision", Some("precision")),
            ("gqu", Some("gpu")),
            ("wombat", None),
            ("", None),
        ];
        for (typed, meant) in cases {
            assert_eq!(nearest(typed, keys), meant, "{typed}");
        }
        for long in ["x".repeat(100_000), "ü".repeat(100_000), format!("seq_len{}", " ".repeat(100))] {
            assert_eq!(nearest(&long, keys), None);
        }
    }
}
