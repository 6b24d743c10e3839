//! Words in a shell's script.

use std::fmt::Write as _;

/// A word as a POSIX shell reads it back, whatever it holds.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        // `sbatch` refuses a script that holds CR and LF side by side: two quotes between them are nothing to a shell.
        false => format!("'{}'", text.replace('\'', "'\\''").replace("\r\n", "\r''\n")),
    }
}

/// A block that sets `"$@"`, TONNAGE_RUN and TONNAGE_NAME to those of the run that `index`, a shell's word, counts from 0.
pub fn cases(index: &str, commands: &[&[String]], ids: &[&str], names: &[String]) -> String {
    let mut text = format!("case {index} in\n");
    for (at, ((words, id), name)) in commands.iter().zip(ids).zip(names).enumerate() {
        let words: Vec<String> = words.iter().map(|text| word(text)).collect();
        // Nothing fails to be written to a text.
        let _ = writeln!(text, "{at}) TONNAGE_RUN={id} TONNAGE_NAME={}\n  set -- {} ;;", word(name), words.join(" "));
    }
    text.push_str("*) echo \"no run has this number\" >&2; exit 2 ;;\nesac\nexport TONNAGE_RUN TONNAGE_NAME\n");
    text
}
