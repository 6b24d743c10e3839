//! A node of a swarm (SAPO, arXiv 2509.08721): GRPO on its own rollouts and on some of those that other nodes share through a folder.
//! What is shared is text: who receives it makes its own tokens, rewards and choice of it.
//!
//! `Node` -> `Exchange` (who, in which round) -> [`SwarmFolder`] (files), `Clock` (when a round is over); `shared` is the form of a file,
//! `pool` what becomes of it here, `loss` GenRL's objective.

mod clock;
mod exchange;
mod folder;
mod lease;
mod likeness;
mod loss;
mod node;
mod pool;
mod program;
mod progress;
mod report;
mod settings;
mod shared;

pub use folder::{Experiment, SwarmFolder};
pub use program::{Place, SwarmReady};
pub use report::{SwarmNote, SwarmReport};
pub use settings::SwarmSettings;
