//! The rollouts of other nodes as this one sees them: its own tokens, its own rewards, its own choice.

use std::rc::Rc;
use tonnage_core::small_sort::SmallSort;

use tonnage_core::job::{ForeignAdvantages, ScaleRewards, SwarmFilter};
use tonnage_core::random::SplitMix64;

use super::super::asker::{Asked, Asker};
use super::super::pay::{give_advantages, is_dead};
use super::super::rollout::Row;
use super::shared::Group;
use crate::error::TrainError;

/// What came in and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolCounts {
    /// Groups that could be chosen.
    pub groups: u64,
    /// Groups that were chosen.
    pub chosen: u64,
    /// Completions cut to this node's length.
    pub cut: u64,
    /// Groups that were refused: no question of training, another number of completions, a prompt too long.
    pub refused: u64,
}

/// How groups become rows.
pub(super) struct Receiver<'a> {
    pub asker: &'a Asker<'a>,
    /// Completions of a group.
    pub group: usize,
    /// Tokens of a completion, at most.
    pub completion_len: usize,
    /// The token that ends one.
    pub end: u32,
    pub scale: ScaleRewards,
}

impl Receiver<'_> {
    /// The rows of a group, scored and compared here; `None` where it is none that this node could have written.
    pub fn rows_of(&self, group: &Group, counts: &mut PoolCounts) -> Result<Option<Vec<Row>>, TrainError> {
        let Some(asked) = self.asker.foreign(group.kind, &group.question)? else { return Ok(None) };
        if group.completions.len() != self.group {
            return Ok(None);
        }
        let asked: Rc<Asked> = Rc::new(asked);
        let mut rows = Vec::new();
        for completion in &group.completions {
            let mut tokens = self.asker.tokenizer.encode(&completion.text, false)?;
            let fits = tokens.len() < self.completion_len;
            counts.cut += u64::from(tokens.len() > self.completion_len);
            // Decoded text has no end token: without it nobody would learn to stop.
            let ends = completion.is_finished.unwrap_or(fits) && fits;
            tokens.truncate(self.completion_len);
            tokens.extend(ends.then_some(self.end));
            let reward = if ends { asked.reward(&completion.text) } else { 0.0 };
            rows.push(Row {
                asked: Rc::clone(&asked),
                tokens,
                is_truncated: !ends,
                text: completion.text.clone(),
                reward,
                advantage: 0.0,
            });
        }
        if rows.iter().any(|row| row.tokens.is_empty()) {
            return Ok(None);
        }
        give_advantages(&mut rows, self.group, self.scale);
        Ok(Some(rows))
    }
}

/// Chooses groups by a policy, `wanted` at most.
pub(super) fn choose_groups(mut pool: Vec<Vec<Row>>, filter: SwarmFilter, wanted: usize, seed: u64) -> Vec<Vec<Row>> {
    let mut random = SplitMix64::new(seed);
    if filter == SwarmFilter::ZeroAdvantage {
        pool.retain(|rows| !is_dead(&rows.iter().map(|row| row.reward).collect::<Vec<_>>()));
    }
    for at in (1..pool.len()).rev() {
        pool.swap(at, random.index_below(at + 1));
    }
    if filter == SwarmFilter::TopReward {
        let total = |rows: &[Row]| rows.iter().map(|row| row.reward).sum::<f64>();
        // Among equals chance has decided.
        pool.small_sort_by(|one, other| total(other).total_cmp(&total(one)));
    }
    pool.truncate(wanted);
    pool
}

