//! `tonnage logs`: what a run's processes wrote.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tonnage_run::launch::Follower;
use tonnage_run::store::{RunFolder, Store};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

/// How often a log is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Prints what a run's processes wrote
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tonnage logs\n  tonnage logs last --follow\n  tonnage logs last --attempt 1 --node node-3"
)]
pub struct LogsArgs {
    /// The run: its id, a part of it that no other has, or `last`
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
}

impl LogsArgs {
    /// Prints them.
    ///
    /// # Errors
    /// When there is no such run or node.
    pub fn run(self, terminal: &Terminal) -> Result<Exit, Failure> {
        let folder = Store::new(Store::default_root()).find(&self.run)?;
        let known = |name: &String| folder.run().nodes.iter().any(|node| node.name == *name);
        if let Some(name) = self.node.as_ref().filter(|name| !known(name)) {
            return Err(Failure::input(format!("run {} has no node `{name}`", folder.id())));
        }
        let mut reader = LogReader::new(&folder, self.node, self.attempt, false);
        reader.print(terminal)?;
        while self.follow && folder.is_supervised() {
            std::thread::sleep(LOOK);
            reader.print(terminal)?;
        }
        // What was written between the last look and the end.
        reader.print(terminal).map(|()| Exit::Done)
    }
}

/// Follows the logs of a run's attempts, new ones too.
pub struct LogReader<'a> {
    folder: &'a RunFolder,
    node: Option<String>,
    attempt: Option<u32>,
    from_end: bool,
    followers: Vec<(PathBuf, String, Follower)>,
}

impl<'a> LogReader<'a> {
    /// Of one node or all, of one attempt or, each time, the last; from what is written from now on, if `from_end`.
    pub const fn new(folder: &'a RunFolder, node: Option<String>, attempt: Option<u32>, from_end: bool) -> Self {
        Self { folder, node, attempt, from_end, followers: Vec::new() }
    }

    /// Prints what came.
    ///
    /// # Errors
    /// When stdout cannot be written.
    pub fn print(&mut self, terminal: &Terminal) -> Result<(), Failure> {
        self.find();
        for (_, label, follower) in &mut self.followers {
            loop {
                let bytes = follower.more();
                if bytes.is_empty() {
                    break;
                }
                terminal.print_bytes(&labelled(&bytes, label))?;
            }
        }
        Ok(())
    }

    /// Logs that were not there at the last look.
    fn find(&mut self) {
        let state = self.folder.state();
        for (index, node) in state.nodes.iter().enumerate() {
            let name = self.folder.run().nodes.get(index).map_or("", |node| node.name.as_str());
            let last = node.attempts.last().map(|attempt| attempt.record.number);
            let Some(number) = self.attempt.or(last) else { continue };
            if self.node.as_ref().is_some_and(|wanted| wanted != name) {
                continue;
            }
            for file in ["stdout.log", "stderr.log"] {
                let path = self.folder.attempt_path(index, number).join(file);
                if self.followers.iter().all(|(known, ..)| *known != path) && path.exists() {
                    let follower = Follower::new(path.clone(), self.from_end);
                    self.followers.push((path, name.to_owned(), follower));
                }
            }
        }
        // Only what was there at the first look is passed over.
        self.from_end = false;
    }
}

/// The lines, each with the label of a swarm's node.
fn labelled(bytes: &[u8], label: &str) -> Vec<u8> {
    if label.is_empty() {
        return bytes.to_vec();
    }
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(|line| [format!("[{label}] ").as_bytes(), line].concat()).collect()
}
