//! The version of transformers that a job runs, and what in it moves memory: each difference is named once here, with the
//! versions between which it came, read in the source of every minor version from 4.38 on. Whoever allocates asks for the
//! difference, never for the version.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A version, `major.minor`; patches change no byte that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransformersVersion {
    major: u16,
    minor: u16,
}

/// How a causal language model's loss comes from its logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CausalLoss {
    /// The forward pass copies all logits but the last, in their own dtype (GPT-2 and GPT-BigCode before 4.49).
    InModel,
    /// It upcasts the logits of all positions, labels or not, then copies all but the last (before 4.46).
    UpcastInModel,
    /// It upcasts them where there are labels (Mistral, 4.46 and 4.47).
    UpcastForLoss,
    /// The same within `ForCausalLMLoss`, while the model holds the logits in their own dtype (4.46 to 4.48).
    ShiftedLogits,
    /// The labels are shifted, by padding; logits are upcast only (from 4.49 on).
    PaddedLabels,
}

/// How `generate` takes the next token's logits from those of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTokenLogits {
    /// As a view, which keeps the logits of all positions (before 4.42).
    View,
    /// As a copy (4.42 to 4.44).
    Clone,
    /// From a copy of the logits of all positions, upcast (4.45 to 4.47).
    UpcastOfWholeClone,
    /// As a copy, then upcast (4.48 and 4.49).
    UpcastOfClone,
    /// As an upcast copy (from 4.50 on).
    Upcast,
}

/// How attention calls `scaled_dot_product_attention`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SdpaForm {
    /// A class of its own: keys and values are repeated for all query heads (before 4.48).
    Class,
    /// A function: they are repeated, and queries, keys and values copied to be contiguous (4.48 to 4.53).
    RepeatedContiguous,
    /// Grouped heads go to the kernel; queries, keys and values are copied to be contiguous (4.54 and 4.55).
    GroupedContiguous,
    /// Grouped heads go to the kernel as they are (from 4.56 on).
    Grouped,
}

/// Whose modeling file a part of a model comes from; they changed at different times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelingFile {
    /// `modeling_gpt2.py`
    Gpt2,
    /// `modeling_gpt_bigcode.py`
    GptBigCode,
    /// `modeling_llama.py`
    Llama,
    /// `modeling_mistral.py`
    Mistral,
    /// `modeling_qwen2.py`
    Qwen2,
    /// A family that came after the change, or whose older code was not read.
    Later,
}

/// Where rotary tables are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotaryPlace {
    /// In every layer, in each pass.
    Layer,
    /// Once, when the model is made: every layer keeps tables of all positions.
    LayerTables,
    /// In every layer too, whose frequencies are buffers that nothing reads: the model's tables are used.
    ModelBesideLayers,
    /// Once a pass, in the model.
    Model,
}

impl TransformersVersion {
    /// What is simulated when nothing else is said.
    pub const DEFAULT: Self = Self::new(5, 17);
    /// The newest that was measured, of which nothing differs from the default.
    pub const NEWEST: Self = Self::new(5, 23);
    /// The oldest that is simulated.
    pub const OLDEST: Self = Self::new(4, 38);
    /// Those whose steps were measured, each on cases of several families.
    pub const MEASURED: [Self; 8] = [
        Self::new(4, 38),
        Self::new(4, 44),
        Self::new(4, 46),
        Self::new(4, 48),
        Self::new(4, 51),
        Self::new(4, 57),
        Self::DEFAULT,
        Self::NEWEST,
    ];

    /// A version by its two numbers.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Whether it is older than this one.
    pub fn before(self, major: u16, minor: u16) -> bool {
        self < Self::new(major, minor)
    }

    /// Whether steps of this very version were measured.
    pub fn is_measured(self) -> bool {
        Self::MEASURED.contains(&self)
    }

    /// The loss of a causal language model.
    pub fn causal_loss(self, file: ModelingFile) -> CausalLoss {
        match file {
            _ if !self.before(4, 49) => CausalLoss::PaddedLabels,
            ModelingFile::Gpt2 | ModelingFile::GptBigCode => CausalLoss::InModel,
            _ if self.before(4, 46) => CausalLoss::UpcastInModel,
            ModelingFile::Mistral if self.before(4, 48) => CausalLoss::UpcastForLoss,
            _ => CausalLoss::ShiftedLogits,
        }
    }

