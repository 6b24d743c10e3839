//! Which configuration and which seed a file is of, where only its path says so: `8-0/seed3/metrics.csv`, `baseline_s12.jsonl`.

/// Names of files and folders that every run has.
const OF_ANY_RUN: &[&str] = &[
    "metrics",
    "metric",
    "log",
    "logs",
    "history",
    "progress",
    "results",
    "result",
    "events",
    "trainer_state",
    "train",
    "run",
    "runs",
    "tb",
    "tensorboard",
    "output",
    "outputs",
    "stats",
    "data",
    "scalars",
    "cumulative_metrics",
    "training_events",
    "wandb-history",
    "files",
];

/// Configuration and seed that a path below the folder that was named says; `/` parts its words.
pub fn of_path(path: &str, folder: &str) -> (String, Option<u64>) {
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let file = parts.pop().unwrap_or_default();
    let stem = match file.find("events.out.tfevents") {
        Some(_) => "",
        None => file.rsplit_once('.').map_or(file, |(stem, _)| stem),
    };
    parts.push(stem);
    let mut seed = None;
    let mut kept = Vec::new();
    for part in parts {
        let (rest, found) = without_seed(part);
        seed = found.or(seed);
        if !rest.is_empty() && !OF_ANY_RUN.contains(&rest.to_ascii_lowercase().as_str()) && !is_checkpoint(&rest) {
            kept.push(rest);
        }
    }
    let configuration = if kept.is_empty() { folder.to_owned() } else { kept.join("/") };
    (configuration, seed)
}

fn is_checkpoint(part: &str) -> bool {
    part.strip_prefix("checkpoint-").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A word without `seed3`, `seed_3`, `_s3`; and the number.
fn without_seed(part: &str) -> (String, Option<u64>) {
    let lower = part.to_ascii_lowercase();
    // The same bytes as before, or the places would not be the same.
    if lower.len() != part.len() {
        return (part.to_owned(), None);
    }
    // Bytes: the second place after a `_` may lie inside a letter.
    let digits = |from: usize| lower.as_bytes().iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let found = lower.match_indices("seed").find_map(|(at, word)| {
        let after = at + word.len();
        let gap = lower[after..].bytes().take_while(|byte| matches!(byte, b'_' | b'-' | b'=' | b'.')).count();
        let count = digits(after + gap);
        (count > 0).then_some((at, after + gap, count))
    });
    let short = || {
        let (at, count) = lower.rmatch_indices(['_', '-']).next().map(|(at, _)| (at, digits(at + 2)))?;
        let is_seed = lower[at + 1..].starts_with('s') && count > 0 && at + 2 + count == lower.len();
        is_seed.then_some((at, at + 2, count))
    };
    let Some((at, number, count)) = found.or_else(short) else { return (part.to_owned(), None) };
    let seed = lower[number..number + count].parse().ok();
    let (left, right) =
        (part[..at].trim_end_matches(['_', '-', '.']), part[number + count..].trim_start_matches(['_', '-', '.']));
    let rest = match (left, right) {
        ("", rest) | (rest, "") => rest.to_owned(),
        (left, right) => format!("{left}_{right}"),
    };
    (rest, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_configuration_and_seed() {
        let cases = [
            ("8-0/seed3/metrics.csv", "8-0", Some(3)),
            ("baseline_s12.jsonl", "baseline", Some(12)),
            ("baseline-seed=7-lr1.csv", "baseline_lr1", Some(7)),
            ("runs/gpt2/seed_1/checkpoint-500/trainer_state.json", "gpt2", Some(1)),
            ("a/events.out.tfevents.1700000000.host.12.0", "a", None),
            ("metrics.csv", "top", None),
            ("lr/1e-3/Seed-11/log.csv", "lr/1e-3", Some(11)),
            ("glass_s/x-s.csv", "glass_s/x-s", None),
            ("seed99999999999999999999.csv", "top", None),
            ("a-\u{fffd}eed1.csv", "a-\u{fffd}eed1", None),
        ];
        for (path, configuration, seed) in cases {
            assert_eq!(of_path(path, "top"), (configuration.to_owned(), seed), "{path}");
        }
    }
}
