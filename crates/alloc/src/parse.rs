//! The text of `PYTORCH_ALLOC_CONF` (or `PYTORCH_CUDA_ALLOC_CONF`): reading it, and printing it back.
//!
//! Stricter than PyTorch where PyTorch would guess: a number must be a number to its last character.

use std::fmt;
use std::str::FromStr;

use super::config::{AllocatorConfig, MIN_LARGE_ALLOC, ROUNDUP_INTERVALS};
use crate::nearest::nearest;
use crate::units::MIB;

/// Keys that PyTorch 2.11 knows and that change nothing here: they concern locks, pinned host memory, graph capture.
pub const IGNORED_KEYS: [&str; 8] = [
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "graph_capture_record_stream_reuse",
];

/// Keys that are read.
const KEYS: [&str; 8] = [
    "backend",
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "per_process_memory_fraction",
];

/// Why a settings text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such key.
    #[error("unknown allocator setting `{key}`{}", nearest.map_or_else(String::new, |key| format!("; did you mean `{key}`?")))]
    UnknownKey {
        /// What was written.
        key: String,
        /// The known key it most likely meant.
        nearest: Option<&'static str>,
    },
    /// Something else was needed at this place.
    #[error("`{key}`: expected {expected}, found {found}")]
    Expected {
        /// The setting being read.
        key: String,
        /// What belongs here.
        expected: &'static str,
        /// What is here.
        found: String,
    },
    /// A number outside what PyTorch accepts.
    #[error("`{key}` must be {allowed}, not {value}")]
    OutOfRange {
        /// As PyTorch spells it.
        key: &'static str,
        /// What it may be.
        allowed: String,
        /// What was written.
        value: String,
    },
    /// Another allocator, which is not simulated.
    #[error("allocator backend `{0}` is not simulated; use `native`")]
    Backend(String),
}

impl AllocatorConfig {
    /// Reads the text of `PYTORCH_ALLOC_CONF`; an empty text is the default.
    ///
    /// # Errors
    /// On anything PyTorch would refuse, and on numbers with something after them.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut tokens = Tokens::new(text);
        let mut config = Self::default();
        while let Some(key) = tokens.next() {
            tokens.expect_token(key, ":", "`:`")?;
            config.read_setting(key, &mut tokens)?;
            if !tokens.is_empty() {
                tokens.expect_token(key, ",", "`,`")?;
            }
        }
        Ok(config)
    }

    fn read_setting(&mut self, key: &str, tokens: &mut Tokens<'_>) -> Result<(), ConfigError> {
        match key {
            "expandable_segments" => self.expandable_segments = tokens.next_boolean(key)?,
            "max_split_size_mb" => {
                self.max_split_size_mb =
                    Some(at_least("max_split_size_mb", tokens.next_number(key)?, self.large_mb())?);
            }
            "max_non_split_rounding_mb" => {
                let value = at_least("max_non_split_rounding_mb", tokens.next_number(key)?, self.large_mb())?;
                self.max_non_split_rounding_mb = Some(value);
            }
            "large_segment_size_mb" => {
                let value = at_least("large_segment_size_mb", tokens.next_number(key)?, MIN_LARGE_ALLOC / MIB + 1)?;
                self.large_segment_size_mb = Some(value);
            }
            "roundup_power2_divisions" => self.roundup_power2_divisions = parse_divisions(key, tokens)?,
            "garbage_collection_threshold" => {
                self.garbage_collection_threshold =
                    parse_threshold(tokens.next_text(key, "a number between 0 and 1")?)?;
            }
            "per_process_memory_fraction" => {
                self.per_process_memory_fraction =
                    Some(parse_fraction(tokens.next_text(key, "a number from 0 to 1")?)?);
            }
            "backend" => match tokens.next_text(key, "`native`")? {
                "native" => {}
                other => return Err(ConfigError::Backend(other.to_owned())),
            },
            _ if IGNORED_KEYS.contains(&key) => tokens.skip_value(key)?,
            _ => {
                let known = KEYS.iter().chain(&IGNORED_KEYS).copied();
                return Err(ConfigError::UnknownKey { key: key.to_owned(), nearest: nearest(key, known) });
            }
        }
        Ok(())
    }

    fn large_mb(&self) -> u64 {
        self.large_segment_size() / MIB
    }
}

impl FromStr for AllocatorConfig {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text)
    }
}

impl fmt::Display for AllocatorConfig {
    /// The settings that differ from the default, as [`AllocatorConfig::parse`] reads them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = Vec::new();
        let mut add = |key: &str, value: Option<String>| settings.extend(value.map(|v| format!("{key}:{v}")));
        add("expandable_segments", self.expandable_segments.then(|| "True".to_owned()));
        // Before the two settings whose least value depends on it.
        add("large_segment_size_mb", self.large_segment_size_mb.map(|n| n.to_string()));
        add("max_split_size_mb", self.max_split_size_mb.map(|n| n.to_string()));
        add("max_non_split_rounding_mb", self.max_non_split_rounding_mb.map(|n| n.to_string()));
        add("roundup_power2_divisions", divisions_text(&self.roundup_power2_divisions));
        let threshold = self.garbage_collection_threshold;
        add("garbage_collection_threshold", (threshold != 0.0).then(|| threshold.to_string()));
        add("per_process_memory_fraction", self.per_process_memory_fraction.map(|x| x.to_string()));
        f.pad(&settings.join(","))
    }
}

