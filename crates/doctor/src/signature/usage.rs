//! Commands that could not be run as they were written: unknown flags, missing programs and scripts.

use super::{Reading, Signature};
use crate::cause::FailureCause;
use crate::error_words::is_noise;
use crate::text::{has_phrase, text_after, text_before};
use tonnage_core::failure::Class;

pub(super) const USAGE: Signature = Signature {
    name: "usage",
    needles: &[
        "error: unrecognized arguments: ",
        "error: the following arguments are required",
        "error: argument ",
        "error: ambiguous option: ",
        ": command not found",
        "can't open file ",
        "Error: No such option: ",
        "Error: Missing option ",
        "Error while finding module specification for '",
    ],
    also: &[],
    follow: 0,
    read: |text| {
        let parser = [
            "error: unrecognized arguments: ",
            "error: the following arguments are required",
            "error: ambiguous option: ",
        ]
        .iter()
        .any(|words| has_phrase(text, words));
        let argument = text_after(text, "error: argument ").is_some_and(|said| has_phrase(said, ": "));
        let script = has_phrase(text, "can't open file '") && has_phrase(text, "[Errno ");
        // PowerShell breaks what a program says into lines.
        let script = script || (text.starts_with("python") && text.trim_end().ends_with(": can't open file"));
        let shell = text.ends_with(": command not found") && !is_noise(text);
        let click = text.starts_with("Error: No such option: ") || text.starts_with("Error: Missing option ");
        // Python's, of `-m`; a whole line.
        let module = text_before(text, "Error while finding module specification for '")
            .is_some_and(|program| program.ends_with(": ") && has_phrase(program, "ython"));
        let said = module || parser || argument || script || shell || click;
        let detail = (said && text.len() < 300).then(|| text.to_owned());
        let cause = FailureCause::Stated { class: Class::Usage, detail };
        if said && !super::is_talk(text) { Reading::whole(cause) } else { None }
    },
};
