//! What makes a line worth reading though it states no failure: the beginnings of tracebacks, fences of Markdown, and
//! words of a job that goes on.

use crate::progress::{RESTARTS, SUCCESSES};

/// What a line is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A traceback begins, or goes on where its beginning is missing.
    Traceback,
    /// A block of Markdown begins or ends.
    Fence,
    /// A traceback is about to follow from the one before.
    Chain,
    /// The job ended well, or was started again.
    Life,
}

impl Kind {
    /// Whether it matters after a finding alone.
    pub(crate) const fn is_after(self) -> bool {
        matches!(self, Self::Life)
    }
}

/// A reason to read a line.
pub(crate) struct Mark {
    pub(crate) kind: Kind,
    /// As of a signature.
    pub(crate) needles: &'static [&'static str],
    /// As of a signature.
    pub(crate) also: &'static [&'static str],
}

/// What Python writes between the tracebacks of a chain.
pub(crate) const CHAINS: &[&str] =
    &["During handling of the above exception", "The above exception was the direct cause"];

pub(crate) const MARKS: &[Mark] = &[
    Mark { kind: Kind::Traceback, needles: &["Traceback (most recent"], also: &[] },
    Mark { kind: Kind::Traceback, needles: &["\", line "], also: &["File \""] },
    Mark { kind: Kind::Chain, needles: CHAINS, also: &[] },
    Mark { kind: Kind::Fence, needles: &["```"], also: &[] },
    Mark { kind: Kind::Life, needles: SUCCESSES, also: &[] },
    Mark { kind: Kind::Life, needles: RESTARTS, also: &[] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_tracebacks_have_the_needle() {
        assert!(MARKS.iter().any(|mark| mark.kind == Kind::Traceback
            && mark.needles.iter().any(|needle| crate::traceback::HEAD.starts_with(needle))));
        assert!(MARKS.iter().any(|mark| mark.kind == Kind::Fence));
    }
}