/// What of foreign rows is learnt from.
pub(super) fn learnable_rows(rows: Vec<Row>, foreign: ForeignAdvantages) -> Vec<Row> {
    let is_kept = |row: &Row| match foreign {
        ForeignAdvantages::Both => row.advantage != 0.0,
        ForeignAdvantages::Positive => row.advantage > 0.0,
    };
    rows.into_iter().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use tonnage_core::job::JobSource;
    use tonnage_verifiable::{Draw, Split, find_kind};

    use super::super::shared::Completion;
    use super::*;
    use crate::data::tokenizer::Tokenizer;
    use crate::data::vocabulary::Vocabulary;

    fn group(completions: &[(&str, Option<bool>)]) -> Group {
        let kind = find_kind("addition").unwrap();
        let question = Draw { kind, level: 2, split: Split::Training }.question(5).unwrap();
        let completions = completions.iter().map(|(text, is_finished)| {
            let text = text.replace('=', &question.answer);
            Completion { text, is_finished: *is_finished }
        });
        Group { kind, completions: completions.collect(), question: question.clone() }
    }

    fn with_receiver<T>(run: impl FnOnce(&Receiver<'_>) -> T) -> T {
        let job = "model = \"gpt2\"\ntask = \"grpo\"\n[grpo]\nquestions = [\"addition\"]\n";
        let how = JobSource::from_file("a.toml", job).resolve(&[]).unwrap().training.grpo;
        let tokenizer = Tokenizer::Vocabulary(Vocabulary::Bytes);
        let asker = Asker::new(&tokenizer, &how, 16, 1).unwrap();
        run(&Receiver { asker: &asker, group: 2, completion_len: 5, end: 10, scale: ScaleRewards::Group })
    }

    #[test]
    fn foreign_text_is_scored_ended_and_capped_here() {
        with_receiver(|receiver| {
            let mut counts = PoolCounts::default();
            let mut rows =
                |completions: &[(&str, Option<bool>)]| receiver.rows_of(&group(completions), &mut counts).unwrap();
            let found = rows(&[("=", Some(true)), ("123456789", Some(true))]).unwrap();
            assert_eq!((found[0].reward, found[1].reward), (1.0, 0.0));
            assert_eq!(
                (found[0].tokens.last(), found[1].tokens.len()),
                (Some(&10), 5),
                "an end, and no more than five"
            );
            assert!(found[0].advantage > 0.0 && found[1].is_truncated);
            let unfinished = rows(&[("=", Some(false)), ("=", None)]).unwrap();
            assert_eq!((unfinished[0].reward, unfinished[1].reward), (0.0, 1.0), "what was cut off earns nothing");
            assert!(rows(&[("=", None)]).is_none(), "half a group is none");
            assert_eq!(counts.cut, 1);
        });
    }

    #[test]
    fn policies_choose_what_they_say() {
        let row = |reward: f64| {
            let kind = find_kind("addition").unwrap();
            let question = kind.question(1, 1);
            let asked = Rc::new(Asked { kind, question, form: tonnage_verifiable::AnswerForm::Whole, tokens: vec![1] });
            Row { asked, tokens: vec![1], is_truncated: false, text: String::new(), reward, advantage: reward - 0.5 }
        };
        let pool = || vec![vec![row(0.0), row(0.0)], vec![row(1.0), row(0.0)], vec![row(1.0), row(1.0)]];
        let totals = |filter, wanted| -> Vec<f64> {
            choose_groups(pool(), filter, wanted, 3)
                .iter()
                .map(|rows| rows.iter().map(|row| row.reward).sum())
                .collect()
        };
        assert_eq!(totals(SwarmFilter::ZeroAdvantage, 3), [1.0]);
        assert_eq!(totals(SwarmFilter::TopReward, 2), [2.0, 1.0]);
        assert_eq!(totals(SwarmFilter::None, 9).len(), 3);
        let chosen =
            |seed| choose_groups(pool(), SwarmFilter::None, 1, seed)[0].iter().map(|row| row.reward).sum::<f64>();
        assert!((0..40).map(chosen).any(|total| total == 0.0) && (0..40).map(chosen).any(|total| total == 2.0));
        let kept = |foreign| learnable_rows(vec![row(1.0), row(0.0), row(0.5)], foreign).len();
        assert_eq!((kept(ForeignAdvantages::Positive), kept(ForeignAdvantages::Both)), (1, 2));
    }
}
