//! What a node does in the shared folder: takes a name, joins, publishes, receives, leaves.

use super::super::rollout::Row;
use super::clock::Clock;
use super::folder::{Peer, SwarmFolder, Unread, node_name};
use super::likeness::came_the_same_way;
use super::shared::{Group, published_text, read_published};
use crate::error::TrainError;

/// Names that are tried for one that is free.
const MOST_NAMES: u64 = 4096;
/// Rounds of others beside one's own that are cleared away at once.
const CLEARED: u64 = 4;

/// A node's place in an experiment.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub folder: SwarmFolder,
    pub name: String,
    pub role: String,
    /// Of the whole experiment.
    pub rounds: u64,
    /// Rounds between two publications.
    pub publish_every: u64,
    /// Whether rounds wait for others: without any of theirs to train on nobody does.
    pub waits: bool,
}

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub groups: Vec<Group>,
    /// Files that were not taken.
    pub ignored: u64,
    /// Groups that were none of training.
    pub refused: u64,
    /// The sum of what the others say that they earned.
    pub rewards: f64,
    pub missing: Vec<String>,
    weights: Vec<(String, Vec<f32>)>,
}

impl Received {
    /// Peers that have come the same way as this node from where it `began`.
    pub fn alike(&self, began: &[f32], own: &[f32]) -> Vec<String> {
        let is_alike = |(_, weights): &&(String, Vec<f32>)| came_the_same_way(began, own, weights);
        self.weights.iter().filter(is_alike).map(|(name, _)| name.clone()).collect()
    }
}

/// The first name of the form `node-N`, from `first`, that nobody has.
///
/// # Errors
/// The disk's, and when all are taken.
pub(super) fn claim_name(folder: &SwarmFolder, first: u64) -> Result<String, TrainError> {
    for number in first..first + MOST_NAMES {
        let name = node_name(number);
        // Until it has joined nobody waits for it.
        let peer = Peer { peer_id: name.clone(), node_role: "worker".to_owned(), joined_round: u64::MAX, left: false };
        if folder.claim(&peer)? {
            return Ok(name);
        }
    }
    let problem = format!("{} has {MOST_NAMES} peers", folder.root().display());
    Err(TrainError::refused_with(problem, "begin another experiment: --set swarm.experiment=NAME"))
}

impl Exchange {
    /// Takes part from the round that the swarm is in, but never before `next`; that round. Where nobody waits for anybody there is none
    /// that it could be too late for.
    pub fn join_at(&self, next: u64, rounds: u64) -> Result<u64, TrainError> {
        let swarms = if self.waits { self.folder.current_round() } else { next };
        let current = swarms.clamp(next, rounds.max(next));
        self.register_peer(current, false)?;
        Ok(current)
    }

    /// Whether the others are so far ahead that nothing of this round is kept.
    pub fn is_left_behind(&self, round: u64) -> bool {
        self.waits && self.folder.is_forgotten(round)
    }

    /// Is not waited for any more.
    pub fn leave_at(&self, round: u64) -> Result<(), TrainError> {
        self.register_peer(round, true)
    }

    fn register_peer(&self, joined_round: u64, left: bool) -> Result<(), TrainError> {
        let (peer_id, node_role) = (self.name.clone(), self.role.clone());
        self.folder.register(&Peer { peer_id, node_role, joined_round, left })
    }

    /// Publishes a round's groups, where it is one that is published.
    pub fn publish(
        &self,
        round: u64,
        rows: &[Row],
        group: usize,
        weights: &[f32],
        at_ms: u64,
    ) -> Result<(), TrainError> {
        let shared = if round.is_multiple_of(self.publish_every.max(1)) { rows } else { &[] };
        let text = published_text(&self.name, round, shared, group, weights, at_ms);
        if self.folder.publish(round, &self.name, &text)? {
            return Ok(());
        }
        // Before it was started again it may have published the same round; anything else is not its own.
        let there = self.folder.rollouts(round, &self.name).map(|there| read_published(&there, &self.name, round));
        if there.is_ok_and(|read| read.is_ok()) { Ok(()) } else { self.folder.publish_over(round, &self.name, &text) }
    }