/// Words and the signs `, : [ ]`; white space counts for nothing (`ConfigTokenizer`).
struct Tokens<'a> {
    rest: Vec<&'a str>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let mut rest = Vec::new();
        for piece in text.split_inclusive([',', ':', '[', ']']) {
            let word = piece.trim_end_matches([',', ':', '[', ']']);
            let sign = &piece[word.len()..];
            rest.extend([word.trim(), sign].into_iter().filter(|t| !t.is_empty()));
        }
        rest.reverse();
        Self { rest }
    }

    fn next(&mut self) -> Option<&'a str> {
        self.rest.pop()
    }

    fn peek(&self) -> Option<&'a str> {
        self.rest.last().copied()
    }

    fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn expect_token(&mut self, key: &str, token: &str, expected: &'static str) -> Result<(), ConfigError> {
        match self.next() {
            Some(found) if found == token => Ok(()),
            found => Err(unexpected(key, expected, found)),
        }
    }

    /// A word, not a sign.
    fn next_text(&mut self, key: &str, expected: &'static str) -> Result<&'a str, ConfigError> {
        match self.next() {
            Some(word) if !matches!(word, "," | ":" | "[" | "]") => Ok(word),
            found => Err(unexpected(key, expected, found)),
        }
    }

    fn next_number(&mut self, key: &str) -> Result<u64, ConfigError> {
        let word = self.next_text(key, "a whole number")?;
        word.parse().map_err(|_| unexpected(key, "a whole number", Some(word)))
    }

    fn next_boolean(&mut self, key: &str) -> Result<bool, ConfigError> {
        match self.next_text(key, "`True` or `False`")? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(unexpected(key, "`True` or `False`", Some(other))),
        }
    }

    fn skip_value(&mut self, key: &str) -> Result<(), ConfigError> {
        if self.peek() != Some("[") {
            return self.next_text(key, "a value").map(drop);
        }
        while let Some(token) = self.next() {
            if token == "]" {
                return Ok(());
            }
        }
        Err(unexpected(key, "`]`", None))
    }
}

fn unexpected(key: &str, expected: &'static str, found: Option<&str>) -> ConfigError {
    let found = found.map_or_else(|| "the end".to_owned(), |word| format!("`{word}`"));
    ConfigError::Expected { key: key.to_owned(), expected, found }
}

fn at_least(key: &'static str, value: u64, least: u64) -> Result<u64, ConfigError> {
    if value >= least {
        return Ok(value);
    }
    Err(ConfigError::OutOfRange { key, allowed: format!("at least {least}"), value: value.to_string() })
}

/// Strictly between 0 and 1.
fn parse_threshold(word: &str) -> Result<f64, ConfigError> {
    let value = word.parse().ok().filter(|x| *x > 0.0 && *x < 1.0);
    let allowed = "between 0 and 1".to_owned();
    value.ok_or_else(|| ConfigError::OutOfRange {
        key: "garbage_collection_threshold",
        allowed,
        value: word.to_owned(),
    })
}

/// From 0 to 1, both included.
fn parse_fraction(word: &str) -> Result<f64, ConfigError> {
    let value = word.parse().ok().filter(|x| (0.0..=1.0).contains(x));
    let allowed = "from 0 to 1".to_owned();
    value.ok_or_else(|| ConfigError::OutOfRange { key: "per_process_memory_fraction", allowed, value: word.to_owned() })
}

/// One number for all sizes, or a list `[256:1,512:2,>:4]`.
fn parse_divisions(key: &str, tokens: &mut Tokens<'_>) -> Result<[u64; ROUNDUP_INTERVALS], ConfigError> {
    if tokens.peek() != Some("[") {
        return Ok([power_of_two(tokens.next_number(key)?, false)?; ROUNDUP_INTERVALS]);
    }
    tokens.next();
    let mut table = [0; ROUNDUP_INTERVALS];
    let mut last = None;
    while tokens.peek() != Some("]") {
        let boundary = tokens.next_text(key, "a size in MiB, `>` or `]`")?;
        tokens.expect_token(key, ":", "`:`")?;
        let value = power_of_two(tokens.next_number(key)?, true)?;
        if boundary == ">" {
            // Everything above the boundary before it.
            table[last.unwrap_or(0) + 1..].fill(value);
        } else {
            let boundary = boundary.parse().map_err(|_| unexpected(key, "a size in MiB or `>`", Some(boundary)))?;
            let index = power_of_two(boundary, false)?.ilog2() as usize;
            let index = index.min(ROUNDUP_INTERVALS - 1);
            if last.is_none() {
                table[..index].fill(value);
            }
            table[index] = value;
            last = Some(index);
        }
        if tokens.peek() != Some("]") {
            tokens.expect_token(key, ",", "`,` or `]`")?;
        }
    }
    tokens.next();
    Ok(table)
}

