//! Where activations lie between forward and backward.

use serde::{Deserialize, Serialize};

use super::{JobSpec, Strategy, TaskName};
use crate::host::HostKind;

/// What gradient checkpointing recomputes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointPolicy {
    /// Nothing is checkpointed.
    Off,
    /// Every decoder layer.
    EveryLayer,
}

/// Which hooks on saved tensors move them to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffloadHooks {
    /// Saved tensors stay where they are.
    None,
    /// `torch.autograd.graph.save_on_cpu()` round forward pass and loss.
    SaveOnCpu,
    /// `OffloadActivations` of torchtune and TRL, on a stream of its own, round a pass.
    Streams,
}

/// Activations that lie on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationOffload {
    /// What moves them.
    pub hooks: OffloadHooks,
    /// How the host holds them.
    pub held: HostKind,
}

impl JobSpec {
    /// What moves activations, where that is simulated: in other loops, of a model that is sharded or split, and with images they are
    /// counted on the GPU.
    pub(crate) fn simulated_offload(&self) -> Option<ActivationOffload> {
        let task = self.task.name();
        let of_trl = matches!(task, TaskName::Dpo | TaskName::Kto | TaskName::Reward);
        let is_whole = matches!(self.parallel.strategy, Strategy::None | Strategy::Ddp(_));
        let is_simulated = is_whole
            && (of_trl || task.has_labels() || task.has_classes())
            && self.model.is_in_transformers()
            && self.model.beside.vision.is_none();
        self.activation_offload.filter(|_| is_simulated)
    }

    /// Whether transformers turns the cache off in training, as it does where layers are recomputed.
    pub(crate) fn turns_cache_off(&self) -> bool {
        let recomputes = self.gradient_checkpointing == CheckpointPolicy::EveryLayer;
        recomputes && !self.model.facts().hands_keys_on_in(self.transformers)
    }
}
