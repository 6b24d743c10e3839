//! Why a run stops before its end.

/// What PyTorch would refuse, or what only the simulation does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The keys of the job that it is about, the one at fault first.
    pub keys: Vec<String>,
    /// What is wrong.
    pub problem: String,
    /// The way out of it.
    pub way_out: WayOut,
}

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOut {
    /// Another value of its keys.
    OtherValue,
    /// Smaller sizes, in words.
    Lower(&'static str),
    /// It may well run: the script itself, rehearsed.
    Rehearse,
}

impl Failure {
    /// About `keys`, with a way out.
    pub fn new(problem: String, keys: &[&str], way_out: WayOut) -> Self {
        Self { keys: keys.iter().map(|key| (*key).to_owned()).collect(), problem, way_out }
    }
}
