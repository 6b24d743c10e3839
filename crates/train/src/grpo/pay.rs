//! Rewards become advantages: each less its group's mean, over a deviation (`_calculate_rewards` and what follows it, trl 1.16).

use tonnage_core::job::ScaleRewards;

use super::rollout::Row;

/// What TRL adds to a deviation before it divides.
const EPSILON: f64 = 1e-4;
/// Rewards this close are the same: they are tenths at the finest.
const SAME: f64 = 1e-9;

/// Rewards of a generation batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pay {
    /// Over all completions.
    pub mean: f64,
    /// Over all completions, with Bessel's correction.
    pub deviation: f64,
    /// The mean over groups of the variance within, with Bessel's correction.
    pub group_variance: f64,
    /// The share of groups whose rewards are all the same: they teach nothing.
    pub dead_groups: f64,
    /// The lowest reward that was paid.
    pub floor: f64,
    /// The share of completions that got it.
    pub at_floor: f64,
}

/// Gives every row its advantage. Rows of a group follow one another.
pub(super) fn give_advantages(rows: &mut [Row], group: usize, scale: ScaleRewards) -> Pay {
    let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
    let of_all = deviation(&rewards);
    let (mut dead, mut variance, mut groups) = (0, 0.0, 0);
    for rows in rows.chunks_mut(group.max(1)) {
        let rewards: Vec<f64> = rows.iter().map(|row| row.reward).collect();
        let (mean, own) = (mean(&rewards), deviation(&rewards));
        let divisor = match scale {
            ScaleRewards::Group => own + EPSILON,
            ScaleRewards::Batch => of_all + EPSILON,
            ScaleRewards::None => 1.0,
        };
        rows.iter_mut().for_each(|row| row.advantage = (row.reward - mean) / divisor);
        groups += 1;
        dead += usize::from(is_dead(&rewards));
        variance += own * own;
    }
    let floor = rewards.iter().copied().fold(f64::INFINITY, f64::min);
    let at_floor = rewards.iter().filter(|reward| **reward <= floor + SAME).count();
    let share = |count: usize, of: usize| count as f64 / of.max(1) as f64;
    Pay {
        mean: mean(&rewards),
        deviation: of_all,
        group_variance: variance / f64::from(groups.max(1)),
        dead_groups: share(dead, groups as usize),
        floor,
        at_floor: share(at_floor, rewards.len()),
    }
}

/// Whether all rewards of a group are the same.
pub(super) fn is_dead(rewards: &[f64]) -> bool {
    rewards.iter().all(|reward| (reward - rewards[0]).abs() < SAME)
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// With Bessel's correction; 0 of a single number.
fn deviation(numbers: &[f64]) -> f64 {
    if numbers.len() < 2 {
        return 0.0;
    }
    let mean = mean(numbers);
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (squares / (numbers.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tonnage_verifiable::{AnswerForm, find_kind};

    use super::super::asker::Asked;
    use super::*;

    fn rows(rewards: &[f64]) -> Vec<Row> {
        let kind = find_kind("addition").unwrap();
        let asked = Rc::new(Asked { kind, question: kind.question(1, 1), form: AnswerForm::Whole, tokens: vec![1] });
        let row = |reward: &f64| Row {
            asked: Rc::clone(&asked),
            tokens: vec![2],
            is_truncated: false,
            text: String::new(),
            reward: *reward,
            advantage: f64::NAN,
        };
        rewards.iter().map(row).collect()
    }

    #[test]
    fn advantages_are_within_groups() {
        let mut all = rows(&[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        let pay = give_advantages(&mut all, 4, ScaleRewards::Group);
        let found: Vec<f64> = all.iter().map(|row| row.advantage).collect();
        // The deviation of 1, 0, 0, 1 is the root of 1/3.
        let expected = 0.5 / ((1.0_f64 / 3.0).sqrt() + 1e-4);
        assert!(found[..4].iter().zip([1.0, -1.0, -1.0, 1.0]).all(|(one, sign)| (one - sign * expected).abs() < 1e-12));
        assert!(found[4..].iter().all(|one| *one == 0.0));
        assert_eq!((pay.dead_groups, pay.mean, pay.floor, pay.at_floor), (0.5, 0.25, 0.0, 0.75));
        assert!((pay.group_variance - 1.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn dr_grpo_divides_by_nothing() {
        let mut all = rows(&[1.0, 0.0, 0.0, 0.0]);
        give_advantages(&mut all, 4, ScaleRewards::None);
        assert_eq!(all.iter().map(|row| row.advantage).collect::<Vec<_>>(), [0.75, -0.25, -0.25, -0.25]);
        let mut all = rows(&[1.0, 0.0, 1.0, 1.0]);
        let pay = give_advantages(&mut all, 2, ScaleRewards::Batch);
        assert!((all[0].advantage - 0.5 / (pay.deviation + 1e-4)).abs() < 1e-12 && all[2].advantage == 0.0);
    }
}
