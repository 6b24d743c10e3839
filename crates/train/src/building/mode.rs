//! What is switched on a model while it lives, and which all its modules share.

use std::cell::Cell;

use crate::job::Kernel;
use crate::tensor::Tensor;

/// The switches of one model.
#[derive(Debug)]
pub(crate) struct Mode {
    training: Cell<bool>,
    checkpointing: Cell<bool>,
    adapters: Cell<bool>,
}

/// Which of a model's own ops Liger's kernels have replaced: none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LigerKernels {
    Off,
    /// What the shared source asks for, and no job that is run has.
    Layers,
}

impl Mode {
    pub(super) fn new(training: bool, checkpointing: bool) -> Self {
        Self { training: Cell::new(training), checkpointing: Cell::new(checkpointing), adapters: Cell::new(true) }
    }

    /// `model.train(training)`
    pub(crate) fn train(&self, training: bool) {
        self.training.set(training);
    }

    /// `model.gradient_checkpointing_enable()`, or `_disable()`
    pub(crate) fn set_checkpointing(&self, on: bool) {
        self.checkpointing.set(on);
    }

    /// peft's `disable_adapter()`, and its end
    pub(crate) fn enable_adapters(&self, enabled: bool) {
        self.adapters.set(enabled);
    }

    /// `model.training`
    pub(crate) fn is_training(&self) -> bool {
        self.training.get()
    }

    /// Whether dropout modules do anything.
    pub(crate) fn drops_out(&self) -> bool {
        self.training.get()
    }

    /// Whether layers are recomputed in backward.
    pub(crate) fn checkpoints_layers(&self) -> bool {
        self.training.get() && self.checkpointing.get()
    }

    /// Whether LoRA layers add their adapters' part.
    pub(crate) fn has_active_adapters(&self) -> bool {
        self.adapters.get()
    }

    /// Whether the head is in fp32 whatever the model is in: TRL's switch, which nothing here has.
    #[expect(clippy::unused_self, reason = "the simulation has it")]
    pub(crate) fn has_fp32_head(&self) -> bool {
        false
    }

    /// A layer, or the head, is given these: nobody here asks for them.
    #[expect(clippy::unused_self, reason = "the simulation keeps them")]
    pub(crate) fn note_hidden_states(&self, _hidden_states: &Tensor) {}

    /// Whether a kernel of another program is in place.
    #[expect(clippy::unused_self, reason = "the simulation has them")]
    pub(crate) fn has_kernel(&self, _kernel: Kernel) -> bool {
        false
    }

    /// Liger's kernels in use.
    #[expect(clippy::unused_self, reason = "the simulation has them")]
    pub(crate) fn liger_kernels(&self) -> LigerKernels {
        LigerKernels::Off
    }
}
