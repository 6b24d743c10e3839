//! What a node publishes in a round: whole groups as text with what makes their questions anew, in the form of rl-swarm's shared-directory
//! mode, which is read as well. Nothing of it is believed: a receiver makes the question itself, or checks what it knows how to check.

use serde_json::{Map, Value, json};
use tonnage_verifiable::{Kind, Question, Split, find_kind};

use super::super::rollout::Row;

/// Groups of a file that are looked at.
const MOST_GROUPS: usize = 4096;
/// Weights of a file that are looked at.
const MOST_WEIGHTS: usize = 4096;

/// A group as a peer published it, with its question made anew.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub kind: &'static Kind,
    pub question: Question,
    pub completions: Vec<Completion>,
}

/// A completion as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub text: String,
    /// Whether it ended by itself; `None` where the writer did not say.
    pub is_finished: Option<bool>,
}

/// All that a peer published.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    pub groups: Vec<Group>,
    /// Some of its weights; empty where the writer showed none.
    pub weights: Vec<f32>,
    /// The mean of what its completions earned, as it says.
    pub reward: Option<f64>,
    /// Groups that were no question of training, or of an unknown kind.
    pub refused: u64,
}

/// Why a file was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untaken {
    /// It is no JSON, or has no rollouts.
    Torn,
    /// Its checksum is another.
    Changed,
    /// It says that it is of another peer or round.
    Misplaced,
}

/// The text of a file.
pub(super) fn published_text(
    peer: &str,
    round: u64,
    rows: &[Row],
    group: usize,
    weights: &[f32],
    at_ms: u64,
) -> Vec<u8> {
    let mut rollouts = Map::new();
    for rows in rows.chunks(group.max(1)) {
        let Question { kind, level, seed, text, answer, .. } = &rows[0].asked.question;
        let metadata = json!({"source_dataset": kind, "level": level, "seed": seed});
        let state = json!({"question": text, "answer": answer, "metadata": metadata});
        let payload = json!({
            "world_state": {"environment_states": state},
            "actions": rows.iter().map(|row| row.text.as_str()).collect::<Vec<_>>(),
            "metadata": {"finished": rows.iter().map(|row| !row.is_truncated).collect::<Vec<_>>()},
        });
        let id = format!("{:016x}", hash_bytes(text.as_bytes()));
        let all = rollouts.entry(id).or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            all.push(payload);
        }
    }
    let reward = rows.iter().map(|row| row.reward).sum::<f64>() / rows.len().max(1) as f64;
    let rollouts = Value::Object(rollouts);
    // As bits: numbers of JSON do not come back to the last of them.
    let weights: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
    let sum = format!("{:016x}", checksum_of(&rollouts, peer, round, &weights));
    let file = json!({
        "peer_id": peer,
        "round": round,
        "stage": 0,
        "timestamp": at_ms as f64 / 1000.0,
        "rollouts": rollouts,
        "tonnage": {"format": 1, "weights": weights, "reward": reward, "checksum": sum},
    });
    file.to_string().into_bytes()
}

/// Reads a file that should be of this peer and round.
pub(super) fn read_published(text: &[u8], peer: &str, round: u64) -> Result<Published, Untaken> {
    let file: Value = serde_json::from_slice(text).map_err(|_| Untaken::Torn)?;
    let rollouts = file.get("rollouts").filter(|value| value.is_object()).ok_or(Untaken::Torn)?;
    let is_of = |key: &str, wanted: Value| file.get(key).is_none_or(|said| *said == wanted);
    if !(is_of("peer_id", peer.into()) && is_of("round", round.into())) {
        return Err(Untaken::Misplaced);
    }
    let ours = file.get("tonnage");
    let checksum = ours.and_then(|ours| u64::from_str_radix(ours.get("checksum")?.as_str()?, 16).ok());
    let shown = ours.and_then(|ours| ours.get("weights")?.as_array()).into_iter().flatten().take(MOST_WEIGHTS);
    let weights: Vec<u32> = shown.filter_map(|bits| u32::try_from(bits.as_u64()?).ok()).collect();
    if ours.is_some() && checksum != Some(checksum_of(rollouts, peer, round, &weights)) {
        return Err(Untaken::Changed);
    }
    let weights = weights.into_iter().map(f32::from_bits).collect();
    let reward = ours.and_then(|ours| ours.get("reward")?.as_f64()).filter(|reward| reward.is_finite());
    let mut published = Published { weights, reward, ..Published::default() };
    let payloads = rollouts.as_object().into_iter().flat_map(Map::values).filter_map(Value::as_array).flatten();
    for payload in payloads.take(MOST_GROUPS) {
        match read_group(payload) {
            Some(group) => published.groups.push(group),
            None => published.refused += 1,
        }
    }
    Ok(published)
}

