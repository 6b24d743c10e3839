//! What can go wrong between a program and libtorch.

use thiserror::Error;

/// What kind of failure it is, for a program to decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No libtorch, one that is too old, no compiler, a library that does not load.
    Setup,
    /// An operator: shapes, dtypes, devices, names.
    Operator,
    /// The device has no memory left; the text is PyTorch's own.
    OutOfMemory,
    /// A checkpoint that is run again has all it needs. Passed on with `?`, it ends the function early; it never reaches a user.
    Stopped,
}

/// An error with PyTorch's own text, or with what is missing and how to get it.
#[derive(Clone, Debug, Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct TorchError {
    /// What a program decides by.
    pub kind: ErrorKind,
    /// What happened. PyTorch's out-of-memory text is kept as it is: guards and `tonnage doctor` read it.
    pub text: String,
    /// The way out, where one is known.
    pub hint: Option<String>,
}

impl TorchError {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), hint: None }
    }

    /// An error of a program's own, where it is a tensor that is asked for.
    pub fn of_program(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Operator, text)
    }

    pub(crate) fn setup(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Setup, text)
    }

    pub(crate) fn hinted(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A checkpoint that is of another program: a state that nothing here has.
    pub fn unknown_state(of: &str, parameter: usize, name: &str) -> Self {
        Self::new(ErrorKind::Operator, format!("{of} has no `{name}` of parameter {parameter}"))
    }

    /// Says which operator, unless PyTorch's text is read by others.
    pub(crate) fn of_operator(mut self, name: &str) -> Self {
        if self.kind == ErrorKind::Operator {
            self.text = format!("aten::{name}: {}", self.text);
        }
        self
    }
}
