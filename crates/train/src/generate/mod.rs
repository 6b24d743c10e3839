//! Text from a model: a prompt goes in, tokens come out, the likeliest, by chance, or along several beams.

mod beams;
mod choose;
mod generator;
mod writer;

pub use choose::{Chooser, Drawn};
pub use generator::{Decoder, Generated, Generator, Stop};
pub use writer::{Seen, Writer};
