//! The only place that prints. Stdout is data, stderr is talk; colours reach terminals only; a closed pipe is no error.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use anstyle::{AnsiColor, Style};
use terminal_size::{Width, terminal_size_of};
use tonnage_report::Look;

use crate::clean::{clean_plain, clean_styled};
use crate::exit::Exit;
use crate::failure::Failure;

/// Columns when nobody says.
const WIDTH: usize = 80;
/// Longer lines are hard to read.
const WIDEST: usize = 120;
const NARROWEST: usize = 40;

/// What is known about the place the answer goes to.
pub struct Terminal {
    /// Columns and characters.
    pub look: Look,
    /// Where answers are kept that another program asked for in its own process; nothing is printed then.
    kept: Option<Mutex<Kept>>,
}

/// An answer that is kept.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// JSON, as `--json` prints it; empty where the command has none.
    pub document: String,
    /// The screen, with its colours.
    pub screen: String,
}

impl Terminal {
    /// Looks at stdout and the environment.
    pub fn detect() -> Self {
        if forces_colour(|name| std::env::var(name).ok()) {
            anstream::ColorChoice::Always.write_global();
        }
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = terminal_size_of(io::stdout()).map(|(Width(columns), _)| usize::from(columns)).or(columns);
        let width = width.unwrap_or(WIDTH).clamp(NARROWEST, WIDEST);
        Self { look: Look { width, unicode: speaks_unicode() }, kept: None }
    }

    /// One that keeps what it is given.
    pub fn keeping(look: Look) -> Self {
        Self { look, kept: Some(Mutex::default()) }
    }

    /// What was kept.
    pub fn into_kept(self) -> Kept {
        self.kept.map(|kept| kept.into_inner().unwrap_or_else(PoisonError::into_inner)).unwrap_or_default()
    }

    /// Whether nobody reads along.
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Keeps with `write`; false where answers are printed.
    fn keep_instead(&self, write: impl FnOnce(&mut Kept)) -> bool {
        let Some(kept) = &self.kept else { return false };
        write(&mut kept.lock().unwrap_or_else(PoisonError::into_inner));
        true
    }

    /// Prints the answer as a document for programs or as a screen; keeps both.
    pub fn show(
        &self,
        as_json: bool,
        document: impl FnOnce() -> Result<String, Failure>,
        screen: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if self.is_kept() {
            let (document, screen) = (document()?, screen());
            self.keep_instead(|kept| {
                kept.document = document;
                kept.screen.push_str(&screen);
            });
            return Ok(());
        }
        self.print(&if as_json { document()? } else { screen() })
    }

    /// Prints the answer.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        if self.keep_instead(|kept| kept.screen.push_str(text)) {
            return Ok(());
        }
        let mut stdout = anstream::AutoStream::auto(io::stdout().lock());
        check_written(stdout.write_all(clean_styled(text).as_bytes()).and_then(|()| stdout.flush()))
    }

    /// Says beside the answer what was done.
    pub fn note(&self, text: &str) {
        self.print_talk(AnsiColor::Green.on_default().bold(), "note", text);
    }

    /// Prints a part of an answer that goes on; false when nobody reads it any more.
    pub fn stream(&self, text: &str) -> Result<bool, Failure> {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(clean_styled(text).as_bytes()).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            written => check_written(written).map(|()| true),
        }
    }

    /// Prints what another program wrote, as it is.
    pub fn print_bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        check_written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
    }

    /// Prints a screen about the work, on stderr; where answers are kept nobody reads along.
    pub fn tell(&self, text: &str) {
        if self.is_kept() {
            return;
        }
        let mut stderr = anstream::AutoStream::auto(io::stderr().lock());
        // Nothing can be done about a stderr that is closed.
        let _ = stderr.write_all(clean_styled(text).as_bytes());
    }

    /// Prints the error and gives its exit code.
    pub fn fail(&self, failure: &Failure) -> Exit {
        let (red, cyan) = (AnsiColor::Red.on_default().bold(), AnsiColor::Cyan.on_default().bold());
        self.print_talk(red, "error", &failure.problem);
        if let Some(hint) = &failure.hint {
            self.print_talk(cyan, "hint", hint);
        }
        failure.exit
    }

    /// Says something about the work, on stderr.
    pub fn say(&self, text: &str) {
        self.print_talk(AnsiColor::Green.on_default().bold(), "tonnage", text);
    }

    fn print_talk(&self, style: Style, label: &str, text: &str) {
        if self.keep_instead(|kept| kept.screen.push_str(&format!("{label}: {text}\n"))) {
            return;
        }
        let mut stderr = anstream::AutoStream::auto(io::stderr().lock());
        // Nothing can be done about a stderr that is closed.
        let _ = writeln!(stderr, "{style}{label}:{style:#} {}", clean_plain(text));
    }
}

/// `FORCE_COLOR`, as Node's programs and Python's read it; `NO_COLOR` goes before it.
fn forces_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("FORCE_COLOR").is_some_and(|value| !matches!(value.as_str(), "0" | "false"))
}

/// Whoever closes the pipe has read enough.
fn check_written(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::about_file("stdout", &error)),
        _ => Ok(()),
    }
}

/// False only where the environment says so: the locale is C, or the terminal is one that has no blocks.
fn speaks_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let plain = locale.is_some_and(|locale| matches!(locale.as_str(), "C" | "POSIX"));
    !plain && set("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::forces_colour;

    #[test]
    fn colours_are_forced_by_name() {
        let of = |set: &'static [(&'static str, &'static str)]| {
            forces_colour(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[("FORCE_COLOR", "1")]) && of(&[("FORCE_COLOR", "3"), ("NO_COLOR", "")]));
        assert!(!of(&[]) && !of(&[("FORCE_COLOR", "0")]) && !of(&[("FORCE_COLOR", "1"), ("NO_COLOR", "1")]));
    }
}
