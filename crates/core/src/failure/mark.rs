//! What makes a line worth reading though it states no failure: the beginnings of tracebacks, and fences of Markdown.

/// What a line is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A traceback begins, or goes on where its beginning is missing.
    Traceback,
    /// A block of Markdown begins or ends.
    Fence,
}

/// A reason to read a line.
pub(super) struct Mark {
    pub(super) kind: Kind,
    /// As of a signature.
    pub(super) needles: &'static [&'static str],
    /// As of a signature.
    pub(super) also: &'static [&'static str],
}

/// All marks.
pub(super) const MARKS: &[Mark] = &[
    Mark { kind: Kind::Traceback, needles: &["Traceback (most recent"], also: &[] },
    Mark { kind: Kind::Traceback, needles: &["\", line "], also: &["File \""] },
    Mark { kind: Kind::Fence, needles: &["```"], also: &[] },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_tracebacks_have_the_needle() {
        assert!(MARKS.iter().any(|mark| mark.kind == Kind::Traceback
            && mark.needles.iter().any(|needle| super::super::traceback::HEAD.starts_with(needle))));
        assert!(MARKS.iter().any(|mark| mark.kind == Kind::Fence));
    }
}
