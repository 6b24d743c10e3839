//! How far a job is, from a line of its log: tqdm's bar, `step N/M`, Hugging Face's `'epoch'`.

use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::launch::log_end;

/// What is read of a log's end for its last progress.
const END_BYTES: u64 = 16 << 10;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The step.
    pub step: u64,
    /// Of how many.
    pub total: Option<u64>,
}

/// The progress that a line says, if it says any. Bars of downloads and of loading say bytes and shards, not steps.
pub fn progress(line: &str) -> Option<Progress> {
    tqdm(line).or_else(|| named(line))
}

/// The last progress in the logs of the attempt in `folder`, and when its log was written last, in milliseconds since
/// 1970. The journal hears of progress now and then only; whoever asks reads it here.
pub fn latest(folder: &Path) -> Option<(Progress, u64)> {
    let last = |name: &str| {
        let path = folder.join(name);
        let written = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let end = log_end(&path, END_BYTES).ok()?;
        let found = String::from_utf8_lossy(&end).rsplit(['\n', '\r']).find_map(progress)?;
        Some((found, u64::try_from(written.as_millis()).unwrap_or(u64::MAX)))
    };
    ["stdout.log", "stderr.log"].into_iter().filter_map(last).max_by_key(|(_, at_ms)| *at_ms)
}

/// `12%|█▏        | 12/100 [00:03<00:22,  4.00it/s]`
fn tqdm(line: &str) -> Option<Progress> {
    let (before, bar) = line.split_once("%|")?;
    let (_, counts) = bar.split_once("| ")?;
    // A bar with a title is one of loading, mapping or downloading.
    if before.trim_start().trim_end_matches(|c: char| c.is_ascii_digit()).contains(':') {
        return None;
    }
    let (step, rest) = counts.trim_start().split_once('/')?;
    let total = rest.split(' ').next()?;
    Some(Progress { step: step.trim().parse().ok()?, total: Some(total.parse().ok()?) })
}

/// `step 3/10`, `Step: 3`, `iter 3`, `global_step=3`, `"step": 3`
fn named(line: &str) -> Option<Progress> {
    let lower = line.to_ascii_lowercase();
    let (_, rest) = ["step", "iter"].iter().find_map(|word| word_at(&lower, word))?;
    let rest = rest.strip_prefix("ation").unwrap_or(rest);
    let rest = rest.trim_start_matches(['"', '\'', ':', '=', ' ', '[', '#']);
    let (step, rest) = number(rest)?;
    let of = rest.trim_start().strip_prefix('/').or_else(|| rest.trim_start().strip_prefix("of "));
    let total = of.and_then(|of| number(of.trim_start())).map(|(total, _)| total);
    Some(Progress { step, total })
}

fn word_at<'a>(line: &'a str, word: &str) -> Option<(usize, &'a str)> {
    let begins = |at: usize| !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let (at, _) = line.match_indices(word).find(|(at, _)| begins(*at))?;
    Some((at, &line[at + word.len()..]))
}

fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_trainers_print() {
        let cases = [
            (" 12%|█▏        | 12/100 [00:03<00:22,  4.00it/s]", Some((12, Some(100)))),
            ("100%|##########| 100/100 [00:03<00:00,  4.00it/s]", Some((100, Some(100)))),
            ("Loading checkpoint shards:  50%|█████     | 2/4 [00:01<00:01]", None),
            ("step 3/10 loss 2.1", Some((3, Some(10)))),
            ("Step: 40, loss=0.2", Some((40, None))),
            ("iter 250: loss 2.10, time 12ms", Some((250, None))),
            ("global_step=7 lr=1e-4", Some((7, None))),
            ("{\"step\": 9, \"loss\": 1}", Some((9, None))),
            ("iteration 5 of 20", Some((5, Some(20)))),
            ("footsteps 12", None),
            ("loss 2.1", None),
            ("step", None),
        ];
        for (line, wanted) in cases {
            assert_eq!(progress(line).map(|p| (p.step, p.total)), wanted, "{line}");
        }
    }
}
