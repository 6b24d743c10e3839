//! The journal's text: a JSON object a line. The last line may be torn by a death in the middle of writing.

use serde_json::{Map, Value};

use super::{Entry, Event, FORMAT};
use crate::limit::LINE_BYTES;

/// A journal that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Journal {
    /// The entries, in the order written.
    pub entries: Vec<Entry>,
    /// Lines that are no entries: torn by a death, or damaged.
    pub unreadable: usize,
}

/// The line of an entry, with its end.
pub fn write_entry(entry: &Entry) -> String {
    let mut line = Map::new();
    line.insert("v".to_owned(), FORMAT.into());
    line.insert("at_ms".to_owned(), entry.at_ms.into());
    let event = match &entry.event {
        Event::Unknown(text) => serde_json::from_str(text).unwrap_or_default(),
        event => serde_json::to_value(event).unwrap_or_default(),
    };
    if let Value::Object(fields) = event {
        line.extend(fields.into_iter().filter(|(key, _)| key != "v" && key != "at_ms"));
    }
    format!("{}\n", Value::Object(line))
}

/// Reads a journal, whatever its state.
pub fn read_journal(text: &str) -> Journal {
    let mut journal = Journal::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match read_entry(line) {
            Some(entry) => journal.entries.push(entry),
            None => journal.unreadable += 1,
        }
    }
    journal
}

fn read_entry(line: &str) -> Option<Entry> {
    if line.len() > LINE_BYTES {
        return None;
    }
    let value: Value = serde_json::from_str(line).ok()?;
    value.get("event")?.as_str()?;
    let at_ms = value.get("at_ms").and_then(Value::as_u64).unwrap_or_default();
    // As values they take many times the memory.
    let event = serde_json::from_value(value).unwrap_or_else(|_| Event::Unknown(line.into()));
    Some(Entry { at_ms, event })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Progress;
    use crate::record::ExitRecord;

    fn entry(event: Event) -> Entry {
        Entry { at_ms: 7, event }
    }

    #[test]
    fn what_is_written_is_read() {
        let exit = ExitRecord { code: Some(1), signal: None };
        let events = [
            entry(Event::Supervised { pid: 4 }),
            entry(Event::AttemptEnded { node: 0, number: 2, exit, seconds: 1.5 }),
            entry(Event::Progress { node: 1, progress: Progress { step: 3, ..Progress::default() } }),
        ];
        let text: String = events.iter().map(write_entry).collect();
        assert_eq!(text.lines().count(), 3);
        assert_eq!(read_journal(&text), Journal { entries: events.to_vec(), unreadable: 0 });
    }

    #[test]
    fn every_cut_loses_the_last_line_at_most() {
        let text: String = (0..3).map(|pid| write_entry(&entry(Event::Supervised { pid }))).collect();
        for cut in 0..text.len() {
            let journal = read_journal(&text[..cut]);
            let whole = text[..cut].matches('\n').count();
            assert!(journal.entries.len() >= whole && journal.entries.len() + journal.unreadable <= whole + 1);
        }
    }

    #[test]
    fn a_newer_version_is_read_and_kept() {
        let newer = r#"{"v":9,"at_ms":5,"event":"teleported","node":0,"where":"there"}"#;
        let grown = r#"{"v":9,"at_ms":6,"event":"supervised","pid":3,"host":"a"}"#;
        let journal = read_journal(&format!("{newer}\n{grown}\n"));
        assert_eq!(journal.entries[0].event, Event::Unknown(newer.into()));
        assert_eq!(journal.entries[1].event, Event::Supervised { pid: 3 });
        assert!(write_entry(&journal.entries[0]).contains("\"where\":\"there\""));
    }

    #[test]
    fn an_older_version_lacks_fields() {
        let older = r#"{"at_ms":5,"event":"attempt_started","attempt":{"number":1}}"#;
        let journal = read_journal(older);
        let Event::AttemptStarted { attempt } = &journal.entries[0].event else { panic!("{journal:?}") };
        assert_eq!((attempt.number, attempt.node, attempt.batch), (1, 0, None));
        let step = r#"{"at_ms":5,"event":"progress","node":0,"step":7,"total":null}"#;
        let progress = Progress { step: 7, ..Progress::default() };
        assert_eq!(read_journal(step).entries[0].event, Event::Progress { node: 0, progress });
        let process = r#"{"at_ms":5,"event":"process_started","node":0,"number":1,"pid":9}"#;
        assert_eq!(
            read_journal(process).entries[0].event,
            Event::ProcessStarted { node: 0, number: 1, pid: 9, began: 0 }
        );
        let run: crate::record::RunRecord = serde_json::from_str(r#"{"id": "a", "future": [1]}"#).unwrap();
        assert_eq!((run.id.as_str(), run.policy.max_attempts), ("a", 5));
    }
}
