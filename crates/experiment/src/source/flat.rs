//! A JSON object as pairs of a path and a number or a text: what lines of metrics are. Python's `NaN` and `Infinity`, which JSON
//! lacks, are read as Python writes them.

use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Objects within objects, as deep as this.
const DEEPEST: usize = 4;
/// Pairs of one line.
const MOST_PAIRS: usize = 10_000;

/// A value of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// A number; a truth is 0 or 1.
    Number(f64),
    Text(Cow<'a, str>),
}

impl Scalar<'_> {
    /// The number, also of the texts in which W&B writes what is not finite.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => match text.as_ref() {
                "NaN" | "nan" => Some(f64::NAN),
                "Infinity" | "inf" => Some(f64::INFINITY),
                "-Infinity" | "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
        }
    }

    /// The text, of one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) => None,
        }
    }
}

/// Pairs of a line, nested names joined by `/`.
pub type Pairs<'a> = Vec<(Cow<'a, str>, Scalar<'a>)>;

/// The pairs of the object that `line` is. `patched` is room for a line that has to be mended first.
pub fn read_object<'a>(line: &'a [u8], patched: &'a mut Vec<u8>) -> Result<Pairs<'a>, String> {
    match parse(line) {
        Err(_) if mend_line(line, patched) => parse(patched),
        parsed => parsed,
    }
}

fn parse(line: &[u8]) -> Result<Pairs<'_>, String> {
    let mut pairs = Vec::with_capacity(8);
    let mut parser = serde_json::Deserializer::from_slice(line);
    let level = Level { prefix: Cow::Borrowed(""), depth: 0, pairs: &mut pairs, is_top: true };
    level.deserialize(&mut parser).and_then(|()| parser.end()).map_err(|error| error.to_string())?;
    Ok(pairs)
}

/// Writes `line` with bare `NaN` and `Infinity` as texts; whether there were any.
pub fn mend_line(line: &[u8], patched: &mut Vec<u8>) -> bool {
    patched.clear();
    let (mut is_text, mut is_mended, mut at) = (false, false, 0);
    while at < line.len() {
        let rest = &line[at..];
        let word = [&b"-Infinity"[..], b"Infinity", b"NaN"].into_iter().find(|word| !is_text && rest.starts_with(word));
        if let Some(word) = word {
            patched.push(b'"');
            patched.extend_from_slice(word);
            patched.push(b'"');
            at += word.len();
            is_mended = true;
            continue;
        }
        let length = if is_text && rest[0] == b'\\' { 2.min(rest.len()) } else { 1 };
        is_text ^= rest[0] == b'"';
        patched.extend_from_slice(&rest[..length]);
        at += length;
    }
    is_mended
}

struct Level<'p, 'a> {
    prefix: Cow<'a, str>,
    depth: usize,
    pairs: &'p mut Pairs<'a>,
    is_top: bool,
}

impl<'a> DeserializeSeed<'a> for Level<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Level<'_, 'a> {
    fn add_value<E: serde::de::Error>(self, value: Scalar<'a>) -> Result<(), E> {
        if self.is_top {
            return Err(E::custom("no JSON object"));
        }
        if self.pairs.len() >= MOST_PAIRS {
            return Err(E::custom("more values than a line of metrics has"));
        }
        self.pairs.push((self.prefix, value));
        Ok(())
    }
}

impl<'a> Visitor<'a> for Level<'_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.add_value(Scalar::Number(f64::from(u8::from(value))))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.add_value(Scalar::Number(value as f64))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.add_value(Scalar::Number(value as f64))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.add_value(Scalar::Number(value))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, value: &'a str) -> Result<(), E> {
        self.add_value(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.add_value(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        if self.is_top { Err(E::custom("no JSON object")) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        if self.is_top {
            return Err(A::Error::custom("no JSON object"));
        }
        // Histograms, images and the like are no metric.
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Key(key)) = map.next_key()? {
            if self.depth >= DEEPEST {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let prefix = if self.prefix.is_empty() { key } else { Cow::Owned(format!("{}/{key}", self.prefix)) };
            map.next_value_seed(Level { prefix, depth: self.depth + 1, pairs: &mut *self.pairs, is_top: false })?;
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'a> serde::Deserialize<'a> for Key<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'a> Visitor<'a> for Text {
            type Value = Key<'a>;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, value: &'a str) -> Result<Key<'a>, E> {
                Ok(Key(Cow::Borrowed(value)))
            }
            fn visit_str<E>(self, value: &str) -> Result<Key<'a>, E> {
                Ok(Key(Cow::Owned(value.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[(&str, Option<f64>)]) {
        let mut room = Vec::new();
        let pairs = read_object(line.as_bytes(), &mut room).expect(line);
        let found: Vec<_> = pairs.iter().map(|(key, value)| (key.as_ref(), value.number())).collect();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }

    #[test]
    fn objects_become_pairs() {
        check(
            r#"{"step": 3, "eval": {"acc": 0.5}, "ok": true}"#,
            &[("step", Some(3.0)), ("eval/acc", Some(0.5)), ("ok", Some(1.0))],
        );
        check(
            r#"{"a": NaN, "b": -Infinity, "c": "NaN \" Infinity"}"#,
            &[("a", Some(f64::NAN)), ("b", Some(f64::NEG_INFINITY)), ("c", None)],
        );
        check(r#"{"h": [1, 2], "n": null, "k\n": 1}"#, &[("k\n", Some(1.0))]);
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for line in ["", "3", "[1]", "null", "{\"a\":1", "{\"a\":1} x", "{'a': 1}"] {
            assert!(read_object(line.as_bytes(), &mut Vec::new()).is_err(), "{line}");
        }
        let deep = format!("{}1{}", "{\"a\":".repeat(3_000), "}".repeat(3_000));
        // What lies deeper than metrics do is passed over, without a stack of its depth.
        assert_eq!(read_object(deep.as_bytes(), &mut Vec::new()), Ok(Vec::new()));
    }
}
