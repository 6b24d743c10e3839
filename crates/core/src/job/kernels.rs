//! [`Kernel`]: kernels of other programs in place of a model's own operations, each by the name that the program's users know it by.

use super::error::JobError;
use super::keys;

/// What is replaced, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// fms-acceleration's RMS norm.
    FastRmsLayernorm,
    /// fms-acceleration's rotary embedding.
    FastRopeEmbeddings,
    /// fms-acceleration's cross-entropy, whose gradient takes the logits' place.
    FastLoss,
    /// fms-acceleration's copy of Liger's fused linear cross-entropy.
    FusedCeLiger,
    /// fms-acceleration's products of a quantized layer with its adapter.
    FusedLora,
}

impl Kernel {
    /// All there are.
    pub const ALL: [Self; 5] =
        [Self::FastRmsLayernorm, Self::FastRopeEmbeddings, Self::FastLoss, Self::FusedCeLiger, Self::FusedLora];

    /// What its program's configs call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FastRmsLayernorm => "fast_rms_layernorm",
            Self::FastRopeEmbeddings => "fast_rope_embeddings",
            Self::FastLoss => "fast_loss",
            Self::FusedCeLiger => "fused_ce_liger",
            Self::FusedLora => "fused_lora",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Those of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernels(u8);

impl Kernels {
    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub const fn has(self, kernel: Kernel) -> bool {
        self.0 & kernel.bit() != 0
    }

    /// Those of these names.
    pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, JobError> {
        let mut kernels = Self::default();
        for name in names {
            let plain = name.replace('-', "_");
            let Some(kernel) = Kernel::ALL.into_iter().find(|kernel| kernel.name() == plain) else {
                let known: Vec<_> = Kernel::ALL.iter().map(|kernel| kernel.name()).collect();
                return Err(JobError::new(format!("`kernels`: no kernel called `{name}` is simulated"))
                    .about(&[keys::KERNELS])
                    .hint(format!("simulated are {}, of fms-acceleration", known.join(", ")))
                    .or_rehearse());
            };
            kernels.0 |= kernel.bit();
        }
        Ok(kernels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_known_by_its_own_name_and_no_other() {
        for kernel in Kernel::ALL {
            let kernels = Kernels::of_names([kernel.name()]).unwrap();
            assert!(Kernel::ALL.into_iter().all(|other| kernels.has(other) == (other == kernel)), "{kernel:?}");
        }
        let error = Kernels::of_names(["fast_rms_layernorm", "fast_rsm_layernorm"]).unwrap_err();
        assert!(error.problem.contains("fast_rsm_layernorm"), "{}", error.problem);
        assert!(error.hint.unwrap().contains("tonnage rehearse"));
    }
}
