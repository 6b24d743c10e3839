//! Values beyond reason, and those that a key just takes.

use tonnage_core::job::{Key, Kind};

/// No value of any key but by chance.
const STRANGE: [&str; 22] = [
    "0",
    "1",
    "-1",
    "-0",
    "0.5",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e-320",
    "nan",
    "inf",
    "-inf",
    "",
    "null",
    "[]",
    "{}",
    "ünïcödé-日本-🙂",
    "true",
];
/// Sizes that make much work of little, where a key takes them.
const LARGE: [u64; 7] = [2, 100, 1000, 10_000, 100_000, 1_000_000, 100_000_000];

/// All that are tried of a key.
pub fn of_key(key: &Key) -> Vec<String> {
    let mut values = strange_values();
    match key.kind {
        Kind::Size { min, max } => {
            values.extend([min, max, max / 2, max.saturating_add(1)].map(|size| size.to_string()));
            values.extend(LARGE.iter().filter(|size| (min..=max).contains(*size)).map(u64::to_string));
        }
        Kind::Number { min, max } => values.extend([min, max, (min + max) / 2.0].map(|number| number.to_string())),
        Kind::Choice(choices) => values.extend(choices.iter().map(|(word, _)| (*word).to_owned())),
        Kind::Switch | Kind::Text | Kind::TextOrNumber | Kind::Texts => {}
    }
    values.push(key.example.trim_matches('"').to_owned());
    values.sort();
    values.dedup();
    values
}

/// Those that suit no key.
pub fn strange_values() -> Vec<String> {
    let long = ["x".repeat(20_000), "9".repeat(400), "é".repeat(5_000)];
    STRANGE.iter().map(|value| (*value).to_owned()).chain(long).collect()
}

/// Those of a field of a config.
pub fn of_field() -> Vec<String> {
    let sizes = LARGE.iter().chain(&[3, 64, 4096, 1 << 20, 1 << 24, 1 << 31, 1 << 40]).map(u64::to_string);
    strange_values().into_iter().chain(sizes).collect()
}
