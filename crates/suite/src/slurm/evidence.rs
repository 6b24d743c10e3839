//! What a run's own script wrote of its starts: `starts.log`, a line when a command begins and one when it ends, and the mark `done`.

use std::path::Path;

use serde::Deserialize;
use tonnage_run::bounded::read_bounded;

/// Bytes of the lines of a run that are read: a start takes some 300.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Line {
    event: String,
    at: f64,
    job: String,
    node: String,
    batch: String,
    link: u32,
    code: Option<i32>,
    again: Option<String>,
    asked: bool,
    refused: bool,
    before: Option<f64>,
}

/// A start of a run's command.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Start {
    /// The batch that it is of.
    pub batch: String,
    /// The link of its chain.
    pub link: u32,
    /// The job, as SLURM writes it: `7_3`.
    pub job: String,
    /// The node on which its script ran.
    pub node: String,
    /// When it began, in seconds since 1970 by that node's clock.
    pub began: f64,
    /// When it ended; `None` where nothing says so.
    pub ended: Option<f64>,
    /// The exit code of the command.
    pub code: Option<i32>,
    /// Whether it goes on in another start.
    pub goes_on: bool,
    /// Whether it was asked to end.
    pub was_asked: bool,
    /// Whether SLURM started its script, and not its command.
    pub was_refused: bool,
    /// When its log had been written last before it began, in seconds since 1970; `None` where its node did not say.
    pub log_before: Option<f64>,
}

/// What a run left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Whether it is done.
    pub is_done: bool,
    /// Its starts, in order.
    pub starts: Vec<Start>,
}

impl Evidence {
    /// Of the run whose folder this is.
    pub fn read_evidence(folder: &Path) -> Self {
        // Over NFS a name is looked up anew once its folder was listed.
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let is_done = names.into_iter().any(|name| name == "done");
        let text = read_bounded(folder.join("starts.log"), MOST_BYTES).unwrap_or_default();
        Self { is_done, starts: read_starts(&String::from_utf8_lossy(&text)) }
    }

    /// The last start of a batch.
    pub fn last_of(&self, batch: &str) -> Option<&Start> {
        self.starts.iter().rfind(|start| start.batch == batch)
    }
}

/// Lines put together; a torn one costs itself only.
fn read_starts(text: &str) -> Vec<Start> {
    let mut starts: Vec<Start> = Vec::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
        match line.event.as_str() {
            "begin" => starts.push(Start {
                batch: line.batch,
                link: line.link,
                job: line.job,
                node: line.node,
                began: line.at,
                log_before: line.before,
                ..Start::default()
            }),
            "end" => {
                // A second one says that it does not go on after all.
                let open =
                    starts.last_mut().filter(|start| (start.ended.is_none() || start.goes_on) && start.job == line.job);
                if let Some(start) = open {
                    (start.ended, start.code) = (Some(line.at.max(start.began)), line.code);
                    (start.goes_on, start.was_asked, start.was_refused) =
                        (line.again.is_some(), line.asked, line.refused);
                }
            }
            _ => {}
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_did_not_start_says_so() {
        let text = concat!(
            r#"{"event":"begin","at":10,"job":"7_3","start":0,"node":"n1","batch":"b","link":1,"before":9}"#,
            "\n",
            r#"{"event":"end","at":40,"job":"7_3","start":0,"node":"n1","batch":"b","link":1,"code":1,"again":"requeue","refused":true}"#,
            "\n",
            r#"{"event":"begin","at":90,"job":"7_3","start":1,"node":"n2","batch":"b","link":1,"before":null}"#,
        );
        let found = read_starts(text);
        assert!(found[0].was_refused && found[0].goes_on && found[0].log_before == Some(9.0), "{found:?}");
        assert!(!found[1].was_refused && found[1].ended.is_none() && found[1].log_before.is_none());
    }

    #[test]
    fn lines_are_put_together_and_torn_ones_passed_over() {
        let text = concat!(
            r#"{"event":"begin","at":10,"job":"7_3","start":0,"node":"n1","batch":"b","link":1}"#,
            "\n{\"event\":\"end\",\"at\":1",
            "\n",
            r#"{"event":"begin","at":30,"job":"7_3","start":1,"node":"n1","batch":"b","link":1}"#,
            "\n",
            r#"{"event":"end","at":25,"job":"7_3","start":1,"node":"n1","batch":"b","link":1,"code":3,"again":"requeue"}"#,
            "\n",
            r#"{"event":"end","at":99,"job":"8_3","code":0}"#,
        );
        let refused = format!("{text}\n{}", r#"{"event":"end","at":31,"job":"7_3","code":3}"#);
        assert!(
            read_starts(&refused).last().is_some_and(|last| !last.goes_on && last.ended == Some(31.0)),
            "not requeued after all"
        );
        let found = read_starts(text);
        let seen: Vec<_> = found.iter().map(|one| (one.began, one.ended, one.code, one.goes_on)).collect();
        assert_eq!(
            seen,
            [(10.0, None, None, false), (30.0, Some(30.0), Some(3), true)],
            "a clock that went back is no time"
        );
    }
}
