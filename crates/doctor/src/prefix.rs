//! What launchers, containers and loggers put before a line: read for its rank, and removed.

use std::borrow::Cow;

use crate::text::{find_phrase, integer_after};

/// Prefixes that may stand one behind the other.
const MOST: usize = 5;

/// A line without its prefixes.
pub(crate) struct Stripped<'a> {
    pub(crate) rank: Option<u32>,
    pub(crate) text: &'a str,
    /// Blanks before the text.
    pub(crate) indent: usize,
}

/// How one kind of prefix is read: the rank that it names, and what follows.
type Prefix = fn(&str) -> Option<(Option<u32>, &str)>;

/// The prefixes that may begin with a byte.
const fn prefixes(first: u8) -> &'static [Prefix] {
    match first {
        b'[' => &[bracketed_prefix, kubernetes, stamped],
        b'(' => &[process],
        b'0'..=b'9' => &[labelled_prefix, compose, container_runtime, stamped, kaggle, host_prefix],
        b'R' => &[ranked_prefix, compose, logger],
        b'A'..=b'Z' => &[compose, logger, journal],
        b'r' => &[ranked_prefix, compose, host_prefix, replica_prefix],
        b'a'..=b'z' => &[compose, host_prefix, replica_prefix],
        _ => &[compose],
    }
}

/// Removes what stands before the text of `line`.
pub(crate) fn strip_prefixes(line: &str) -> Stripped<'_> {
    let mut rank = None;
    let mut rest = line;
    for _ in 0..MOST {
        let start = rest.trim_start();
        let first = start.bytes().next().unwrap_or_default();
        let Some((found, after)) = prefixes(first).iter().find_map(|prefix| prefix(start)) else { break };
        rank = rank.or(found);
        rest = after;
    }
    let text = rest.trim_start();
    Stripped { rank, indent: rest.len() - text.len(), text: text.trim_end() }
}

/// Keys under which records hold a line: Kaggle's, Docker's and Fluentd's, structlog's and zap's, Google Cloud's.
const RECORDED: &[&str] = &["\"data\"", "\"log\"", "\"msg\"", "\"message\"", "\"textPayload\"", "\"event\""];

/// The head of a traceback within a string of JSON.
pub(crate) const PACKED: &str = "Traceback (most recent call last):\\n";

/// A record of a line, `{"log":"text\n","stream":"stderr",...}`: the text. Only records that say when or how grave are
/// logs; others are data.
pub(crate) fn unpack_line(line: &str) -> Option<Cow<'_, str>> {
    // Kaggle's records are a list.
    let record = line.trim_start_matches(['[', ',', ' ', '\t']).strip_prefix('{')?;
    let of_log = ["\"stream\"", "\"time", "\"ts\"", "\"level", "\"severity", "\"@timestamp\""];
    if !record.trim_end_matches([']', ' ', '\r']).ends_with('}')
        || !of_log.iter().any(|key| find_phrase(record, key).is_some())
    {
        return None;
    }
    // What was raised stands under a key of its own: that, not what the logger says above it, is read.
    if find_phrase(record, PACKED).is_some() {
        return None;
    }
    let text = RECORDED.iter().find_map(|key| {
        let value = record.get(find_phrase(record, key)? + key.len()..)?.trim_start().strip_prefix(':')?;
        value.trim_start().strip_prefix('"')
    })?;
    let quotes = memchr::memchr_iter(b'"', text.as_bytes());
    let is_end = |at: &usize| {
        text.as_bytes()
            .get(..*at)
            .is_some_and(|before| before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 0)
    };
    let end = quotes.into_iter().find(is_end)?;
    let plain = unescape_text(text.get(..end)?);
    let plain = plain.trim_end_matches('\n');
    // A whole traceback is read as it stands.
    (!plain.contains('\n')).then(|| plain.to_owned().into())
}

