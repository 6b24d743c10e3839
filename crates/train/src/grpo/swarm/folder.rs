//! The folder that nodes share: who takes part, what each published in a round, and what a round came to. Whoever can write there may
//! write anything: names are looked up and never listed where strangers write, sizes are capped, and what is not whole is ignored.
//!
//! `experiments/NAME/` has the layout of rl-swarm's shared-directory mode: `peers/ID.json`, `rollouts/round_R/stage_0/ID.json`,
//! `state/current_state.json`; beside them `experiment.json` and `state/round_R.json` are this program's.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use tonnage_core::small_sort::SmallSort;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::TrainError;

/// Names of files that are listed, and peers that are looked at: those whose names are this program's, and some of others.
const MOST_FILES: usize = 1 << 17;
const MOST_NODES: usize = 1024;
const MOST_STRANGERS: usize = 64;
/// Bytes of a file of this program's own.
const MOST_OWN_BYTES: u64 = 1 << 20;
/// Letters of a peer's name.
const MOST_NAME: usize = 64;

/// An experiment's part of the shared folder.
#[derive(Clone, Debug)]
pub struct SwarmFolder {
    root: PathBuf,
    /// Bytes of what a peer publishes in a round, at most.
    most_bytes: u64,
}

/// What all nodes of an experiment agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// Version of the layout.
    pub format: u32,
    /// Rounds of the whole experiment.
    pub rounds: u64,
    /// Nodes it was begun with.
    pub nodes: u64,
}

/// A node that takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Peer {
    pub peer_id: String,
    #[serde(default)]
    pub node_role: String,
    /// The first round it publishes in, since it was started last.
    #[serde(default)]
    pub joined_round: u64,
    /// Whether it went, and is not waited for.
    #[serde(default)]
    pub left: bool,
}

/// What a round came to: all nodes learn from the same peers, whenever they look.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Decision {
    pub round: u64,
    /// Peers whose rollouts are in.
    pub included: Vec<String>,
    /// Peers that were waited for in vain.
    pub missing: Vec<String>,
    pub decided_by: String,
}

/// `state/current_state.json`, as rl-swarm's monitors read it.
#[derive(Serialize, Deserialize)]
struct CurrentState {
    round: u64,
    stage: u64,
}

impl SwarmFolder {
    /// Of an experiment by its name.
    ///
    /// # Errors
    /// When the name is none that a file can have on every system.
    pub fn new(folder: &Path, name: &str, most_bytes: u64) -> Result<Self, TrainError> {
        if !is_name(name) {
            let problem = format!("`swarm.experiment` = {name:?}: letters, digits, `.`, `-` and `_` make a name");
            return Err(TrainError::refused_with(problem, "name it otherwise"));
        }
        Ok(Self { root: folder.join("experiments").join(name), most_bytes })
    }

    /// Where it lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The experiment that lies here, where one does.
    ///
    /// # Errors
    /// When it is of a newer version, or cannot be read.
    pub fn experiment(&self) -> Result<Option<Experiment>, TrainError> {
        let path = self.root.join("experiment.json");
        let Some(found) = read_json::<Experiment>(&path, MOST_OWN_BYTES) else { return Ok(None) };
        if found.format != FORMAT {
            let problem = format!("is of format {}, and this version of tonnage has {FORMAT}", found.format);
            return Err(TrainError::about_weights(&path, problem));
        }
        Ok(Some(found))
    }

    /// Begins an experiment of so many nodes, for all of which its first round waits; `false` where one is here already.
    ///
    /// # Errors
    /// The disk's.
    pub fn begin(&self, rounds: u64, nodes: u64) -> Result<bool, TrainError> {
        for part in ["peers", "state", "rollouts"] {
            make_folder(&self.root.join(part))?;
        }
        let experiment = json_of(&Experiment { format: FORMAT, rounds, nodes });
        let is_first = create_first(&self.root.join("experiment.json"), &experiment)?;
        for index in (0..nodes).filter(|_| is_first) {
            let peer_id = node_name(index);
            self.register(&Peer { peer_id, node_role: "node".to_owned(), ..Peer::default() })?;
        }
        Ok(is_first)
    }

