//! What holds of every kind: its checker takes the generator's answer and nothing else, whatever stands in a completion.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tonnage_verifiable::{AnswerForm, Draw, KINDS, Kind, Split, constant_guess, find_kind};

fn kinds() -> impl Strategy<Value = &'static Kind> {
    (0..KINDS.len()).prop_map(|at| KINDS[at])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_generators_answer_is_right(kind in kinds(), level in 0_u32..9, seed: u64) {
        let question = kind.question(level, seed);
        prop_assert!((1..=kind.levels).contains(&question.level));
        prop_assert_eq!(&kind.question(level, seed), &question, "a seed decides");
        prop_assert!(kind.is_right(&question, &question.answer), "{}: {}", question.text, question.answer);
        for form in [AnswerForm::Tag, AnswerForm::Whole] {
            let completion = form.completion(&question.answer);
            prop_assert_eq!(form.answer(&completion), Some(question.answer.as_str()));
            prop_assert_eq!(kind.reward(&question, &completion, form), 1.0);
        }
    }

    #[test]
    fn answers_of_other_questions_are_wrong(kind in kinds(), level in 1_u32..5, seeds: (u64, u64)) {
        let [one, other] = [seeds.0, seeds.1].map(|seed| kind.question(level, seed));
        // Several formulas follow from the same premises; elsewhere an answer of another spelling is another answer.
        if one.answer != other.answer && kind.name != "propositional_logic" {
            prop_assert!(!kind.is_right(&one, &other.answer), "{}: {} for {}", one.text, other.answer, one.answer);
        }
    }

    #[test]
    fn a_changed_answer_is_wrong(kind in kinds(), level in 1_u32..5, seed: u64, at: usize, letter in "[a-zA-Z0-9]") {
        let question = kind.question(level, seed);
        let mut answer: Vec<char> = question.answer.chars().collect();
        let at = at % answer.len();
        let letter = letter.chars().next().unwrap();
        if kind.name != "propositional_logic" && !answer[at].eq_ignore_ascii_case(&letter) {
            answer[at] = letter;
            let answer: String = answer.into_iter().collect();
            prop_assert!(!kind.is_right(&question, &answer), "{answer} for {}", question.answer);
        }
        let longer = format!("{}1", question.answer);
        prop_assert!(!kind.is_right(&question, &longer), "{longer}");
    }

    #[test]
    fn whatever_is_completed_ends_in_a_reward(kind in kinds(), level in 1_u32..5, seed: u64, text in ".{0,200}") {
        let question = kind.question(level, seed);
        for form in [AnswerForm::Tag, AnswerForm::Whole] {
            let reward = kind.reward(&question, &text, form);
            prop_assert!(reward == 0.0 || form.answer(&text).is_some());
            let _ = kind.is_right(&question, &text);
        }
    }

    #[test]
    fn a_draw_is_of_its_split(kind in kinds(), level in 1_u32..5, seed: u64, held_out: bool) {
        let split = if held_out { Split::Evaluation } else { Split::Training };
        let draw = Draw { kind, level, split };
        let question = draw.question(seed).unwrap();
        prop_assert_eq!(Split::of(&question), split);
        prop_assert_eq!(kind.question(level, question.seed), question, "its seed makes it anew");
    }
}

#[test]
fn names_are_found_and_told_apart() {
    let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(names.len(), KINDS.len());
    assert!(KINDS.iter().all(|kind| find_kind(kind.name).is_some_and(|found| found.name == kind.name)));
    assert!(find_kind("no such kind").is_none());
}

#[test]
fn a_question_of_another_kind_has_no_right_answer() {
    let [addition, sorting] = ["addition", "sort_ascending"].map(|name| find_kind(name).unwrap());
    let question = addition.question(1, 3);
    assert!(addition.is_right(&question, &question.answer) && !sorting.is_right(&question, &question.answer));
}

#[test]
fn harder_levels_have_rarer_constant_answers() {
    for name in ["addition", "base_conversion", "basic_arithmetic", "bf", "fraction_simplification"] {
        let kind = find_kind(name).unwrap();
        let share = |level| {
            let draw = Draw { kind, level, split: Split::Training };
            constant_guess(&draw, 600).unwrap().share
        };
        assert!(share(kind.levels) < share(1), "{name}: {} and {}", share(1), share(kind.levels));
    }
}

#[test]
fn terse_questions_are_short() {
    for kind in KINDS.iter().filter(|kind| kind.is_terse) {
        for seed in 0..200 {
            let question = kind.question(kind.levels, seed);
            assert!(
                question.text.len() <= 16 && question.text.ends_with('=') && question.text.is_ascii(),
                "{}",
                question.text
            );
        }
    }
}
