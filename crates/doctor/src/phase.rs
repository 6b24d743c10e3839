//! [`Phase`]: what a program was doing when it died, by the functions and the code of a traceback's frames.

use crate::text::has_phrase;

/// What the program did when it died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Imports, models, data, checkpoints: before the first step.
    Load,
    /// Forward, backward, optimizer.
    Step,
    /// Writing a checkpoint.
    Save,
    /// Evaluation or generation.
    Eval,
}

impl Phase {
    /// Its name for programs: `load`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Step => "step",
            Self::Save => "save",
            Self::Eval => "eval",
        }
    }
}

/// Functions of trainers and libraries that are called in one phase alone.
const PHASES: &[(Phase, &[&str])] = &[
    (
        Phase::Save,
        &[
            "save_pretrained",
            "save_checkpoint",
            "_save",
            "save_model",
            "save_state",
            "torch_save",
            "_legacy_save",
            "full_state_dict",
            "_full_state_dict",
            "get_model_state_dict",
            "_gather_state_dict",
            "state_dict_to_cpu",
        ],
    ),
    (
        Phase::Eval,
        &[
            "evaluate",
            "evaluation_loop",
            "prediction_loop",
            "prediction_step",
            "validate",
            "validation_step",
            "validation_epoch",
            "eval_step",
            "_evaluate",
            "generate",
        ],
    ),
    (
        Phase::Step,
        &[
            "training_step",
            "train_step",
            "backward",
            "compute_loss",
            "optimizer_step",
            "clip_grad_norm_",
            "train_one_epoch",
            "train_epoch",
            "_inner_training_loop",
            "training_loop",
            "run_training_epoch",
        ],
    ),
    (
        Phase::Load,
        &[
            "from_pretrained",
            "load_dataset",
            "load_state_dict",
            "load_model",
            "load_checkpoint",
            "_find_and_load",
            "prepare_dataset",
            "init_process_group",
            "snapshot_download",
            "hf_hub_download",
            "load_tokenizer",
        ],
    ),
];

/// The phase that a function's name tells.
pub(crate) fn phase_of(function: &str, file: &str) -> Option<Phase> {
    if function == "save" && !file.ends_with("image.py") {
        return Some(Phase::Save);
    }
    PHASES.iter().find(|(_, names)| names.contains(&function)).map(|(phase, _)| *phase)
}

/// The phase that a frame's line of code tells.
pub(crate) fn phase_of_code(code: &str) -> Option<Phase> {
    const CALLS: &[(Phase, &[&str])] = &[
        (Phase::Step, &[".backward(", "optimizer.step("]),
        (Phase::Save, &["save_pretrained(", "torch.save(", "save_checkpoint("]),
        (Phase::Eval, &["evaluate(", ".validate("]),
        (Phase::Load, &["from_pretrained(", "load_dataset(", "load_state_dict("]),
    ];
    CALLS.iter().find(|(_, calls)| calls.iter().any(|call| has_phrase(code, call))).map(|(phase, _)| *phase)
}
