//! What a metric is by its name: on which questions it was taken, and whether less of it is better.

/// On which questions a metric was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// On questions that were never trained on.
    HeldOut,
    /// On the policy's own fresh answers.
    OnPolicy,
    /// On what was trained on, others' rollouts among it.
    TrainingSet,
    Unknown,
}

impl Kind {
    /// By a metric's name, as trainers call them.
    pub fn of_name(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        let words: Vec<&str> = lower.split(['/', '_', '.', '-', ' ']).collect();
        let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
        let is = |text: &str| lower.contains(text);
        if is("training_set") || is("training-set") || is("trainset") {
            Self::TrainingSet
        } else if has(&["eval", "evaluation", "test", "heldout", "val", "valid", "validation"]) || is("held_out") {
            Self::HeldOut
        } else if is("on_policy") || has(&["onpolicy", "rollout", "rollouts"]) {
            Self::OnPolicy
        } else if has(&["train", "training"]) {
            Self::TrainingSet
        } else {
            Self::Unknown
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::HeldOut => "held-out questions",
            Self::OnPolicy => "own fresh answers (on-policy)",
            Self::TrainingSet => "what was trained on",
            Self::Unknown => "not said on what",
        }
    }
}

/// Whether less of it is better.
pub fn is_lower_better(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["loss", "perplexity", "ppl", "error", "nll", "wer", "cer", "mse", "mae", "rmse", "bpb", "regret"]
        .iter()
        .any(|word| lower.split(['/', '_', '.', '-', ' ']).any(|part| part == *word))
}

/// Whether it measures how good answers are, rather than the machinery; the greater, the likelier it is what is asked about.
pub fn interest_in(name: &str) -> u32 {
    let lower = name.to_ascii_lowercase();
    let parts: Vec<&str> = lower.split(['/', '_', '.', '-', ' ']).collect();
    let has = |known: &[&str]| parts.iter().any(|part| known.contains(part));
    if matches!(name, "seconds" | "gpu_hours" | "tokens_generated" | "tokens_trained" | "flops") {
        return 0;
    }
    // What a process measured itself, rather than what it heard of others.
    let own = u32::from(parts.contains(&"my"));
    let is_spread = has(&[
        "std",
        "min",
        "max",
        "var",
        "variance",
        "median",
        "percentile",
        "rank",
        "clip",
        "total",
        "average",
        "stage",
    ]);
    let what = if is_spread
        || has(&[
            "lr", "learning", "rate", "grad", "norm", "length", "len", "kl", "entropy", "runtime", "samples", "second",
            "per",
        ]) {
        0
    } else if has(&["accuracy", "acc", "exact", "pass@1", "solved", "score", "success", "f1", "bleu", "winrate"]) {
        4
    } else if has(&["reward", "rewards", "return"]) {
        3
    } else if is_lower_better(name) {
        2
    } else {
        1
    };
    let on = match Kind::of_name(name) {
        Kind::HeldOut => 10,
        Kind::OnPolicy => 3,
        Kind::Unknown => 2,
        Kind::TrainingSet => 1,
    };
    if what == 0 { 0 } else { what * 2 + on + own }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_measure() {
        let cases = [
            ("eval/accuracy", Kind::HeldOut, false),
            ("eval_loss", Kind::HeldOut, true),
            ("reward/on_policy", Kind::OnPolicy, false),
            ("reward/training_set", Kind::TrainingSet, false),
            ("my_reward", Kind::Unknown, false),
            ("train/loss", Kind::TrainingSet, true),
            ("glossary", Kind::Unknown, false),
        ];
        for (name, kind, lower) in cases {
            assert_eq!((Kind::of_name(name), is_lower_better(name)), (kind, lower), "{name}");
        }
        let order = ["eval/accuracy", "eval/loss", "reward/on_policy", "my_reward", "loss", "reward_std"];
        assert!(order.is_sorted_by_key(|name| std::cmp::Reverse(interest_in(name))), "{:?}", order.map(interest_in));
    }
}