    fn peer_path(&self, name: &str) -> PathBuf {
        self.root.join("peers").join(format!("{name}.json"))
    }

    /// Takes a name for good; `false` where somebody has it.
    pub(super) fn claim(&self, peer: &Peer) -> Result<bool, TrainError> {
        create_first(&self.peer_path(&peer.peer_id), &json_of(peer))
    }

    /// Says where a node stands, under the name that it has.
    pub(super) fn register(&self, peer: &Peer) -> Result<(), TrainError> {
        write_whole(&self.peer_path(&peer.peer_id), &json_of(peer))
    }

    /// All who take part, by name; files that are none are left out.
    pub(super) fn peers(&self) -> Vec<Peer> {
        let Ok(entries) = fs::read_dir(self.root.join("peers")) else { return Vec::new() };
        let names = entries.take(MOST_FILES).flatten().filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(".json")?.to_owned();
            is_name(&name).then_some(name)
        });
        let is_node = |name: &String| name.strip_prefix(NODE).is_some_and(|number| number.parse::<u64>().is_ok());
        let (mut nodes, mut strangers): (Vec<String>, Vec<String>) = names.partition(is_node);
        // By number: nobody takes the place of a node that was there before.
        nodes.small_sort_by_key(|name| (name.len(), name.clone()));
        nodes.truncate(MOST_NODES);
        strangers.small_sort();
        strangers.truncate(MOST_STRANGERS);
        let mut all: Vec<Peer> = nodes
            .into_iter()
            .chain(strangers)
            .filter_map(|name| {
                read_json::<Peer>(&self.peer_path(&name), MOST_OWN_BYTES).filter(|peer| peer.peer_id == name)
            })
            .collect();
        all.small_sort_by(|one, other| one.peer_id.cmp(&other.peer_id));
        all
    }

    fn rollouts_path(&self, round: u64, name: &str) -> PathBuf {
        self.root.join("rollouts").join(format!("round_{round}")).join("stage_0").join(format!("{name}.json"))
    }

    /// Whether a peer has published in a round.
    pub(super) fn has_published(&self, round: u64, name: &str) -> bool {
        self.rollouts_path(round, name).is_file()
    }

    /// Publishes; what was published under this name in this round before stays, whoever reads it may have it already.
    pub(super) fn publish(&self, round: u64, name: &str, text: &[u8]) -> Result<bool, TrainError> {
        let path = self.rollouts_path(round, name);
        make_folder(path.parent().unwrap_or(&self.root))?;
        create_first(&path, text)
    }

    /// Takes the place of what somebody else left under this name.
    pub(super) fn publish_over(&self, round: u64, name: &str, text: &[u8]) -> Result<(), TrainError> {
        write_whole(&self.rollouts_path(round, name), text)
    }

    /// What a peer published, at most as many bytes as are allowed.
    pub(super) fn rollouts(&self, round: u64, name: &str) -> Result<Vec<u8>, Unread> {
        read_bounded(&self.rollouts_path(round, name), self.most_bytes)
    }

    fn decision_path(&self, round: u64) -> PathBuf {
        self.root.join("state").join(format!("round_{round}.json"))
    }

    /// What a round came to, once somebody has decided who took part in it.
    pub(super) fn decision(&self, round: u64) -> Option<Decision> {
        let is_one = |found: &Decision| found.round == round && found.included.contains(&found.decided_by);
        read_json::<Decision>(&self.decision_path(round), MOST_OWN_BYTES).filter(is_one)
    }

    /// Decides a round; whoever was first has decided it, and that is what is returned.
    pub(super) fn decide(&self, decision: &Decision) -> Result<Decision, TrainError> {
        let path = self.decision_path(decision.round);
        if !create_first(&path, &json_of(decision))? && self.decision(decision.round).is_none() {
            // What lies there is no decision.
            write_whole(&path, &json_of(decision))?;
        }
        self.set_round(decision.round + 1)?;
        Ok(self.decision(decision.round).unwrap_or_else(|| decision.clone()))
    }

    /// Says which round comes. It is held against what the state says, not against what was decided since: decisions are forgotten, and a
    /// state that lags behind them would send who joins then into a round that is over.
    pub(super) fn set_round(&self, round: u64) -> Result<(), TrainError> {
        if self.stated_round() < round {
            write_whole(
                &self.root.join("state").join("current_state.json"),
                &json_of(&CurrentState { round, stage: 0 }),
            )?;
        }
        Ok(())
    }

    /// The round that is going on: what the state says, and what was decided since.
    pub(super) fn current_round(&self) -> u64 {
        let mut round = self.stated_round();
        while self.decision(round).is_some() {
            round += 1;
        }
        round
    }

    /// Whether the others are further and what this round came to is removed. That they are is believed of a decision: what anybody writes
    /// into the state ends no round.
    pub(super) fn is_forgotten(&self, round: u64) -> bool {
        let current = self.current_round();
        current > round && self.decision(current - 1).is_some() && self.decision(round).is_none()
    }

    fn stated_round(&self) -> u64 {
        let path = self.root.join("state").join("current_state.json");
        read_json::<CurrentState>(&path, MOST_OWN_BYTES).map_or(0, |state| state.round)
    }

    /// Removes what was published in a round, and what it came to.
    pub(super) fn forget(&self, round: u64) {
        // What cannot be removed costs room and nothing else: the next round tries the next one.
        let _ = fs::remove_dir_all(self.root.join("rollouts").join(format!("round_{round}")));
        let _ = fs::remove_file(self.decision_path(round));
    }

    /// Removes what one peer published in a round.
    pub(super) fn forget_of(&self, round: u64, name: &str) {
        let _ = fs::remove_file(self.rollouts_path(round, name));
    }
}