    /// Waits until the round is over and takes what the others published; `None` where `stops` said so first.
    pub fn receive(
        &self,
        round: u64,
        clock: &Clock<'_>,
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<Received>, TrainError> {
        if !self.waits {
            self.folder.set_round(round + 1)?;
            return Ok(Some(Received::default()));
        }
        let Some(decision) = clock.wait_for_round(&self.folder, round, stops)? else { return Ok(None) };
        let mut received = Received { missing: decision.missing.clone(), ..Received::default() };
        for name in decision.included.iter().filter(|name| **name != self.name) {
            self.take_file(round, name, &mut received);
        }
        if let Some(before) = round.checked_sub(1).and_then(|before| self.folder.decision(before)) {
            // What came after its round was decided is late: nobody has it, so nobody trains on it.
            let late = before.missing.iter().filter(|name| self.folder.has_published(before.round, name));
            received.ignored += late.count() as u64;
        }
        received.missing.retain(|name| *name != self.name);
        Ok(Some(received))
    }

    fn take_file(&self, round: u64, name: &str, received: &mut Received) {
        let text = match self.folder.rollouts(round, name) {
            Ok(text) => text,
            // Of a round that is cleared away already.
            Err(Unread::Missing) => return,
            Err(Unread::TooLarge | Unread::Unreadable) => {
                received.ignored += 1;
                return;
            }
        };
        match read_published(&text, name, round) {
            Ok(published) => {
                received.refused += published.refused;
                received.rewards += published.reward.unwrap_or(0.0).clamp(0.0, 1.0);
                received.weights.push((name.to_owned(), published.weights));
                received.groups.extend(published.groups);
            }
            Err(_) => received.ignored += 1,
        }
    }

    /// Clears rounds away that nobody needs any more; the coordinator's work, which is the first by name. Where nobody waits a round that is
    /// old to one is to come for another, so each clears its own away.
    pub fn forget_old(&self, round: u64, keep: u64) -> Result<(), TrainError> {
        if !self.waits {
            round.checked_sub(keep.max(2)).into_iter().for_each(|old| self.folder.forget_of(old, &self.name));
            return Ok(());
        }
        let peers = self.folder.peers();
        if peers.iter().find(|peer| !peer.left).is_some_and(|peer| peer.peer_id == self.name)
            && let Some(newest) = round.checked_sub(keep.max(2))
        {
            (newest.saturating_sub(CLEARED)..=newest).for_each(|old| self.folder.forget(old));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpo::swarm::folder::Decision;

    #[test]
    fn who_waits_for_nobody_misses_no_round() {
        let root = std::env::temp_dir().join(format!("tonnage-exchange-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let folder = SwarmFolder::new(&root, "exp", 1000).unwrap();
        folder.begin(100, 2).unwrap();
        let node = |name: &str, waits| Exchange {
            folder: folder.clone(),
            name: name.to_owned(),
            role: "node".to_owned(),
            rounds: 100,
            publish_every: 1,
            waits,
        };
        folder.set_round(40).unwrap();
        let late = node("node-1", true);
        assert_eq!(late.join_at(3, 100).unwrap(), 40, "what the others did without it is lost");
        assert!(!late.is_left_behind(3), "a state that no decision bears out");
        let decided = |round| Decision {
            round,
            included: vec!["node-0".to_owned()],
            decided_by: "node-0".to_owned(),
            ..Decision::default()
        };
        folder.decide(&decided(40)).unwrap();
        assert!(late.is_left_behind(3) && !late.is_left_behind(40) && !late.is_left_behind(41));
        assert!(!node("node-1", false).is_left_behind(3), "who waits for nobody");
        let alone = node("node-1", false);
        assert_eq!(alone.join_at(3, 100).unwrap(), 3);
        // The other is far ahead, and what it clears away is its own.
        let ahead = node("node-0", false);
        for (round, one) in [(3, &alone), (3, &ahead)] {
            one.publish(round, &[], 1, &[], 0).unwrap();
        }
        ahead.forget_old(13, 10).unwrap();
        assert!(folder.has_published(3, "node-1") && !folder.has_published(3, "node-0"));
        std::fs::remove_dir_all(root).unwrap();
    }
}