fn power_of_two(value: u64, or_zero: bool) -> Result<u64, ConfigError> {
    if value.is_power_of_two() || (or_zero && value == 0) {
        return Ok(value);
    }
    let allowed = if or_zero { "powers of two, or 0" } else { "powers of two" };
    Err(ConfigError::OutOfRange {
        key: "roundup_power2_divisions",
        allowed: allowed.to_owned(),
        value: value.to_string(),
    })
}

/// The shortest text that `divisions` reads as this table; `None` when it is off.
fn divisions_text(table: &[u64; ROUNDUP_INTERVALS]) -> Option<String> {
    let run = |values: &mut dyn Iterator<Item = &u64>, value: u64| values.take_while(|v| **v == value).count();
    let (first, last) = (table[0], table[ROUNDUP_INTERVALS - 1]);
    let head = run(&mut table.iter(), first);
    if head == ROUNDUP_INTERVALS {
        return (first != 0).then(|| first.to_string());
    }
    let tail = ROUNDUP_INTERVALS - run(&mut table.iter().rev(), last);
    // The first boundary also speaks for everything below it, `>` for everything above the last.
    let boundaries = (head - 1..tail).map(|i| format!("{}:{}", 1u64 << i, table[i]));
    let entries: Vec<String> = boundaries.chain([format!(">:{last}")]).collect();
    Some(format!("[{}]", entries.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> [u64; ROUNDUP_INTERVALS] {
        AllocatorConfig::parse(&format!("roundup_power2_divisions:{text}")).unwrap().roundup_power2_divisions
    }

    #[test]
    fn reads_what_torch_reads() {
        let text = " expandable_segments:True, max_split_size_mb : 128,garbage_collection_threshold:0.6,backend:native,\
                    pinned_num_register_threads:8,roundup_power2_divisions:[ 256:1, 512:2,>:8]";
        let config = AllocatorConfig::parse(text).unwrap();
        assert!(config.expandable_segments);
        assert_eq!(config.max_split_size_mb, Some(128));
        assert_eq!(config.garbage_collection_threshold, 0.6);
        assert_eq!(config.roundup_power2_divisions, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8]);
        assert_eq!(AllocatorConfig::parse("").unwrap(), AllocatorConfig::default());
    }

    #[test]
    fn fills_the_division_table_as_torch_does() {
        assert_eq!(list("4"), [4; 16]);
        // Gaps between boundaries stay off, as seen in PyTorch 2.11.
        assert_eq!(list("[4:8,64:4,128:2]"), [8, 8, 8, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(list("[1048576:2]"), [2; 16]);
    }

    #[test]
    fn prints_what_it_reads() {
        let texts = [
            "",
            "expandable_segments:True",
            "max_split_size_mb:128",
            "roundup_power2_divisions:4",
            "roundup_power2_divisions:[256:1,512:2,>:8]",
            "roundup_power2_divisions:[1:8,>:0]",
            "garbage_collection_threshold:0.6,per_process_memory_fraction:0.8",
            "large_segment_size_mb:30,max_split_size_mb:30,max_non_split_rounding_mb:40",
        ];
        for text in texts {
            assert_eq!(AllocatorConfig::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let cases = [
            (
                "expandable_segment:True",
                "unknown allocator setting `expandable_segment`; did you mean `expandable_segments`?",
            ),
            ("max_split_size:64", "unknown allocator setting `max_split_size`; did you mean `max_split_size_mb`?"),
            ("wombat:1", "unknown allocator setting `wombat`"),
            ("max_split_size_mb:19", "`max_split_size_mb` must be at least 20, not 19"),
            ("large_segment_size_mb:10", "`large_segment_size_mb` must be at least 11, not 10"),
            ("max_split_size_mb:12x", "`max_split_size_mb`: expected a whole number, found `12x`"),
            ("expandable_segments:true", "`expandable_segments`: expected `True` or `False`, found `true`"),
            ("expandable_segments", "`expandable_segments`: expected `:`, found the end"),
            ("roundup_power2_divisions:3", "`roundup_power2_divisions` must be powers of two, not 3"),
            ("roundup_power2_divisions:[4:2", "`roundup_power2_divisions`: expected `,` or `]`, found the end"),
            ("garbage_collection_threshold:1", "`garbage_collection_threshold` must be between 0 and 1, not 1"),
            ("backend:cudaMallocAsync", "allocator backend `cudaMallocAsync` is not simulated; use `native`"),
        ];
        for (text, message) in cases {
            assert_eq!(AllocatorConfig::parse(text).unwrap_err().to_string(), message);
        }
    }
}
