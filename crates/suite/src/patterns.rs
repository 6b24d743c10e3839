//! Lines of a program's output as metrics: `step {step} loss {train/loss}`, where a name in braces stands for a number.

use std::collections::BTreeMap;

/// A line that is looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Texts, each followed by a number with this name, but for the last.
    parts: Vec<(String, Option<String>)>,
}

impl Pattern {
    /// Reads a pattern; `{_}` is a number that is passed over.
    pub fn read_patterns(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, (name, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            parts.push((before.to_owned(), Some(name.to_owned())));
            rest = after;
        }
        parts.push((rest.to_owned(), None));
        Self { parts }
    }

    /// The numbers of a line that it stands in, wherever it begins.
    pub fn read_line(&self, line: &str) -> Option<BTreeMap<String, f64>> {
        let (first, name) = self.parts.first()?;
        name.as_ref()?;
        let mut from = 0;
        while let Some(at) = line[from..].find(first.as_str()) {
            if let Some(found) = self.read_from(&line[from + at..]) {
                return Some(found);
            }
            from += at + line[from + at..].chars().next().map_or(1, char::len_utf8);
            if from >= line.len() {
                break;
            }
        }
        None
    }

    fn read_from(&self, mut rest: &str) -> Option<BTreeMap<String, f64>> {
        let mut found = BTreeMap::new();
        for (text, name) in &self.parts {
            rest = rest.strip_prefix(text.as_str())?;
            let Some(name) = name else { break };
            let trimmed = rest.trim_start_matches(' ');
            let end = trimmed.find(|c: char| !(c.is_ascii_digit() || "+-.eE_".contains(c))).unwrap_or(trimmed.len());
            // A full stop or a dash may end a sentence.
            let number =
                (1..=end).rev().find_map(|end| Some((end, trimmed[..end].replace('_', "").parse::<f64>().ok()?)));
            let (length, value) = number.or_else(|| trimmed.starts_with("nan").then_some((3, f64::NAN)))?;
            if name != "_" {
                found.insert(name.clone(), value);
            }
            rest = &trimmed[length..];
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_found_by_what_stands_round_them() {
        let read = |pattern: &str, line: &str| {
            Pattern::read_patterns(pattern).read_line(line).map(|found| found.into_iter().collect::<Vec<_>>())
        };
        let two = |a: (&str, f64), b: (&str, f64)| Some(vec![(a.0.to_owned(), a.1), (b.0.to_owned(), b.1)]);
        assert_eq!(
            read("step {step}/{_} loss {loss}", "12:00 step 30/400 loss 2.5e-1, lr 1"),
            two(("loss", 0.25), ("step", 30.0))
        );
        assert_eq!(read("acc={a} b={b}", "acc=x acc=0.5 b=-1_000."), two(("a", 0.5), ("b", -1000.0)));
        assert_eq!(read("loss {loss}", "no such"), None);
        assert_eq!(read("no name", "no name"), None);
        assert_eq!(read("{a}: {b}", "1: 2"), two(("a", 1.0), ("b", 2.0)));
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(pattern in "\\PC{0,20}", name in "\\{[a-z]{0,3}\\}", line in "\\PC{0,60}") {
            let _ = Pattern::read_patterns(&format!("{pattern}{name}")).read_line(&line);
            let _ = Pattern::read_patterns(&name).read_line(&line);
        }
    }
}
