//! Weights & Biases through a side process of its own package: one Python for all runs, fed with JSON lines. Whether it hangs or dies
//! touches no run and no runner; what it has not acknowledged is given again by the next export.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Measured, Sink, Target, replace_file};

/// The side process.
const SIDE: &str = include_str!("../../python/tonnage_wandb.py");
/// How long the side process may be silent at the end.
const PATIENCE: Duration = Duration::from_secs(120);
/// The key under which wandb keeps when a row was logged, in seconds since 1970; a row that has it keeps it (0.31, sdk/interface/interface.py,
/// `publish_partial_history`).
const TIME: &str = "_timestamp";
/// Held by the export that writes to the folder.
const HELD: &str = "tonnage-exported.lock";
/// How the folder of an export that died begins from then on.
const DIED: &str = "died-";
/// What was acknowledged, in the folder.
const CURSOR: &str = "tonnage-exported.json";

pub(super) fn begin(target: &Target) -> io::Result<Box<dyn Sink>> {
    fs::create_dir_all(&target.folder)?;
    let folder = fs::canonicalize(&target.folder)?;
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(folder.join(HELD))?;
    let held = Flock::lock(opened, FlockArg::LockExclusiveNonblock)
        .map_err(|_| io::Error::other("another export writes there; it ends with its suite"))?;
    let cursor = fs::read(folder.join(CURSOR)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let side = Side::start(&target.python, &folder)?;
    Ok(Box::new(Wandb { folder, _held: held, side, given: cursor.unwrap_or_default(), open: HashMap::new(), ended: 0 }))
}

/// How far a run was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Given {
    /// The last step; `None` before the first.
    step: Option<f64>,
    /// The time of the last look at the machine.
    looked_ms: u64,
    /// Whether it was given to its end.
    is_whole: bool,
    /// The folders of W&B's that hold what was given.
    places: Vec<String>,
}

struct Wandb {
    folder: PathBuf,
    /// Two exports into one folder would each take the other's for dead.
    _held: Flock<File>,
    side: Side,
    /// What W&B has on the disk, by identity.
    given: BTreeMap<String, Given>,
    /// Runs that are open there, with what was handed over.
    open: HashMap<String, (Given, bool)>,
    ended: usize,
}

impl Sink for Wandb {
    fn take(&mut self, runs: &[Measured]) -> io::Result<()> {
        for one in runs {
            self.give_points(one)?;
        }
        self.hear_answers(Duration::ZERO)
    }

    fn finish(&mut self) -> io::Result<String> {
        let living: Vec<String> =
            self.open.iter().filter(|(_, (_, is_ended))| !is_ended).map(|(id, _)| id.clone()).collect();
        for id in living {
            // What still runs is ended there; a later export goes on with it.
            self.end(&id, 0)?;
        }
        let mut heard = Instant::now();
        while !self.open.is_empty() {
            let before = self.open.len();
            self.hear_answers(Duration::from_secs(1))?;
            heard = if self.open.len() < before { Instant::now() } else { heard };
            if heard.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("wandb did not end {} runs in two minutes", self.open.len())));
            }
        }
        self.side.close();
        Ok(format!(
            "{} runs; `wandb sync {}/wandb/offline-run-*` uploads what is offline",
            self.ended,
            self.folder.display()
        ))
    }
}

impl Wandb {
    /// Hands over what is new of a run.
    fn give_points(&mut self, one: &Measured) -> io::Result<()> {
        let before = self.open.get(&one.id).map(|(given, _)| given.clone());
        let is_open = before.is_some();
        let mut given = before.or_else(|| self.given.get(&one.id).cloned()).unwrap_or_default();
        if given.is_whole {
            return Ok(());
        }
        let points: Vec<_> =
            one.points().into_iter().filter(|point| given.step.is_none_or(|last| point.step > last)).collect();
        let looks: Vec<_> = one.looks.iter().filter(|look| look.at_ms > given.looked_ms).collect();
        if !is_open {
            if points.is_empty() && looks.is_empty() && !one.has_ended {
                return Ok(());
            }
            set_aside(&self.folder, &one.id, &given.places)?;
            self.side.say_line(&begin_message(one, &self.folder))?;
        }
        for point in points {
            let axes = [("step", Some(point.step)), ("seconds", point.seconds), ("gpu_hours", point.gpu_hours)];
            let tokens = [
                ("tokens_generated", point.tokens_generated),
                ("tokens_trained", point.tokens_trained),
                ("flops", point.flops),
            ];
            // When it was measured, where the run says so; else W&B takes the time of the export.
            let at = [(TIME, point.seconds.map(|seconds| one.began + seconds))];
            let axes = axes.into_iter().chain(tokens).chain(at);
            let axes = axes.filter_map(|(name, value)| Some((name.to_owned(), value?)));
            let values: BTreeMap<String, f64> = axes.chain(point.metrics).collect();
            self.side.say_line(&json!({"log": one.id, "values": values}))?;
            given.step = Some(point.step);
        }
        for look in looks {
            let mut values = look.metrics.clone();
            values.insert("system.seconds".to_owned(), look.seconds);
            values.insert(TIME.to_owned(), look.at_ms as f64 / 1e3);
            self.side.say_line(&json!({"log": one.id, "values": values}))?;
            given.looked_ms = look.at_ms;
        }
        self.open.insert(one.id.clone(), (given, false));
        if one.has_ended {
            let is_success = one.run.end.as_ref().is_some_and(|end| end.outcome == "succeeded");
            self.end(&one.id, i32::from(!is_success))?;
            if let Some((given, _)) = self.open.get_mut(&one.id) {
                given.is_whole = true;
            }
        }
        Ok(())
    }