/// The text of a JSON string.
pub(crate) fn unescape_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some('u') => {
                let code: String = characters.by_ref().take(4).collect();
                plain.extend(u32::from_str_radix(&code, 16).ok().and_then(char::from_u32));
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

/// `[rank3]:`, `[default0]:`, `[3]:`, `[1,3]<stderr>:`: a role and a rank (torchrun's `{role}{rank}` and PyTorch's own
/// excepthook), or MPI's job and rank; SageMaker writes `[1,mpirank:3,algo-1]<stderr>:`.
fn bracketed_prefix(text: &str) -> Option<(Option<u32>, &str)> {
    let (inside, after) = text.strip_prefix('[')?.split_once(']')?;
    let after = after.strip_prefix("<stderr>").or_else(|| after.strip_prefix("<stdout>")).unwrap_or(after);
    let after = after.strip_prefix(':')?;
    if let Some(rank) = integer_after(inside, "mpirank:") {
        return Some((u32::try_from(rank).ok(), after));
    }
    let digits = inside.trim_end_matches(|character: char| character.is_ascii_digit()).len();
    let (role, number) = inside.split_at_checked(digits)?;
    let is_role = role.chars().all(|character| character.is_ascii_alphabetic() || "_-,".contains(character))
        || role.strip_suffix(',').is_some_and(|job| job.parse::<u32>().is_ok());
    if !is_role {
        return None;
    }
    Some((Some(number.parse().ok()?), after))
}

/// `rank3: `, as pages show `[rank3]: `, `rank3 | ` and `Rank 3 | ` of launchers, and ParlAI's `rank:  3 | `.
fn ranked_prefix(text: &str) -> Option<(Option<u32>, &str)> {
    let rest = text.strip_prefix("rank").or_else(|| text.strip_prefix("Rank ").filter(|rest| rest.contains(" | ")))?;
    let (number, after) = match rest.strip_prefix(':') {
        Some(rest) => rest.split_once('|')?,
        None => rest.split_at_checked(rest.find([':', '|'])?).map(|(number, after)| (number, &after[1..]))?,
    };
    let after = if after.is_empty() { after } else { after.strip_prefix(' ')? };
    Some((Some(number.trim().parse().ok()?), after))
}

/// `trainer/0 [3]:text`: TorchX's role and replica before its rank.
fn replica_prefix(text: &str) -> Option<(Option<u32>, &str)> {
    let (role, after) = text.split_once(' ')?;
    let (name, number) = role.split_once('/')?;
    let is_role = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_role && number.parse::<u32>().is_ok() && after.starts_with('[')).then_some((None, after))
}

/// `node-1: text`, `10.0.0.1: text`: pdsh's, which DeepSpeed starts its nodes with.
fn host_prefix(text: &str) -> Option<(Option<u32>, &str)> {
    let (name, after) = text.split_at_checked(memchr::memchr(b':', text.as_bytes())?)?;
    // Exceptions have a capital.
    let is_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_name = name.len() <= 63 && name.bytes().all(is_byte);
    let is_host = name.bytes().any(|byte| byte.is_ascii_digit()) && name.contains(['-', '.']);
    let is_file = find_phrase(name, ".so.").is_some()
        || [".py", ".sh", ".c", ".cc", ".cpp", ".cu", ".out"].iter().any(|end| name.ends_with(end));
    (is_name && is_host && !is_file).then_some((None, after.strip_prefix(": ")?))
}

/// `123.4s 56 text`: Kaggle's seconds and line.
fn kaggle(text: &str) -> Option<(Option<u32>, &str)> {
    let (seconds, rest) = text.split_once(['\t', ' '])?;
    let is_time = seconds.strip_suffix('s').is_some_and(|number| number.contains('.') && number.parse::<f64>().is_ok());
    let (number, after) = rest.split_once(['\t', ' '])?;
    (is_time && number.parse::<u32>().is_ok()).then_some((None, after))
}

/// The highest rank that a bare number before a line is taken for: higher ones are more likely the line's own number.
const HIGHEST_BARE: u32 = 1023;

/// What `srun --label` puts before a line: the task's number and a colon.
fn labelled_prefix(text: &str) -> Option<(Option<u32>, &str)> {
    let (number, after) = text.split_once(':')?;
    let short = (1..=5).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let separated = after.is_empty() || after.starts_with(' ');
    let rank = number.parse().ok().filter(|rank| *rank <= HIGHEST_BARE);
    (short && separated).then(|| (rank, after.strip_prefix(' ').unwrap_or(after)))
}

/// The text without what Ray puts behind one of many alike: `[repeated 2x across cluster]`.
pub(crate) fn without_count(text: &str) -> &str {
    let head = text.strip_suffix("x across cluster]").map(|head| head.trim_end_matches(|c: char| c.is_ascii_digit()));
    head.and_then(|head| head.strip_suffix(" [repeated ")).unwrap_or(text)
}

/// `(EngineCore_DP0 pid=6940)`, `(train_fn pid=12, ip=10.0.0.1)`: vLLM and Ray.
fn process(text: &str) -> Option<(Option<u32>, &str)> {
    let (inside, after) = text.strip_prefix('(')?.split_once(')')?;
    (inside.contains("pid=") && inside.len() < 80).then_some((None, after.strip_prefix(' ').unwrap_or(after)))
}

/// `[pod/train-0/pytorch]`, as `kubectl logs --prefix` writes.
fn kubernetes(text: &str) -> Option<(Option<u32>, &str)> {
    let (_, after) = text.strip_prefix("[pod/")?.split_once(']')?;
    Some((None, after.strip_prefix(' ').unwrap_or(after)))
}

