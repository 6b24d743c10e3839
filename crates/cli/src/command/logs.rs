//! `tonnage logs`: what a run's processes wrote.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tonnage_run::log::Follower;
use tonnage_run::store::{RunFolder, Store};

use super::colours::Colours;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// How often a log is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Prints what a run's processes wrote
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage logs\n  tonnage logs last --follow\n  tonnage logs last --attempt 1 --node node-3\n  tonnage logs --json | jq -r 'select(.stream == \"stderr\").line'"
)]
pub struct LogsArgs {
    /// The run: its id, a part of it that no other has, or `last`; to follow, the newest that lives
    #[arg(default_value = "last")]
    run: String,

    /// The attempt [default: the last]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,

    /// Of a swarm, only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// Goes on until the run ends
    #[arg(short, long)]
    follow: bool,

    /// Prints a JSON object a line: run, node, attempt, stream, line
    #[arg(long)]
    json: bool,
}

impl LogsArgs {
    /// Prints them.
    ///
    /// # Errors
    /// When there is no such run or node.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let store = Store::of_user();
        let folder = if self.follow { store.find_living(&self.run)? } else { store.find(&self.run)? };
        let known = |name: &String| folder.run().nodes.iter().any(|node| node.name == *name);
        if let Some(name) = self.node.as_ref().filter(|name| !known(name)) {
            return Err(Failure::bad_input(format!("run {} has no node `{name}`", folder.id())));
        }
        let mut reader = LogReader::new(&folder, self.node, self.attempt, false);
        reader.as_json = self.json;
        reader.print_new(terminal)?;
        while self.follow && folder.is_supervised() {
            std::thread::sleep(LOOK);
            reader.print_new(terminal)?;
        }
        // What was written between the last look and the end.
        reader.print_new(terminal)?;
        reader.print_rests(terminal).map(|()| Exit::Done)
    }
}

/// Follows the logs of a run's attempts, new ones too.
pub struct LogReader<'a> {
    folder: &'a RunFolder,
    node: Option<String>,
    attempt: Option<u32>,
    from_end: bool,
    pub(super) as_json: bool,
    /// Whether a terminal shows it, which must not obey what a command wrote.
    is_shown: bool,
    logs: Vec<Log>,
}

/// One stream of one attempt.
struct Log {
    path: PathBuf,
    node: String,
    attempt: u32,
    stream: &'static str,
    follower: Follower,
    /// The beginning of a line whose end is not there yet; kept for JSON only, as progress bars end no line.
    rest: Vec<u8>,
    colours: Colours,
}

impl<'a> LogReader<'a> {
    /// Of one node or all, of one attempt or, each time, the last; from what is written from now on, if `from_end`.
    pub fn new(folder: &'a RunFolder, node: Option<String>, attempt: Option<u32>, from_end: bool) -> Self {
        let is_shown = std::io::stdout().is_terminal();
        Self { folder, node, attempt, from_end, as_json: false, is_shown, logs: Vec::new() }
    }

    /// Prints what came.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn print_new(&mut self, terminal: &Terminal) -> Result<(), Failure> {
        self.find_logs();
        let (run, as_json, is_shown) = (self.folder.id(), self.as_json, self.is_shown);
        for log in &mut self.logs {
            loop {
                let bytes = log.follower.more();
                if bytes.is_empty() {
                    break;
                }
                let text = match (as_json, is_shown) {
                    (true, _) => log.json_lines(run, &bytes),
                    (false, true) => label_lines(&log.colours.only(&bytes), &log.node),
                    (false, false) => label_lines(&bytes, &log.node),
                };
                terminal.print_bytes(&text)?;
            }
        }
        Ok(())
    }

    /// Prints what ended without the end of a line, for JSON.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub(super) fn print_rests(&mut self, terminal: &Terminal) -> Result<(), Failure> {
        let run = self.folder.id();
        let rests = self.logs.iter_mut().filter(|log| !log.rest.is_empty());
        rests.map(|log| log.json_lines(run, b"\n")).try_for_each(|text| terminal.print_bytes(&text))
    }

    /// Logs that were not there at the last look.
    fn find_logs(&mut self) {
        let state = self.folder.state();
        for (index, node) in state.nodes.iter().enumerate() {
            let name = self.folder.run().nodes.get(index).map_or("", |node| node.name.as_str());
            let last = node.attempts.last().map(|attempt| attempt.record.number);
            let Some(number) = self.attempt.or(last) else { continue };
            if self.node.as_ref().is_some_and(|wanted| wanted != name) {
                continue;
            }
            for stream in ["stdout", "stderr"] {
                let path = self.folder.attempt_path(index, number).join(stream).with_extension("log");
                if self.logs.iter().all(|log| log.path != path) && path.exists() {
                    let follower = Follower::new(path.clone(), self.from_end);
                    let (node, rest, colours) = (name.to_owned(), Vec::new(), Colours::default());
                    self.logs.push(Log { path, node, attempt: number, stream, follower, rest, colours });
                }
            }
        }
        // Only what was there at the first look is passed over.
        self.from_end = false;
    }
}

impl Log {
    /// The lines that end in `bytes`, each as an object; what is no UTF-8 is replaced.
    fn json_lines(&mut self, run: &str, bytes: &[u8]) -> Vec<u8> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
        let after = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, after);
        let object = |line: &[u8]| {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
            let (node, attempt, stream) = (&self.node, self.attempt, self.stream);
            json!({"run": run, "node": node, "attempt": attempt, "stream": stream, "line": line}).to_string() + "\n"
        };
        lines.split_inclusive(|byte| *byte == b'\n').flat_map(|line| object(line).into_bytes()).collect()
    }
}

/// The lines, each with the label of a swarm's node.
fn label_lines(bytes: &[u8], label: &str) -> Vec<u8> {
    if label.is_empty() {
        return bytes.to_vec();
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(|line| [format!("[{label}] ").as_bytes(), line].concat()).collect()
}