    fn end(&mut self, id: &str, exit_code: i32) -> io::Result<()> {
        self.side.say_line(&json!({"end": id, "exit_code": exit_code}))?;
        if let Some((_, is_ended)) = self.open.get_mut(id) {
            *is_ended = true;
        }
        Ok(())
    }

    /// Hears what the side process says: all that it has said, after waiting for it so long.
    fn hear_answers(&mut self, wait: Duration) -> io::Result<()> {
        let mut wait = wait;
        loop {
            match self.side.answers.recv_timeout(wait) {
                Ok(answer) => self.take_answer(&answer)?,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other(
                        "the side process of wandb has ended; what it has not kept is given again by the next export",
                    ));
                }
            }
            wait = Duration::ZERO;
        }
    }

    fn take_answer(&mut self, answer: &Value) -> io::Result<()> {
        if let Some(id) = answer["ended"].as_str()
            && let Some((mut given, _)) = self.open.remove(id)
        {
            given.places.extend(answer["place"].as_str().map(str::to_owned));
            self.ended += 1;
            self.given.insert(id.to_owned(), given);
            let text = serde_json::to_vec_pretty(&self.given)?;
            return replace_file(&self.folder.join(CURSOR), &text);
        }
        match answer["error"].as_str() {
            Some(error) => Err(io::Error::other(format!("wandb: {error}"))),
            None => Ok(()),
        }
    }
}

/// Renames what an export left of a run that died before W&B had ended it: what is in there is given again, and uploaded once.
fn set_aside(folder: &Path, id: &str, places: &[String]) -> io::Result<()> {
    let wandb = folder.join("wandb");
    for entry in fs::read_dir(&wandb).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_left = name.starts_with("offline-run-") && name.ends_with(&format!("-{id}")) && !places.contains(&name);
        if is_left {
            fs::rename(entry.path(), wandb.join(format!("{DIED}{name}")))?;
        }
    }
    Ok(())
}

/// Who a run is.
fn begin_message(one: &Measured, folder: &Path) -> Value {
    let identity = &one.run.identity;
    let mut config = identity.parameters.clone();
    config.insert("seed".to_owned(), json!(identity.seed));
    config.insert("configuration".to_owned(), json!(identity.configuration));
    let facts = [("gpu", json!(identity.gpu)), ("gpus", json!(identity.gpus)), ("versions", json!(identity.versions))];
    config.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
    json!({
        "begin": one.id, "project": identity.suite, "group": identity.configuration, "job_type": "train",
        "name": one.run.name(), "tags": ["tonnage"], "config": config, "dir": folder,
    })
}

/// The Python that has wandb.
struct Side {
    child: Child,
    lines: Option<Sender<String>>,
    answers: Receiver<Value>,
}

impl Side {
    fn start(python: &Path, folder: &Path) -> io::Result<Self> {
        let mut command = Command::new(python);
        command
            .args(["-c", SIDE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir(folder);
        let mut child = command.spawn().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!(
                    "--python names the Python that has wandb, and {} cannot be started: {error}",
                    python.display()
                ),
            )
        })?;
        let (lines, to_write) = channel::<String>();
        let (sender, answers) = channel();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        // A thread of its own: a side process that does not read must hold up nobody.
        thread::spawn(move || {
            let Some(mut stdin) = stdin else { return };
            for line in to_write {
                if stdin.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        thread::spawn(move || {
            for line in BufReader::new(stdout.into_iter().next()?).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { continue };
                sender.send(answer).ok()?;
            }
            Some(())
        });
        Ok(Self { child, lines: Some(lines), answers })
    }

    fn say_line(&self, line: &Value) -> io::Result<()> {
        let gone = || io::Error::other("the side process of wandb does not listen");
        self.lines.as_ref().ok_or_else(gone)?.send(format!("{line}\n")).map_err(|_| gone())
    }

    /// Lets it end.
    fn close(&mut self) {
        self.lines = None;
        // How it ends says nothing more: all runs were acknowledged.
        let _ = self.child.wait();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // One that was closed has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
