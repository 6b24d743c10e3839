//! What went wrong, read from a log: bytes in, findings with their numbers out, root cause told from echoes, advice.
//!
//! [`Scanner`] finds messages ([`Finding`]: cause, line, rank) in a log fed to it piece by piece; [`diagnose`] weighs
//! the findings of one or several logs; [`advise`] says what to do. Nothing here reads a file: whoever has a log, a
//! pipe or a folder feeds it.

// No library for others: a field whose name says all is not said again. What is documented says a unit, a range or a source.
#![allow(missing_docs)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

mod advice;
mod again;
mod block;
mod built;
mod cause;
mod choice;
mod code;
mod command;
mod diagnosis;
mod error_words;
mod exception;
mod fences;
mod finding;
mod history;
mod julia;
mod last_rows;
mod last_words;
mod leftovers;
mod life;
mod line;
mod mark;
mod memory;
mod needles;
mod phase;
mod place;
mod prefix;
mod progress;
mod quote;
mod ranks;
mod scanner;
mod setting;
mod signature;
mod stamp;
mod starts;
mod survival;
mod text;
mod traceback;
mod utf16;
mod waiting;
mod windows;
mod wording;

pub use advice::{Advice, Context, advise};
pub use cause::{Collective, FailureCause, Figure, Worker};
pub use diagnosis::{Diagnosis, Located, Source, diagnose};
pub use exception::{Exception, Place, Raiser};
pub use finding::{Finding, LastError, Scan, Tone};
pub use memory::GpuMemory;
pub use phase::Phase;
pub use place::place_of;
pub use progress::Progress;
pub use ranks::{End, Ranks};
pub use scanner::Scanner;
pub use setting::{Framework, Setting};
pub use signature::{Reading, SIGNATURES, Signature};
pub use stamp::Stamp;
pub use starts::Starts;