/// Bytes of a service's name with the blanks that align it.
const LONGEST_SERVICE: usize = 80;

/// `trainer-1  | text`, as Docker Compose writes.
fn compose(text: &str) -> Option<(Option<u32>, &str)> {
    let bar = memchr::memchr(b'|', text.as_bytes().get(..text.len().min(LONGEST_SERVICE))?)?;
    let (name, after) = (text.get(..bar)?, text.get(bar + 1..)?);
    let service = name.trim_end();
    let is_service = name.ends_with(' ')
        && (2..=40).contains(&service.len())
        && service.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && service.bytes().last().is_some_and(|byte| byte.is_ascii_digit());
    (is_service && !after.contains('|')).then(|| (None, after.strip_prefix(' ').unwrap_or(after)))
}

/// `2024-05-05T10:11:13.123456789Z stderr F text`: the runtimes' own files (CRI).
fn container_runtime(text: &str) -> Option<(Option<u32>, &str)> {
    let (time, rest) = text.split_once(' ')?;
    let is_time = time.len() >= 20 && time.as_bytes().get(10) == Some(&b'T') && time.as_bytes().get(4) == Some(&b'-');
    let after = rest.strip_prefix("stderr ").or_else(|| rest.strip_prefix("stdout ")).filter(|_| is_time)?;
    Some((None, after.strip_prefix("F ").or_else(|| after.strip_prefix("P ")).unwrap_or(after)))
}

/// `ERROR 05-05 10:11:13 [core.py:396] text`: vLLM, before every line of a traceback.
fn logger(text: &str) -> Option<(Option<u32>, &str)> {
    let (level, rest) = text.split_once(' ')?;
    if !matches!(level, "ERROR" | "CRITICAL") {
        return None;
    }
    let bytes = rest.as_bytes();
    let is_time = bytes.get(2) == Some(&b'-') && bytes.get(8) == Some(&b':') && bytes.get(11) == Some(&b':');
    let place = rest.get(14..).filter(|_| is_time)?.trim_start();
    let (file, after) = place.split_once(']')?;
    let is_file = find_phrase(file, ".py:").is_some() && file.len() < 80;
    is_file.then(|| (None, after.strip_prefix(' ').unwrap_or(after)))
}

/// `2025-02-03T04:05:06.123Z text`, `[2025-02-03 04:05:06] text`: what `ts`, `docker logs -t` and CI services put before
/// a line. A logger's own time has a level or a name behind it, which stays.
fn stamped(text: &str) -> Option<(Option<u32>, &str)> {
    let inside = text.strip_prefix('[').unwrap_or(text);
    let bytes = inside.as_bytes();
    let is_date = bytes.first().is_some_and(u8::is_ascii_digit)
        && bytes.get(4) == Some(&b'-')
        && bytes.get(7) == Some(&b'-')
        && matches!(bytes.get(10), Some(b'T' | b' '))
        && bytes.get(13) == Some(&b':')
        && bytes.get(16) == Some(&b':');
    let rest = inside.get(19..).filter(|_| is_date)?;
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || ".,:Z+".contains(c));
    let rest = if inside.len() < text.len() { rest.strip_prefix(']')? } else { rest };
    // An offset such as `-08:00`.
    let zone =
        rest.strip_prefix('-').and_then(|zone| zone.get(..5).filter(|zone| zone.as_bytes().get(2) == Some(&b':')));
    let rest = zone.map_or(rest, |zone| rest.get(zone.len() + 1..).unwrap_or_default());
    rest.strip_prefix(' ').map(|rest| (None, rest))
}

