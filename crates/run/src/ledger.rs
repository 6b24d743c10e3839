//! The ledger: predicted bytes of every process on a GPU, from the moment it is admitted. Free memory misleads while
//! others are still loading; the ledger does not. It serves all terminals of a user; whoever died is struck off.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use tonnage_core::limit::JSON_BYTES;

use crate::RunError;
use crate::bounded::read_text;
use crate::launch::{Identity, processes_of};
use crate::store::{RunFolder, create_private_folder, lock_file, write_atomically};

/// What a process has reserved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The run's id.
    pub run: String,
    pub node: usize,
    pub bytes: u64,
    /// The supervisor that answers for it.
    pub pid: i32,
    /// When that began, in ticks.
    pub began: u64,
    /// The run's folder: its processes may outlive their supervisor.
    pub folder: PathBuf,
}

impl Claim {
    /// Whether its supervisor lives, or processes that it left behind.
    fn lives(&self) -> bool {
        // A folder that is gone says nothing of its run's processes; their environment does.
        let recorded = || RunFolder::open(self.folder.clone()).map(|run| run.recorded()).unwrap_or_default();
        let is_named = !self.folder.as_os_str().is_empty();
        self.is_supervised() || (is_named && !processes_of(&self.folder, &recorded()).is_empty())
    }

    /// Whether its supervisor lives.
    pub fn is_supervised(&self) -> bool {
        Identity { pid: self.pid, began: self.began }.is_alive()
    }
}

/// The ledger of one GPU.
pub struct Ledger {
    path: PathBuf,
}

/// A claim that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// What the others have.
    pub claims: Vec<Claim>,
}

impl Full {
    /// What the others have together.
    pub fn bytes(&self) -> u64 {
        self.claims.iter().map(|claim| claim.bytes).sum()
    }
}

impl Ledger {
    /// The ledger of `gpu` below `root`.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn open(root: &Path, gpu: &str) -> Result<Self, RunError> {
        let folder = root.join("ledger");
        create_private_folder(&folder)?;
        let name: String = gpu.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        Ok(Self { path: folder.join(format!("{name}.json")) })
    }

    /// The ledger of a GPU of this machine below `root`, by the name that CUDA_VISIBLE_DEVICES takes.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub fn of_gpu(root: &Path, gpu: &str) -> Result<Self, RunError> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self::open(root, &format!("{}-{gpu}", host.trim()))
    }

    /// The claims of those alive.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn claims(&self) -> Result<Vec<Claim>, RunError> {
        let _held = self.hold_lock()?;
        self.read_claims()
    }

    /// Adds `claims` if they and those of others together are at most `usable` bytes, else none of them. An earlier claim of the same node is
    /// replaced.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn claim(&self, claims: &[Claim], usable: u64) -> Result<Result<(), Full>, RunError> {
        let _held = self.hold_lock()?;
        let mut all = self.read_claims()?;
        all.retain(|old| claims.iter().all(|new| (&old.run, old.node) != (&new.run, new.node)));
        let taken: u64 = all.iter().chain(claims).map(|claim| claim.bytes).fold(0, u64::saturating_add);
        if taken > usable {
            return Ok(Err(Full { claims: all }));
        }
        all.extend_from_slice(claims);
        self.write_claims(&all).map(Ok)
    }

    /// Gives back what a run, or one node of it, has.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn release(&self, run: &str, node: Option<usize>) -> Result<(), RunError> {
        let _held = self.hold_lock()?;
        let mut all = self.read_claims()?;
        all.retain(|claim| claim.run != run || node.is_some_and(|node| node != claim.node));
        self.write_claims(&all)
    }

    fn hold_lock(&self) -> Result<Flock<File>, RunError> {
        lock_file(&self.path.with_extension("lock"))
    }

    fn read_claims(&self) -> Result<Vec<Claim>, RunError> {
        let text = match read_text(&self.path, JSON_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(RunError::file(&self.path, error)),
        };
        // What cannot be read may promise the whole GPU.
        let all: Vec<Claim> = serde_json::from_str(&text).map_err(|source| RunError::Damaged {
            path: self.path.clone(),
            source,
            hint: "; remove it when no run lives (`tonnage list`)",
        })?;
        Ok(all.into_iter().filter(Claim::lives).collect())
    }

    fn write_claims(&self, claims: &[Claim]) -> Result<(), RunError> {
        let text = serde_json::to_string_pretty(claims).map_err(|error| RunError::damaged(&self.path, error))?;
        write_atomically(&self.path, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn ledger(name: &str) -> Ledger {
        let root = std::env::temp_dir().join(format!("tonnage-ledger-{name}-{}", std::process::id()));
        Ledger::open(&root, "GPU 0/x").unwrap()
    }

    fn claim(run: &str, node: usize, bytes: u64) -> Claim {
        let own = Identity::of(std::process::id().cast_signed()).unwrap();
        Claim { run: run.to_owned(), node, bytes, pid: own.pid, began: own.began, folder: PathBuf::new() }
    }

    #[test]
    fn admits_until_it_is_full_and_gives_back() {
        let ledger = ledger("full");
        assert_eq!(ledger.claim(&[claim("a", 0, 60)], 100).unwrap(), Ok(()));
        let full = ledger.claim(&[claim("b", 0, 41)], 100).unwrap().unwrap_err();
        assert_eq!(full.bytes(), 60);
        // A node's new attempt takes the place of its old one.
        assert_eq!(ledger.claim(&[claim("a", 0, 50)], 100).unwrap(), Ok(()));
        assert_eq!(ledger.claim(&[claim("b", 0, 25), claim("b", 1, 25)], 100).unwrap(), Ok(()));
        ledger.release("b", Some(1)).unwrap();
        assert_eq!(ledger.claims().unwrap().len(), 2);
        ledger.release("b", None).unwrap();
        ledger.release("a", None).unwrap();
        assert!(ledger.claims().unwrap().is_empty());
    }

    #[test]
    fn the_dead_have_no_claim() {
        let ledger = ledger("dead");
        let dead = Claim { began: 1, ..claim("a", 0, 100) };
        assert_eq!(ledger.claim(&[dead], 100).unwrap(), Ok(()));
        assert_eq!(ledger.claim(&[claim("b", 0, 100)], 100).unwrap(), Ok(()));
        ledger.release("b", None).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_not_empty() {
        let ledger = ledger("damaged");
        fs::write(&ledger.path, "[{\"run\": \"a").unwrap();
        let error = ledger.claim(&[claim("a", 0, 1)], 100).unwrap_err().to_string();
        assert!(error.contains("remove it when no run lives"), "{error}");
        assert_eq!(fs::read_to_string(&ledger.path).unwrap(), "[{\"run\": \"a");
        fs::remove_file(&ledger.path).unwrap();
        assert!(ledger.claims().unwrap().is_empty());
    }

    #[test]
    fn many_at_once_never_pass_the_limit() {
        let ledger = ledger("race");
        let admitted: usize = std::thread::scope(|scope| {
            let ask = |node| ledger.claim(&[claim("race", node, 10)], 45).unwrap().is_ok();
            let threads: Vec<_> = (0..12).map(|node| scope.spawn(move || ask(node))).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(admitted, 4);
        ledger.release("race", None).unwrap();
    }
}
