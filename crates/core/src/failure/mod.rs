//! What went wrong, read from a log: bytes in, findings with their numbers out, root cause told from echoes, advice.
//!
//! [`Scanner`] finds messages ([`Finding`]: cause, line, rank) in a log fed to it piece by piece; [`diagnose`] weighs
//! the findings of one or several logs; [`advice`] says what to do. Nothing here reads a file: whoever has a log, a
//! pipe or a folder feeds it.

mod advice;
mod block;
mod cause;
mod class;
mod diagnosis;
mod line;
mod memory;
mod needles;
mod scanner;
mod signature;
mod text;
mod traceback;

pub use advice::{Advice, advice};
pub use cause::{Collective, FailureCause, Figure, Worker};
pub use class::{CLASSES, Class, STRENGTHS, Strength, Verdict};
pub use diagnosis::{Diagnosis, Located, Source, diagnose, place_of};
pub use line::printable;
pub use memory::GpuMemory;
pub use scanner::{Finding, Scan, Scanner};
pub use signature::{Reading, SIGNATURES, Signature};
pub use traceback::{Raised, last_raised};
