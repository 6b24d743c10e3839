//! Keys of `[grpo]` that change no byte: what is asked, who pays, and how advantages and losses are made. `tonnage train` reads them.

use super::super::kind::Kind;
use super::{Default, Key, names};

pub(super) const LOSS_TYPES: Kind = Kind::Choice(&[
    ("dapo", "the mean over all tokens of a step"),
    ("grpo", "the mean of each completion's mean"),
    ("bnpo", "the mean over the tokens of a micro-batch"),
    ("dr_grpo", "over a constant: rows times completion_len"),
]);
pub(super) const SCALES: Kind = Kind::Choice(&[
    ("group", "the deviation of the group's rewards"),
    ("batch", "the deviation of all rewards generated at once"),
    ("none", "nothing, as Dr. GRPO"),
]);
pub(super) const ANSWER_FORMS: Kind = Kind::Choice(&[
    ("auto", "the whole completion for questions of a few characters, else the tag"),
    ("tag", "in the last <answer>...</answer>"),
    ("whole", "the completion is the answer"),
]);
pub(super) const REWARDS: Kind = Kind::Choice(&[
    ("verifier", "1 for a right answer, 0 for any other"),
    ("judge_score", "a tenth of the score from 0 to 10 that the judge gives"),
    ("judge_answer", "the judge answers what the completion asks, and its answer is checked"),
]);

/// Questions of an evaluation, and steps, at most.
const MANY: u64 = 1 << 20;

pub(super) const KEYS: [Key; 14] = [
    Key {
        name: names::GRPO_QUESTIONS,
        kind: Kind::Texts,
        default: Default::Unset,
        doc: "kinds of verifiable questions that are asked, as likely each",
        example: "[\"addition\"]",
    },
    Key {
        name: names::GRPO_QUESTION_LEVEL,
        kind: Kind::Size { min: 1, max: 16 },
        default: Default::Fixed("1", "the easiest"),
        doc: "how hard they are; docs/grpo.md says what a level of each kind asks",
        example: "2",
    },
    Key {
        name: names::GRPO_ANSWER_FORM,
        kind: ANSWER_FORMS,
        default: Default::Fixed("\"auto\"", "what the kinds were made for"),
        doc: "where a completion has its answer",
        example: "\"tag\"",
    },
    Key {
        name: names::GRPO_REWARD,
        kind: REWARDS,
        default: Default::Fixed("\"verifier\"", "a checker needs no second model"),
        doc: "who pays a completion",
        example: "\"judge_score\"",
    },
    Key {
        name: names::GRPO_EPSILON,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.2", "TRL's default"),
        doc: "how far a ratio of probabilities may fall below 1",
        example: "0.1",
    },
    Key {
        name: names::GRPO_EPSILON_HIGH,
        kind: Kind::Number { min: 0.0, max: 1e6 },
        default: Default::Rule(names::GRPO_EPSILON),
        doc: "how far a ratio of probabilities may rise above 1; DAPO's is 0.28",
        example: "0.28",
    },
    Key {
        name: names::GRPO_LOSS_TYPE,
        kind: LOSS_TYPES,
        default: Default::Fixed("\"dapo\"", "TRL's default"),
        doc: "how the losses of tokens become one",
        example: "\"dr_grpo\"",
    },
    Key {
        name: names::GRPO_SCALE_REWARDS,
        kind: SCALES,
        default: Default::Fixed("\"group\"", "TRL's default"),
        doc: "what advantages are divided by",
        example: "\"none\"",
    },
    Key {
        name: names::GRPO_DYNAMIC_SAMPLING,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL trains on every group"),
        doc: "groups whose rewards are all the same are drawn anew, DAPO's filter; after three draws they are kept",
        example: "true",
    },
    Key {
        name: names::GRPO_MASK_TRUNCATED_COMPLETIONS,
        kind: Kind::Switch,
        default: Default::Fixed("false", "TRL's default"),
        doc: "completions that were cut off teach nothing",
        example: "true",
    },
    Key {
        name: names::GRPO_EVAL_QUESTIONS,
        kind: Kind::Size { min: 0, max: MANY },
        default: Default::Fixed("256", "a standard error of three points"),
        doc: "held-out questions of an evaluation; 0 evaluates never",
        example: "512",
    },
    Key {
        name: names::GRPO_WARM_START_REWARD,
        kind: Kind::Number { min: 0.0, max: 1.0 },
        default: Default::Fixed("0.0", "a model that was trained before needs none"),
        doc: "mean reward up to which a new model learns from answers first; 0 for none",
        example: "0.2",
    },
    Key {
        name: names::GRPO_WARM_START_LEARNING_RATE,
        kind: Kind::Number { min: 0.0, max: 1e3 },
        default: Default::Fixed("2e-3", "what small models learn sums by"),
        doc: "learning rate of that",
        example: "1e-3",
    },
    Key {
        name: names::GRPO_WARM_START_STEPS,
        kind: Kind::Size { min: 1, max: MANY },
        default: Default::Fixed("2000", "four times what two-digit sums take"),
        doc: "steps of that, at most; a reward that is not reached by then is an error",
        example: "1000",
    },
];