    /// Whether every causal language model divides its summed loss by `num_items_in_batch` itself (`fixed_cross_entropy`); before, some leave
    /// it to the Trainer.
    pub fn divides_losses_in_models(self) -> bool {
        !self.before(4, 49)
    }

    /// Whether the Trainer multiplies a loss by the number of ranks (`average_tokens_across_devices` is on by default).
    pub fn averages_tokens_across_devices(self) -> bool {
        !self.before(5, 0)
    }

    /// Whether the model can leave out the logits of all but the last positions, as `generate` then asks it to.
    pub fn leaves_logits_out(self, file: ModelingFile) -> bool {
        match file {
            ModelingFile::Gpt2 => !self.before(4, 52),
            ModelingFile::GptBigCode => !self.before(5, 0),
            _ => !self.before(4, 45),
        }
    }

    /// How `generate` takes the last position's logits.
    pub fn next_token_logits(self) -> NextTokenLogits {
        match self {
            version if version.before(4, 42) => NextTokenLogits::View,
            version if version.before(4, 45) => NextTokenLogits::Clone,
            version if version.before(4, 48) => NextTokenLogits::UpcastOfWholeClone,
            version if version.before(4, 50) => NextTokenLogits::UpcastOfClone,
            _ => NextTokenLogits::Upcast,
        }
    }

    /// Whether the first update of a KV cache copies (`lazy_initialization`), rather than keep what it was given.
    pub fn copies_first_keys(self) -> bool {
        !self.before(4, 56)
    }

    /// Whether layers with a window forget keys (`DynamicSlidingWindowLayer`).
    pub fn forgets_keys(self) -> bool {
        !self.before(4, 56)
    }

    /// Whether GPT-2's layers keep a table of which positions see which.
    pub fn has_mask_buffers_of_gpt2(self) -> bool {
        self.before(5, 0)
    }

    /// How SDPA is called.
    pub fn sdpa(self) -> SdpaForm {
        match self {
            version if version.before(4, 48) => SdpaForm::Class,
            version if version.before(4, 54) => SdpaForm::RepeatedContiguous,
            version if version.before(4, 56) => SdpaForm::GroupedContiguous,
            _ => SdpaForm::Grouped,
        }
    }

    /// Whether keys and values are repeated for the flash-attn package too, which takes grouped heads (Mistral's class, before 4.48).
    pub fn repeats_keys_for_flash(self, file: ModelingFile) -> bool {
        file == ModelingFile::Mistral && self.before(4, 48)
    }

    /// Whether masks are made by masking_utils.py.
    pub fn has_masking_utils(self, file: ModelingFile) -> bool {
        match file {
            ModelingFile::Gpt2 | ModelingFile::GptBigCode => !self.before(4, 54),
            _ => !self.before(4, 53),
        }
    }

    /// Whether rows without an attention mask are taken as packed, whatever their position ids say: a mask is then made.
    pub fn takes_rows_as_packed(self) -> bool {
        self.before(5, 0)
    }

    /// Whether position ids are the cache's positions, rather than a sum with what was seen.
    pub fn reads_cache_position(self) -> bool {
        self.before(5, 1)
    }

    /// Whether the rotary embedding keeps a second copy of its frequencies on the device.
    pub fn keeps_original_frequencies(self) -> bool {
        !self.before(5, 0)
    }

    /// Where the rotary tables of a decoder are made.
    pub fn rotary(self, history: ModelingFile) -> RotaryPlace {
        match history {
            _ if !self.before(4, 48) => RotaryPlace::Model,
            ModelingFile::Llama if self.before(4, 43) => RotaryPlace::Layer,
            ModelingFile::Qwen2 if self.before(4, 45) => RotaryPlace::LayerTables,
            ModelingFile::Mistral if self.before(4, 42) => RotaryPlace::LayerTables,
            ModelingFile::Mistral => RotaryPlace::Layer,
            ModelingFile::Llama | ModelingFile::Qwen2 => RotaryPlace::ModelBesideLayers,
            ModelingFile::Gpt2 | ModelingFile::GptBigCode | ModelingFile::Later => RotaryPlace::Model,
        }
    }

    /// Whether `from_pretrained(device_map=...)` brings weights to the device in the order of their names (core_model_loading.py).
    pub fn loads_by_name(self) -> bool {
        !self.before(5, 0)
    }

