//! When a round is over: when all who are waited for have published, or at the deadline when a quorum has. The first name among those
//! who take part coordinates; the others decide in its place when it does not.

use std::thread;
use std::time::{Duration, Instant};

use super::folder::{Decision, Peer, SwarmFolder};
use crate::error::TrainError;

/// Between two looks at the folder.
const LOOKS: Duration = Duration::from_millis(20);
/// Deadlines after which a worker decides in the coordinator's place, and after which a round ends without a quorum.
const WITHOUT_COORDINATOR: u32 = 2;
const WITHOUT_QUORUM: u32 = 4;

/// How long is waited for whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clock<'a> {
    pub name: &'a str,
    pub deadline: Duration,
    /// The share of those who are waited for that ends a round at its deadline.
    pub quorum: f64,
}

/// Who is waited for, and who has published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    coordinator: String,
    published: Vec<String>,
    missing: Vec<String>,
}

impl Clock<'_> {
    /// Waits until a round is decided; `None` where `stops` said so first.
    pub fn wait_for_round(
        &self,
        folder: &SwarmFolder,
        round: u64,
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<Decision>, TrainError> {
        let begun = Instant::now();
        let before = round.checked_sub(1).and_then(|before| folder.decision(before));
        loop {
            if let Some(decision) = folder.decision(round) {
                return Ok(Some(decision));
            }
            if stops() {
                return Ok(None);
            }
            // Nobody will decide it, and nothing of it can be had; the node joins anew after it.
            if folder.is_forgotten(round) {
                return Ok(Some(Decision { round, decided_by: self.name.to_owned(), ..Decision::default() }));
            }
            let seen = look_around(folder, round, before.as_ref());
            if self.is_over(&seen, begun.elapsed()) {
                let Seen { published: included, missing, .. } = seen;
                let decision = Decision { round, included, missing, decided_by: self.name.to_owned() };
                return folder.decide(&decision).map(Some);
            }
            thread::sleep(LOOKS);
        }
    }

    /// Whether this node decides now.
    fn is_over(&self, seen: &Seen, waited: Duration) -> bool {
        if seen.published.is_empty() {
            return false;
        }
        let patience = if seen.coordinator == self.name { 0 } else { WITHOUT_COORDINATOR };
        if seen.missing.is_empty() {
            return waited >= self.deadline * patience;
        }
        let all = seen.published.len() + seen.missing.len();
        let has_quorum = seen.published.len() as f64 >= self.quorum * all as f64;
        let wanted = if has_quorum { 1 + patience } else { WITHOUT_QUORUM + patience };
        waited >= self.deadline * wanted
    }
}

/// Those who published in the last round, or joined since, are waited for; who did not publish then is taken when it comes.
fn look_around(folder: &SwarmFolder, round: u64, before: Option<&Decision>) -> Seen {
    let peers: Vec<Peer> = folder.peers();
    let mut seen = Seen::default();
    for peer in &peers {
        let name = &peer.peer_id;
        let was_there = before.is_none_or(|before| before.included.contains(name));
        let is_new = peer.joined_round >= round.max(1);
        if folder.has_published(round, name) {
            seen.published.push(name.clone());
        } else if !peer.left && (was_there || is_new) && peer.joined_round <= round {
            seen.missing.push(name.clone());
        }
    }
    let takes_part = |peer: &&Peer| !peer.left && (before.is_none() || seen.published.contains(&peer.peer_id));
    seen.coordinator = peers.iter().find(takes_part).map(|peer| peer.peer_id.clone()).unwrap_or_default();
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(published: usize, missing: usize) -> Seen {
        let names = |from: usize, count: usize| (from..from + count).map(|at| format!("node-{at}")).collect();
        Seen { coordinator: "node-0".to_owned(), published: names(0, published), missing: names(published, missing) }
    }

    #[test]
    fn a_round_ends_by_quorum_and_deadline_and_never_by_a_timer() {
        let deadline = Duration::from_secs(10);
        let of = |name| Clock { name, deadline, quorum: 0.5 };
        let over = |name, published, missing, seconds| {
            of(name).is_over(&seen(published, missing), Duration::from_secs(seconds))
        };
        assert!(over("node-0", 4, 0, 0), "the coordinator ends it when all are there");
        assert!(!over("node-1", 4, 0, 19) && over("node-1", 4, 0, 20), "a worker when the coordinator does not");
        assert!(!over("node-0", 3, 1, 9) && over("node-0", 3, 1, 10), "at the deadline a quorum is enough");
        assert!(!over("node-0", 1, 3, 39) && over("node-0", 1, 3, 40), "without one it is waited longer");
        assert!(!over("node-0", 0, 0, 9999), "nothing is decided of nothing");
    }

    #[test]
    fn a_round_that_the_others_forgot_is_not_waited_for() {
        let root = std::env::temp_dir().join(format!("tonnage-clock-late-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let folder = SwarmFolder::new(&root, "exp", 1000).unwrap();
        folder.begin(40, 2).unwrap();
        for round in 0..12 {
            let included = vec!["node-0".to_owned()];
            folder
                .decide(&Decision { round, included, decided_by: "node-0".to_owned(), ..Decision::default() })
                .unwrap();
            if let Some(old) = u64::checked_sub(round, 2) {
                folder.forget(old);
            }
            assert_eq!(folder.current_round(), round + 1, "who joins goes to the round that comes");
        }
        let clock = Clock { name: "node-2", deadline: Duration::from_secs(3600), quorum: 1.0 };
        folder.publish(0, "node-2", b"x").unwrap();
        let decision = clock.wait_for_round(&folder, 0, &|| false).unwrap().expect("nobody stops it");
        assert_eq!((decision.round, decision.included.len(), decision.missing.len()), (0, 0, 0));
        std::fs::write(folder.root().join("state/current_state.json"), r#"{"round":900,"stage":0}"#).unwrap();
        assert!(!folder.is_forgotten(20), "a state that no decision bears out");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn who_was_missing_is_not_waited_for_again_until_it_comes() {
        let root = std::env::temp_dir().join(format!("tonnage-clock-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let folder = SwarmFolder::new(&root, "exp", 1000).unwrap();
        folder.begin(10, 0).unwrap();
        let peer = |name: &str, joined_round, left| Peer {
            peer_id: name.to_owned(),
            node_role: "node".to_owned(),
            joined_round,
            left,
        };
        for (name, joined, left) in [("a", 0, false), ("b", 0, false), ("c", 0, false), ("d", 5, false), ("e", 0, true)]
        {
            folder.register(&peer(name, joined, left)).unwrap();
        }
        folder.publish(0, "a", b"x").unwrap();
        let first = look_around(&folder, 0, None);
        assert_eq!((first.published, first.missing), (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]));
        let before = Decision { round: 4, included: vec!["a".to_owned(), "b".to_owned()], ..Decision::default() };
        folder.publish(5, "c", b"x").unwrap();
        folder.publish(5, "b", b"x").unwrap();
        let fifth = look_around(&folder, 5, Some(&before));
        assert_eq!(fifth.published, ["b", "c"], "who comes late is there");
        assert_eq!(fifth.missing, ["a", "d"], "who joined is waited for, who left is not");
        assert_eq!(fifth.coordinator, "b", "the first of those that are here");
        std::fs::remove_dir_all(root).unwrap();
    }
}
