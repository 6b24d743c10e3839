//! What an exception says below its own line.

use super::{Open, USER_CODE, is_frame};
use crate::exception::{Exception, exception_stated};
use crate::line::Line;
use crate::traceback::{Ended, LONGEST, LONGEST_MESSAGE, cut_text};

/// Lines of what an exception says below its own, where each ends with a colon.
const MORE: usize = 4;

impl Open {
    /// The line behind an exception that says nothing on its own.
    pub(in crate::traceback) fn with_more(&mut self, line: &Line, number: u64) -> Option<Ended> {
        if self.is_in_user_code() {
            return self.of_user_code(line, number);
        }
        let ended = self.ending.as_mut()?;
        let others = ["===", "During handling", "The above exception"];
        let is_rest = !line.text.is_empty() && !others.iter().any(|other| line.text.starts_with(other));
        // PyTorch lists every tensor of a checkpoint that does not fit, each in an indented line.
        let is_listed = is_rest && line.indent > self.indent && !is_frame(&line.text);
        if std::mem::replace(&mut self.is_listing, is_listed) && !is_listed {
            return self.ending.take();
        }
        if is_rest {
            let message = &mut ended.exception.message;
            if message.len() < LONGEST_MESSAGE {
                *message = format!("{message} {}", cut_text(&line.text, LONGEST_MESSAGE)).trim().to_owned();
            }
            ended.last_line = number;
            if is_listed && self.lines < LONGEST {
                return None;
            }
            // DALI names the operator in a line of its own, before what it encountered.
            if line.text.ends_with(':') && self.lines < MORE {
                return None;
            }
        } else if line.text.is_empty() && self.lines < 2 {
            return None;
        }
        self.ending.take()
    }

    /// Whether what was raised stands indented below, under frames of its own (Keras, TensorFlow's AutoGraph).
    fn is_in_user_code(&self) -> bool {
        self.ending.as_ref().is_some_and(|ended| ended.exception.message == "in user code:")
    }

    /// A line of that: a frame, or what was raised there.
    fn of_user_code(&mut self, line: &Line, number: u64) -> Option<Ended> {
        let is_inside = line.indent > self.indent || line.text.is_empty();
        if self.lines > USER_CODE || !is_inside {
            return self.ending.take();
        }
        if is_frame(&line.text) {
            self.read_frame(line.text.trim_end_matches([' ', '*']));
            return None;
        }
        let (name, message) = exception_stated(&line.text, true).filter(|(_, message)| !message.is_empty())?;
        let mut ended = self.ending.take()?;
        ended.exception = Exception::new(name, cut_text(message, LONGEST_MESSAGE), &self.files);
        ended.text = format!("{name}: {message}");
        ended.place = self.own.take().or(ended.place);
        ended.last_line = number;
        Some(ended)
    }
}
