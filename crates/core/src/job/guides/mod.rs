//! The founders' guides and their small-GPT trainer: its files as jobs, and the formula of its guide (`--legacy`). Guests: what
//! they need is here, in `cli/src/small_gpt.rs`, `report/src/text/legacy.rs` and `xtask/src/guides`.

pub(super) mod gpt_file;
mod legacy;

pub use gpt_file::{SMALL_GPT_KEYS, SmallGptKey};
pub use legacy::LegacyEstimate;
