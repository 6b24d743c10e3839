//! What is switched on a model while it lives, and which all its modules share: training mode, checkpointing, adapters.

use std::cell::{Cell, RefCell};
use std::fmt;

use crate::job::{CheckpointPolicy, Kernel, Kernels};
use crate::tensor::Tensor;

/// The switches of one model.
#[derive(Debug)]
pub(crate) struct Mode {
    training: Cell<bool>,
    checkpointing: Cell<CheckpointPolicy>,
    adapters: Cell<bool>,
    liger: Cell<LigerKernels>,
    kernels: Cell<Kernels>,
    fp32_head: bool,
    dropout: Cell<bool>,
    hidden_states: Noted,
}

/// What layers are given, where somebody asks for it.
#[derive(Default)]
struct Noted(RefCell<Option<Vec<Tensor>>>);

impl fmt::Debug for Noted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Noted")
    }
}

/// Which of a model's own ops Liger's kernels have replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LigerKernels {
    /// No layer is checkpointed.
    Off,
    /// Rotary embeddings, which are replaced for every model of a family at once.
    Rope,
    /// Rotary embeddings, norms and MLPs, as of the model that is trained.
    Layers,
}

impl Mode {
    /// A model in training mode or not; adapters, where there are any, are active.
    pub(crate) fn new(training: bool, checkpointing: CheckpointPolicy) -> Self {
        Self {
            training: Cell::new(training),
            checkpointing: Cell::new(checkpointing),
            adapters: Cell::new(true),
            liger: Cell::new(LigerKernels::Off),
            kernels: Cell::default(),
            fp32_head: false,
            dropout: Cell::new(true),
            hidden_states: Noted::default(),
        }
    }

    /// TRL's `cast_lm_head_to_fp32`: the head, and the embedding tied to it, are in fp32 whatever the model is in.
    pub(crate) fn with_fp32_head(self, fp32_head: bool) -> Self {
        Self { fp32_head, ..self }
    }

    /// Whether the head is in fp32.
    pub(crate) fn has_fp32_head(&self) -> bool {
        self.fp32_head
    }

    /// `output_hidden_states=True` for what `run` calls: what it makes, and all that layers and head were given.
    pub(crate) fn with_hidden_states<T>(&self, run: impl FnOnce() -> T) -> (T, Vec<Tensor>) {
        self.hidden_states.0.replace(Some(Vec::new()));
        let made = run();
        (made, self.hidden_states.0.take().unwrap_or_default())
    }

    /// A layer, or the head, is given these.
    pub(crate) fn note_hidden_states(&self, hidden_states: &Tensor) {
        if let Some(noted) = self.hidden_states.0.borrow_mut().as_mut() {
            noted.push(hidden_states.clone());
        }
    }

    /// `model.train(training)`
    pub(crate) fn train(&self, training: bool) {
        self.training.set(training);
    }

    /// `model.training`
    pub(crate) fn is_training(&self) -> bool {
        self.training.get()
    }

    /// TRL's `disable_dropout_in_model`
    pub(crate) fn disable_dropout(&self) {
        self.dropout.set(false);
    }

    /// Whether dropout modules do anything.
    pub(crate) fn drops_out(&self) -> bool {
        self.is_training() && self.dropout.get()
    }

    /// `model.gradient_checkpointing_enable()`, or `_disable()`; returns what it was.
    pub(crate) fn set_checkpointing(&self, policy: CheckpointPolicy) -> CheckpointPolicy {
        self.checkpointing.replace(policy)
    }

    /// Whether layers are recomputed in backward.
    pub(crate) fn checkpoints_layers(&self) -> bool {
        self.is_training() && self.checkpointing.get() == CheckpointPolicy::EveryLayer
    }

    /// peft's `disable_adapter()`, and its end.
    pub(crate) fn enable_adapters(&self, enabled: bool) {
        self.adapters.set(enabled);
    }

    /// Whether LoRA layers add their adapters' part.
    pub(crate) fn has_active_adapters(&self) -> bool {
        self.adapters.get()
    }

    /// `_apply_liger_kernel_to_instance(model)`
    pub(crate) fn apply_liger_kernels(&self, kernels: LigerKernels) {
        self.liger.set(kernels);
    }

    /// Liger's kernels in use.
    pub(crate) fn liger_kernels(&self) -> LigerKernels {
        self.liger.get()
    }

    /// Puts these kernels in place of the model's own operations.
    pub(crate) fn apply_kernels(&self, kernels: Kernels) {
        self.kernels.set(kernels);
    }

    /// Whether this kernel is in place.
    pub(crate) fn has_kernel(&self, kernel: Kernel) -> bool {
        self.kernels.get().has(kernel)
    }
}