    /// Whether `from_pretrained(device_map=...)` first allocates the model's bytes in one block (`caching_allocator_warmup`).
    pub fn warms_allocator_up(self) -> bool {
        !self.before(4, 50)
    }

    /// Whether what is wrapped round a recomputed layer runs again with it (`decoder_layer.__call__` is what is recomputed, by an
    /// `autograd.Function`: `use_reentrant=True`).
    pub fn recomputes_wrappers(self) -> bool {
        self.before(4, 52)
    }

    /// Whether gradient checkpointing recomputes GPT-BigCode's layers: from 4.54 on nothing did, until they were of the common class (5.0).
    pub fn recomputes_gpt_bigcode(self) -> bool {
        self.before(4, 54) || !self.before(5, 0)
    }

    /// Whether the experts of a mixture are a list of MLPs that run one after another (read in 4.48 and 4.51, which are equal).
    pub fn loops_over_experts(self) -> bool {
        self.before(4, 52)
    }

    /// Whether a mixture's experts are neither that nor as they are now: from 4.52 on their loop asks first which were chosen, and early
    /// versions of 5 sort otherwise.
    pub fn has_experts_between(self) -> bool {
        !self.before(4, 52) && self.before(5, 17)
    }

    /// Whether it is a transformers 4.
    pub fn is_before_5(self) -> bool {
        self.before(5, 0)
    }

    /// Whether it is newer than all that was measured.
    pub fn is_newer(self) -> bool {
        self > Self::NEWEST
    }
}

/// Why a text is no version that is simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransformersError {
    /// It does not read `major.minor`.
    #[error("`{0}` is not a version of transformers: write major.minor, like \"4.48\"")]
    NotAVersion(String),
    /// Its code was not read.
    #[error("transformers {0} is not simulated: the oldest is 4.38")]
    TooOld(TransformersVersion),
}

impl Default for TransformersVersion {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for TransformersVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for TransformersVersion {
    type Err = TransformersError;

    /// `4.48`, `4.48.1`, `4.48.0.dev0`: what follows the minor version is not read.
    fn from_str(text: &str) -> Result<Self, TransformersError> {
        let mut parts = text.trim().trim_start_matches('v').split('.');
        let mut number = || parts.next().and_then(|part| part.parse::<u16>().ok());
        let (Some(major), Some(minor)) = (number(), number()) else {
            return Err(TransformersError::NotAVersion(text.to_owned()));
        };
        let version = Self::new(major, minor);
        if version < Self::OLDEST { Err(TransformersError::TooOld(version)) } else { Ok(version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_versions_and_refuses_what_is_none() {
        let cases =
            [("4.48.1", "4.48"), ("5.17", "5.17"), (" v4.57.0.dev0 ", "4.57"), ("4.100", "4.100"), ("4.38.0", "4.38")];
        for (text, expected) in cases {
            assert_eq!(text.parse::<TransformersVersion>().unwrap().to_string(), expected);
        }
        for text in ["", "5", "latest", "4.x", "4.37.2", "0.1", "99999.1"] {
            assert!(text.parse::<TransformersVersion>().is_err(), "{text}");
        }
    }

    #[test]
    fn minor_versions_are_numbers() {
        let [old, new]: [TransformersVersion; 2] = ["4.48", "4.100"].map(|text| text.parse().unwrap());
        assert!(old < new && new.causal_loss(ModelingFile::Llama) == CausalLoss::PaddedLabels);
        assert_eq!(old.causal_loss(ModelingFile::Llama), CausalLoss::ShiftedLogits);
    }

    #[test]
    fn the_default_is_measured_and_has_every_new_form() {
        let version = TransformersVersion::DEFAULT;
        assert!(
            version.is_measured()
                && version.leaves_logits_out(ModelingFile::Llama)
                && version.leaves_logits_out(ModelingFile::Gpt2)
        );
        assert_eq!(
            (version.sdpa(), version.causal_loss(ModelingFile::Gpt2)),
            (SdpaForm::Grouped, CausalLoss::PaddedLabels)
        );
        assert_eq!(version.rotary(ModelingFile::Mistral), RotaryPlace::Model);
        assert!(!version.has_mask_buffers_of_gpt2() && !version.reads_cache_position());
    }
}