/// How names of nodes begin.
const NODE: &str = "node-";

/// The name of a node by its number.
pub(super) fn node_name(number: u64) -> String {
    format!("{NODE}{number}")
}

/// Of [`Experiment`]; it rises when an older reader would misunderstand.
const FORMAT: u32 = 1;

/// Why a file of a peer was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not there.
    Missing,
    /// It is larger than is allowed.
    TooLarge,
    /// It is no file, or cannot be read.
    Unreadable,
}

/// Whether a name is a file's on every system, and not hidden.
pub(super) fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty() && name.len() <= MOST_NAME && !name.starts_with('.') && name.chars().all(is_letter)
}

fn make_folder(path: &Path) -> Result<(), TrainError> {
    fs::create_dir_all(path).map_err(|error| TrainError::about_file(path, error))
}

fn json_of(value: &impl Serialize) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    text
}

fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Option<T> {
    serde_json::from_slice(&read_bounded(path, most).ok()?).ok()
}

/// A plain file of at most so many bytes. Pipes and links are none: one would wait for ever, the other leads away.
fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, Unread> {
    let about = fs::symlink_metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Unread::Missing,
        _ => Unread::Unreadable,
    })?;
    if !about.is_file() {
        return Err(Unread::Unreadable);
    }
    if about.len() > most {
        return Err(Unread::TooLarge);
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|_| Unread::Unreadable)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|_| Unread::Unreadable)?;
    if bytes.len() as u64 > most { Err(Unread::TooLarge) } else { Ok(bytes) }
}

/// Beside its place, by this process.
fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

fn write_part(path: &Path, bytes: &[u8]) -> Result<PathBuf, TrainError> {
    let part = part_of(path);
    let written = File::create(&part).and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_data()));
    written.map_err(|error| TrainError::about_file(&part, error))?;
    Ok(part)
}

/// Takes the place of what is there; nobody sees half of it.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let part = write_part(path, bytes)?;
    fs::rename(&part, path).map_err(|error| TrainError::about_file(path, error))
}