fn read_group(payload: &Value) -> Option<Group> {
    let state = payload.get("world_state")?.get("environment_states")?;
    let metadata = state.get("metadata").unwrap_or(&Value::Null);
    let kind = find_kind(metadata.get("source_dataset")?.as_str()?)?;
    let text = state.get("question")?.as_str()?;
    let question = match metadata.get("seed").and_then(Value::as_u64) {
        Some(seed) => {
            let level = u32::try_from(metadata.get("level")?.as_u64()?).ok()?;
            // Another text under this seed is another version's, or a lie.
            Some(kind.question(level, seed)).filter(|question| question.text == text)?
        }
        None => kind.foreign_question(text, state.get("answer").and_then(Value::as_str))?,
    };
    if Split::of(&question) != Split::Training {
        return None;
    }
    let finished = payload.get("metadata").and_then(|metadata| metadata.get("finished")?.as_array());
    let completions = payload.get("actions")?.as_array()?.iter().enumerate().map(|(at, text)| {
        let is_finished = finished.and_then(|finished| finished.get(at)?.as_bool());
        Some(Completion { text: text.as_str()?.to_owned(), is_finished })
    });
    let completions: Vec<Completion> = completions.collect::<Option<_>>()?;
    (!completions.is_empty()).then_some(Group { kind, question, completions })
}

fn checksum_of(rollouts: &Value, peer: &str, round: u64, weights: &[u32]) -> u64 {
    hash_bytes(format!("{peer} {round} {weights:?} {rollouts}").as_bytes())
}

/// FNV-1a of 64 bits.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tonnage_verifiable::{AnswerForm, Draw};

    use super::super::super::asker::Asked;
    use super::*;

    fn rows(split: Split) -> Vec<Row> {
        let kind = find_kind("addition").unwrap();
        let question = Draw { kind, level: 2, split }.question(5).unwrap();
        let asked = Rc::new(Asked { kind, question, form: AnswerForm::Whole, tokens: vec![1] });
        let row = |text: &str, is_truncated| Row {
            asked: Rc::clone(&asked),
            tokens: vec![2],
            is_truncated,
            text: text.to_owned(),
            reward: 0.5,
            advantage: 0.0,
        };
        vec![row("12", false), row("\"7\\", true)]
    }

    #[test]
    fn groups_come_back_as_they_were_written() {
        let rows = rows(Split::Training);
        let text = published_text("node-1", 7, &rows, 2, &[0.1, -3.5], 1000);
        let read = read_published(&text, "node-1", 7).unwrap();
        assert_eq!((read.groups.len(), read.refused, read.weights, read.reward), (1, 0, vec![0.1, -3.5], Some(0.5)));
        assert_eq!(read.groups[0].question, rows[0].asked.question);
        let completion = |text: &str, finished| Completion { text: text.to_owned(), is_finished: Some(finished) };
        assert_eq!(read.groups[0].completions, [completion("12", true), completion("\"7\\", false)]);
    }

    #[test]
    fn what_was_changed_torn_or_put_elsewhere_is_not_taken() {
        let text = String::from_utf8(published_text("node-1", 7, &rows(Split::Training), 2, &[0.1], 1000)).unwrap();
        let read = |text: &str| read_published(text.as_bytes(), "node-1", 7).err();
        assert_eq!(read(&text.replace("\"12\"", "\"13\"")), Some(Untaken::Changed));
        assert_eq!(read(&text[..text.len() / 2]), Some(Untaken::Torn));
        assert_eq!(read_published(text.as_bytes(), "node-2", 7).err(), Some(Untaken::Misplaced));
        assert_eq!(read_published(text.as_bytes(), "node-1", 8).err(), Some(Untaken::Misplaced));
        assert_eq!(read("[]"), Some(Untaken::Torn));
        let nested = "[".repeat(100_000);
        assert_eq!(read(&nested), Some(Untaken::Torn));
    }

    #[test]
    fn questions_of_evaluation_are_refused_and_lies_about_a_question_too() {
        let held_out = published_text("a", 0, &rows(Split::Evaluation), 2, &[], 0);
        let read = read_published(&held_out, "a", 0).unwrap();
        assert_eq!((read.groups.len(), read.refused), (0, 1), "nobody is taught what is evaluated on");
        // rl-swarm's own files have neither checksum nor seed.
        let foreign = |kind: &str, question: &str| {
            json!({"peer_id": "a", "round": 0, "rollouts": {"x": [{
                "world_state": {"environment_states":
                    {"question": question, "answer": "30", "metadata": {"source_dataset": kind}}},
                "actions": ["30", "31"], "metadata": {}}]}})
            .to_string()
        };
        let mut taken = 0;
        for text in ["11+19=", "12+18=", "13+17=", "14+16="] {
            let read = read_published(foreign("addition", text).as_bytes(), "a", 0).unwrap();
            taken += read.groups.len();
            assert!(read.groups.iter().all(|group| group.completions[0].is_finished.is_none()));
        }
        assert!(taken > 0);
        let read = read_published(foreign("no_such_kind", "1+1=").as_bytes(), "a", 0).unwrap();
        assert_eq!((read.groups.len(), read.refused), (0, 1));
    }
}
