//! [`Repetition`]: how much was run of a job whose steps and passes ask for the same again.

/// What was run of what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repetition {
    /// Optimizer steps run.
    pub steps: u32,
    /// The fewest passes that a step ran.
    pub passes: u64,
    /// Whether the rest was left out while small blocks lay elsewhere after each step.
    pub small_blocks_wander: bool,
}

impl Repetition {
    /// Nothing yet of steps of so many passes.
    pub(super) const fn begin(passes: u64) -> Self {
        Self { steps: 0, passes, small_blocks_wander: false }
    }
}
