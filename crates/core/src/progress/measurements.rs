//! What stands beside a counter: measurements (`loss 2.1 | lr: 1e-4`), or prose, which makes a heading of it.

/// What trainers measure.
const METRICS: [&str; 30] = [
    "loss",
    "lr",
    "learning_rate",
    "learning",
    "grad",
    "grad_norm",
    "gradnorm",
    "norm",
    "ppl",
    "perplexity",
    "acc",
    "accuracy",
    "reward",
    "rewards",
    "kl",
    "entropy",
    "tokens",
    "tok",
    "throughput",
    "tflops",
    "mfu",
    "mem",
    "memory",
    "elapsed",
    "eta",
    "tps",
    "wps",
    "score",
    "error",
    "bpb",
];
/// Words that stand before a metric.
const QUALIFIERS: [&str; 12] =
    ["train", "training", "val", "valid", "validation", "eval", "test", "avg", "mean", "lm", "total", "time"];
/// Units that stand behind a number.
const UNITS: [&str; 30] = [
    "ms",
    "s",
    "sec",
    "secs",
    "second",
    "seconds",
    "min",
    "mins",
    "minutes",
    "h",
    "hours",
    "us",
    "gb",
    "gib",
    "mb",
    "mib",
    "it/s",
    "s/it",
    "tok/s",
    "tokens/s",
    "samples/s",
    "tflop/s",
    "tflops",
    "left",
    "remaining",
    "per",
    "steps/s",
    "b",
    "kib",
    "each",
];
/// Words with which a step is said to be over.
const CLOSING: [&str; 6] = ["done", "complete", "completed", "finished", "ok", "started"];
/// Words before a counter that say no more than it does.
const OPENING: [&str; 17] = [
    "info",
    "debug",
    "warning",
    "starting",
    "start",
    "begin",
    "beginning",
    "finished",
    "end",
    "ended",
    "completed",
    "done",
    "training",
    "train",
    "current",
    "at",
    "on",
];

/// Whether `rest`, behind a counter, holds nothing but measurements; an empty one where `nothing` is as good.
pub(super) fn is_measured(rest: &str, nothing: bool) -> bool {
    let plain = rest.to_ascii_lowercase();
    let heading = is_heading(&plain);
    let text: String = plain
        .chars()
        .map(|c| if matches!(c, '[' | ']' | '(' | ')' | '{' | '}' | '"' | '\'') { ' ' } else { c })
        .collect();
    let parts: Vec<&str> =
        text.split(['|', ',', ';', '\t']).map(str::trim).filter(|part| !is_punctuation(part)).collect();
    if parts.is_empty() {
        return nothing;
    }
    if heading && !names_a_metric(&plain) {
        return false;
    }
    // A trainer may add words to what it measures; who measures nothing writes prose.
    parts.iter().all(|part| is_measurement(part)) || (names_a_metric(&plain) && begins_with_a_metric(&text))
}

/// `: loading tokenizer`, ` - training`, `. Evaluate`: punctuation, and then words.
fn is_heading(rest: &str) -> bool {
    let after = rest.trim_start_matches([' ', ']', ')']);
    after.starts_with([':', '.', '-', '–', '—', ')'])
        && after.trim_start_matches(|c: char| !c.is_alphanumeric()).starts_with(char::is_alphabetic)
}

/// Whether a metric is followed by its value.
pub(super) fn names_a_metric(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower
        .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')))
        .filter(|word| !word.is_empty())
        .collect();
    words.iter().enumerate().any(|(at, word)| {
        let name = word.rsplit(['.', '-']).next().unwrap_or(word);
        let is_metric = METRICS.contains(&name) || METRICS.iter().any(|metric| name.ends_with(&format!("_{metric}")));
        is_metric && words.iter().skip(at + 1).take(2).any(|next| is_value(next))
    })
}

fn begins_with_a_metric(rest: &str) -> bool {
    let first =
        rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).find(|word| !word.is_empty()).unwrap_or_default();
    let known = |words: &[&str]| words.contains(&first);
    known(&METRICS) || known(&QUALIFIERS) || METRICS.iter().any(|metric| first.ends_with(metric))
}

/// `loss scale: 1.0`, `rows 32`, `lr=1e-4`, `12.5 ms`, `n/a` behind a colon: words, then a value, then its unit at most.
fn is_measurement(part: &str) -> bool {
    let spaced: String = part.replace([':', '='], " ");
    let words: Vec<&str> = spaced.split_whitespace().filter(|word| !is_punctuation(word)).collect();
    let Some(first_value) = words.iter().position(|word| is_value(word)) else {
        return words.iter().all(|word| CLOSING.contains(word) || UNITS.contains(word));
    };
    let behind = words.get(first_value + 1..).unwrap_or_default();
    let is_known = |word: &&str| is_value(word) || UNITS.contains(word) || METRICS.contains(word);
    // Several pairs without punctuation between them: `loss 2.1 time 12ms`.
    let is_name = |at: usize| behind.get(at + 1).is_some_and(|next| is_value(next));
    behind.iter().enumerate().all(|(at, word)| is_known(word) || is_name(at))
}

/// A number, with its unit or without: `1,234`, `1.5e-04`, `12ms`, `50%`, `00:12`, `nan`.
fn is_value(word: &str) -> bool {
    let word = word.trim_start_matches(['-', '+', '$', '~']);
    word.starts_with(|c: char| c.is_ascii_digit()) || matches!(word, "nan" | "inf" | "n/a" | "none")
}

fn is_punctuation(text: &str) -> bool {
    text.chars().all(|c| !c.is_alphanumeric())
}

/// Whether what stands before a counter is a log's own prefix, or says that it begins or ends.
pub(super) fn is_bare(before: &str) -> bool {
    let words = before.split_whitespace().filter(|word| !is_punctuation(word));
    words.into_iter().all(|word| {
        let name = word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
        word.starts_with('[')
            || word.ends_with([']', ':'])
            || word.contains(|c: char| c.is_ascii_digit())
            || OPENING.contains(&name.as_str())
    })
}

/// Whether the word at `at` is a key in quotes, as of JSON or a printed dictionary.
pub(super) fn is_quoted_key(line: &str, at: usize) -> bool {
    line.get(..at).is_some_and(|before| before.ends_with(['"', '\'']))
}