/// Puts a whole file where none is; `false` where one is. Of several who try one succeeds.
fn create_first(path: &Path, bytes: &[u8]) -> Result<bool, TrainError> {
    let part = write_part(path, bytes)?;
    let linked = fs::hard_link(&part, path);
    // It is of no use any more; what is left of it is hidden, and its name comes again.
    let _ = fs::remove_file(&part);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(TrainError::about_file(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> (PathBuf, SwarmFolder) {
        let root = std::env::temp_dir().join(format!("tonnage-swarm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let folder = SwarmFolder::new(&root, "exp", 1000).unwrap();
        assert!(folder.begin(10, 2).unwrap() && !folder.begin(99, 2).unwrap());
        assert_eq!(folder.experiment().unwrap().unwrap().rounds, 10);
        (root, folder)
    }

    #[test]
    fn whoever_decides_first_has_decided() {
        let (root, folder) = folder("decide");
        let decision = |by: &str| {
            let included = vec!["a".to_owned(), "b".to_owned()];
            Decision { round: 0, included, decided_by: by.to_owned(), ..Decision::default() }
        };
        assert_eq!(folder.current_round(), 0);
        assert_eq!(folder.decide(&decision("a")).unwrap().decided_by, "a");
        assert_eq!(folder.decide(&decision("b")).unwrap().decided_by, "a", "the second sees what the first decided");
        assert_eq!(folder.current_round(), 1);
        fs::write(folder.root().join("state/round_1.json"), "{\"round\": 1, \"inc").unwrap();
        let second = Decision { round: 1, ..decision("b") };
        assert_eq!(folder.decide(&second).unwrap().decided_by, "b", "what is torn is no decision");
        let peer = Peer { peer_id: "node-2".to_owned(), ..Peer::default() };
        assert!(folder.claim(&peer).unwrap() && !folder.claim(&peer).unwrap());
        assert!(folder.publish(1, "node-0", b"{}").unwrap() && folder.has_published(1, "node-0"));
        assert!(!folder.publish(1, "node-0", b"other").unwrap(), "what was published stays");
        folder.forget(1);
        assert!(!folder.has_published(1, "node-0"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_strangers_write_is_bounded_and_ignored() {
        let (root, folder) = folder("hostile");
        let peers = folder.root().join("peers");
        for number in 0..2000 {
            fs::write(peers.join(format!("a-stranger-{number}.json")), "{").unwrap();
        }
        for (name, text) in [
            ("torn.json", "{\"peer_id\": \"to"),
            ("other.json", "{\"peer_id\": \"node-0\"}"),
            (".hidden.json", "{\"peer_id\": \".hidden\"}"),
            ("no peer.json", "{\"peer_id\": \"no peer\"}"),
        ] {
            fs::write(peers.join(name), text).unwrap();
        }
        fs::create_dir(peers.join("folder.json")).unwrap();
        let names: Vec<String> = folder.peers().into_iter().map(|peer| peer.peer_id).collect();
        assert_eq!(names, ["node-0", "node-1"], "both that it was begun with, and no stranger");
        let place = folder.root().join("rollouts/round_0/stage_0");
        fs::create_dir_all(place.join("node-1.json")).unwrap();
        fs::write(place.join("node-2.json"), vec![b' '; 1001]).unwrap();
        std::os::unix::fs::symlink("/dev/zero", place.join("node-3.json")).unwrap();
        assert_eq!(folder.rollouts(0, "node-0"), Err(Unread::Missing));
        assert_eq!(folder.rollouts(0, "node-1"), Err(Unread::Unreadable));
        assert_eq!(folder.rollouts(0, "node-2"), Err(Unread::TooLarge));
        assert_eq!(folder.rollouts(0, "node-3"), Err(Unread::Unreadable));
        fs::write(folder.root().join("state/current_state.json"), "{\"round\": ").unwrap();
        assert_eq!(folder.current_round(), 0);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn names_lead_nowhere() {
        for name in ["", "..", "../other", "a/b", ".hidden", "ein kind", &"x".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("node-12") && is_name("sapo_4.4"));
    }
}