/// `Feb 03 04:05:06 node7 train[4711]: text`: syslog and journald. The kernel's own lines keep their `kernel:`.
fn journal(text: &str) -> Option<(Option<u32>, &str)> {
    const MONTHS: &[&str] = &["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let bytes = text.as_bytes();
    let is_time = bytes.get(3) == Some(&b' ') && bytes.get(9) == Some(&b':') && bytes.get(12) == Some(&b':');
    let rest = text.get(16..).filter(|_| is_time && MONTHS.iter().any(|month| text.starts_with(month)))?;
    let (tag, rest) = rest.split_once("]: ").filter(|(tag, _)| tag.len() < 120)?;
    let (_, pid) = tag.rsplit_once('[')?;
    pid.bytes().all(|byte| byte.is_ascii_digit()).then_some((None, rest))
}

/// A rank in the middle of a line: after a progress bar, or in the message itself (`[Rank 4] Watchdog`, `on rank 1`).
pub(crate) fn named_rank(text: &str) -> Option<u32> {
    if text.starts_with("srun: error: ") {
        return u32::try_from(integer_after(text, ": task ")?).ok();
    }
    // torch.multiprocessing.spawn joins all of its processes and names the first that ended.
    if let Some((head, _)) = text.split_once(" terminated with signal SIG") {
        let process = head.rsplit_once("rocess ").map(|(_, number)| number.parse().ok());
        return process.flatten();
    }
    let text = text.get(find_phrase(text, "ank")?.saturating_sub(6)..).unwrap_or(text);
    let number = |phrase| integer_after(text, phrase);
    let rank = number("[rank").or_else(|| number("[Rank ")).or_else(|| number(" Rank "));
    // A logger's own words: `[root, rank=0]`.
    let rank = rank.or_else(|| number(", rank=").filter(|_| find_phrase(text, "] ").is_some()));
    let rank = rank.or_else(|| number(" on rank "))?;
    // Who reached the barrier reports who did not.
    let is_report = find_phrase(text, "monitoredBarrier, but received errors").is_some();
    u32::try_from(if is_report { number("from rank ")? } else { rank }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_keep_the_indentation_behind_them() {
        let cases = [
            ("[rank3]:   File \"a\"", Some(3), 3, "File \"a\""),
            ("3:     raise x", Some(3), 4, "raise x"),
            ("[1,mpirank:5,algo-1]<stderr>:  File", Some(5), 2, "File"),
            ("[pod/train-0/main]   File", None, 2, "File"),
            ("trainer-1  |   File", None, 2, "File"),
            ("2024-05-05T10:11:13.123456789Z stderr F   File", None, 2, "File"),
            ("(EngineCore pid=9) ERROR 05-05 10:11:13 [core.py:396]   File", None, 2, "File"),
            ("| a | table |", None, 0, "| a | table |"),
            ("10:11:13 text", None, 0, "10:11:13 text"),
            ("2025-02-03T04:05:06.123Z   File \"a\"", None, 2, "File \"a\""),
            ("2025-02-03 04:05:06,123 INFO text", None, 0, "INFO text"),
            ("2025-02-03T04:05:06-08:00 [rank3]: text", Some(3), 1, "text"),
            ("rank:  3 | CRITICAL | text", Some(3), 0, "CRITICAL | text"),
            ("rank3:   File", Some(3), 2, "File"),
            ("rank3 |   File", Some(3), 2, "File"),
            ("Rank 3 |   File", Some(3), 2, "File"),
            ("Rank 3 reached the barrier", None, 0, "Rank 3 reached the barrier"),
            ("rank12| text", Some(12), 0, "text"),
            ("trainer/0 [1]:text", Some(1), 0, "text"),
            ("node-1: [rank3]:   File", Some(3), 3, "File"),
            ("10.0.0.1:     raise x", None, 4, "raise x"),
            ("12.5s 31   File", None, 2, "File"),
            ("sqlite3.OperationalError: text", None, 0, "sqlite3.OperationalError: text"),
            ("train2.py: error: text", None, 0, "train2.py: error: text"),
            ("libx-1.so.11.0: text", None, 0, "libx-1.so.11.0: text"),
            ("[2025-02-03 04:05:06]   File \"a\"", None, 2, "File \"a\""),
            ("Feb 03 04:05:06 n7 train[4711]:   File \"a\"", None, 2, "File \"a\""),
            ("Feb 03 04:05:06 n7 kernel: text", None, 0, "Feb 03 04:05:06 n7 kernel: text"),
        ];
        for (raw, rank, indent, text) in cases {
            let found = strip_prefixes(raw);
            assert_eq!((found.rank, found.indent, found.text), (rank, indent, text), "{raw}");
        }
    }

    #[test]
    fn records_of_docker_are_unpacked() {
        let line = r#"{"log":"  File \"a.py\", line 3\n","stream":"stderr","time":"2024-05-05T10:11:13Z"}"#;
        assert_eq!(unpack_line(line).as_deref(), Some("  File \"a.py\", line 3"));
        let zap = r#"{"level": "error", "msg": "KeyError: \"a\"", "ts": 1.5}"#;
        assert_eq!(unpack_line(zap).as_deref(), Some("KeyError: \"a\""));
        let kaggle = r#",{"stream_name":"stderr","time":12.5,"data":"KeyError: 'a'\n"}"#;
        assert_eq!(unpack_line(kaggle).as_deref(), Some("KeyError: 'a'"));
        assert_eq!(unpack_line("{\"loss\": 1}"), None);
        // Data, not a log.
        assert_eq!(unpack_line("{\"message\": \"Killed\", \"label\": 1}"), None);
        assert_eq!(unescape_text("a\\u0041\\\\n\\t"), "aA\\n\t");
    }
}
