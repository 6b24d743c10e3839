//! The known name that a mistyped one most likely meant.

/// Bytes; longer names are not compared: nobody mistypes them, and the distance costs the product of both lengths.
const MAX_NAME: usize = 96;

/// The candidate closest to `name`, if it is close enough to be worth suggesting.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = if name.len() > MAX_NAME { String::new() } else { plain_name(name) };
    // A fifth of the letters may be wrong: with more, another word was meant. Numbers are never mistyped into others.
    let limit = (name.chars().count() / 5).clamp(1, 3);
    let same_numbers = candidates.into_iter().map(|candidate| (plain_name(candidate), candidate));
    let same_numbers: Vec<_> = same_numbers.filter(|(other, _)| digits_of(other) == digits_of(&name)).collect();
    let by_letters = same_numbers.iter().map(|(other, candidate)| (edit_distance(&name, other), *candidate));
    let closest = by_letters.filter(|(distance, _)| *distance <= limit && !name.is_empty()).min_by_key(|(far, _)| *far);
    // What is left out at either end (`microbatch`) is found where only one word has it.
    let mut longer = same_numbers.iter().filter(|(other, _)| extends_name(other, &name));
    match (closest, longer.next(), longer.next()) {
        (Some((_, candidate)), ..) => Some(candidate),
        (None, Some((_, candidate)), None) => Some(candidate),
        _ => None,
    }
}

/// The digits in order of size: `bf61` may be `bf16`, `4090` is never `3090`.
fn digits_of(name: &str) -> Vec<char> {
    let mut digits: Vec<char> = name.chars().filter(char::is_ascii_digit).collect();
    digits.sort_unstable();
    digits
}

/// Lowercase without separators, as people differ in `-`, `_` and spaces.
fn plain_name(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).flat_map(char::to_lowercase).collect()
}

fn extends_name(long: &str, short: &str) -> bool {
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
            ("micro_batch_sise", Some("micro_batch_size")),
            ("seq_len4", None),
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
