//! [`LoraSpec`]: the adapters that a job trains.

use serde::{Deserialize, Serialize};

/// LoRA adapters as peft makes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoraSpec {
    /// Rank of the adapters.
    pub r: u64,
    /// What they add is multiplied by this over the rank: it costs no memory.
    pub alpha: f64,
    /// Dropout on the adapter's input, 0 to 1.
    pub dropout: f64,
    /// Names of the linear layers that get an adapter (`q_proj`, ...); `all-linear`, alone, is every linear layer but
    /// the head, for the family to name; `all-linear-names` is the names of all those.
    pub targets: Vec<String>,
    /// DoRA: a magnitude of each output is trained beside its direction.
    #[serde(default)]
    pub use_dora: bool,
    /// Names of embeddings and heads that are trained in full beside the adapters: a copy of each.
    #[serde(default)]
    pub modules_to_save: Vec<String>,
}

impl LoraSpec {
    /// Whether every linear layer but the head gets an adapter.
    pub fn is_all_linear(&self) -> bool {
        self.is_only("all-linear") || self.lists_names()
    }

    /// Whether the program lists the names of all linear layers and gives peft those, as Axolotl and LLaMA-Factory do: what is
    /// no linear layer gets an adapter only where one is called the same.
    pub fn lists_names(&self) -> bool {
        self.is_only("all-linear-names")
    }

    fn is_only(&self, word: &str) -> bool {
        matches!(self.targets.as_slice(), [only] if only.eq_ignore_ascii_case(word))
    }
}
