//! What is known of each model type beside how it is built: a row a type, data only, below the job that asks.
//!
//! A row in `rows.rs` for each type that a family mirrors, one in `stand_ins.rs` for each that the generic decoder stands
//! in for and that differs from `ModelType::DECODER` in anything but its layers.

mod likes;
mod rows;
mod stand_ins;
mod vision;

use tonnage_tensor::transformers::TransformersVersion;

use rows::ROWS;
use stand_ins::STAND_INS;
pub(crate) use vision::{
    ImageForm, ImageTokens, default_tower, has_token_types, takes_item_count, text_type, vision_form, with_towers,
};

pub use rows::AGI2;
pub use rows::HRM;
pub(crate) use rows::{FLUX, SD3, UNET};
#[cfg(any(test, feature = "cases"))]
pub(crate) use rows::{GPT2, QWEN2};

/// A version of transformers, major and minor.
pub(crate) type Version = (u16, u16);

/// In place of a first version: none has it.
pub(crate) const NEVER: Version = (u16::MAX, u16::MAX);

/// What is known of one `model_type`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelType {
    /// Hugging Face's `model_type`.
    pub name: &'static str,
    /// Other `model_type`s with the same modeling file.
    pub aliases: &'static [&'static str],
    pub kind: ModelKind,
    /// Whether its code is in transformers, rather than its trainer's own.
    pub in_transformers: bool,
    /// Whose names the fields of its config have.
    pub config: ConfigWords,
    /// Keys of the number of layers and of attention heads in its config.
    pub layers_key: &'static str,
    pub heads_key: &'static str,
    /// Keys of the positions that its config may have, the first one found holds.
    pub positions_keys: &'static [&'static str],
    /// Positions by its config class, where rows beyond them stop.
    pub default_positions: Option<u64>,
    pub beyond_positions: BeyondPositions,
    /// Whether positions are counted from the one behind the padding token's, so that the table has as many fewer for rows.
    pub padding_positions: bool,
    /// The images that its config class has by default, where its rows are images.
    pub image: Option<ImageSizes>,
    /// The images that its tower of images has by default, where its rows are images and their texts.
    pub pair_image: Option<ImageSizes>,
    /// Whether its rows are recordings: frames of so many frequencies.
    pub hears: bool,
    /// Whether its decoder caches whatever a trainer says, as it has a config of its own.
    pub keeps_cache: bool,
    /// Whether its class has what `DataCollatorForSeq2Seq` makes the decoder's tokens by.
    pub prepares_targets: bool,
    /// Key of the tokens of a row where the model was made for one length.
    pub row_key: Option<&'static str>,
    /// The dropout probabilities in its config class (transformers 5.17).
    pub dropout_keys: &'static [&'static str],
    /// peft's target modules (0.18, `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`); empty where it knows none.
    pub lora_targets: &'static [&'static str],
    pub liger: Liger,
    pub foak: Foak,
    /// Whether its layers are simulated with the flash-attn package.
    pub flash_attention: bool,
    /// Whether its config has a head dimension, so that heads can be divided over ranks.
    pub divides_heads: bool,
    /// Whether transformers divides its layers over ranks as Llama's or Qwen3's (`base_model_tp_plan`), and that was measured.
    pub has_tensor_plan: bool,
    /// Whether stages of it were measured under PyTorch's schedules of pipelines.
    pub has_stages: bool,
    /// Whether it was measured on ranks that share the tokens of a row.
    pub shares_tokens: bool,
    /// Whether its layers have experts, whose weights are parameters of three dimensions.
    pub has_experts: bool,
    /// What its layers are where they were measured with whole weights alone: not divided, quantized or recomputed by `use_reentrant`.
    pub kept_whole: Option<&'static str>,
    /// Which of its layers keep a state in the place of keys, for which packages have kernels of their own.
    pub state: StateLayers,
    /// Whether `tonnage train` refuses it: what it computes was not held against transformers.
    pub only_simulated: bool,
    /// Parameters of the encoders that its published pipelines have beside it: of images and of prompts.
    pub encoder_parameters: u64,
    /// Whether its config class sets `bos_token_id` by default.
    pub has_begin_token: bool,
    /// Whether its config class sets `pad_token_id` by default.
    pub has_padding_token: bool,
    /// Whether embeddings are trained with its bare model as that was measured.
    pub embeds: bool,
    /// Whether its tokenizer says of which text each token is.
    pub token_types: bool,
    /// Heads for classes of a decoder; those of encoders are part of their families.
    pub class_heads: ClassHeads,
    /// The first version in which it is simulated, if that is not the oldest: that which it came with, or for Llama the
    /// first without masks of all positions as a buffer.
    pub since: Option<Version>,
    /// The first version in which it has SDPA, if not all have.
    pub sdpa_since: Option<Version>,
    /// The first version in which recomputed layers hand no keys on in training, if older ones do as the config says (`use_cache`).
    pub drops_keys_since: Option<Version>,
    /// The first version whose code of its layers was read; of older ones it is taken to be the newest.
    pub layers_since: Version,
}

/// What a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelKind {
    /// The next token.
    Decoder,
    MaskedLm,
    /// The next token of another row than the one that it reads.
    EncoderDecoder,
    /// The class of an image.
    Image,
    /// Which text of a batch is that of an image.
    ImageText,
    /// The answer of a puzzle.
    Puzzle,
    /// What noise was added to latents.
    Denoiser,
}

impl ModelKind {
    /// What its models are trained or run on, as the hint of who asked for another task.
    pub(crate) const fn task_hint(self) -> &'static str {
        match self {
            Self::Decoder => "set task = \"causal_lm\"",
            Self::MaskedLm => {
                "set task = \"masked_lm\", \"sequence_classification\", \"token_classification\" or \"inference_forward\""
            }
            Self::EncoderDecoder => "set task = \"seq2seq_lm\"",
            Self::Image => "set task = \"image_classification\" or \"inference_forward\"",
            Self::ImageText => "set task = \"contrastive\"",
            Self::Puzzle => "set task = \"hrm\"",
            Self::Denoiser => "set task = \"diffusion\"",
        }
    }
}

/// Sides of square images and of their patches, in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageSizes {
    pub image: u64,
    pub patch: u64,
}

/// Whose names the fields of a config have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigWords {
    /// Llama's and most others'.
    Llama,
    /// GPT-2's: `n_layer`, `n_embd`.
    Gpt2,
    /// DistilBERT's: `n_layers`, `dim`.
    DistilBert,
    /// Those of encoder-decoders: `d_model`, `encoder_layers`, T5's `num_layers`.
    EncoderDecoder,
    /// The hierarchical reasoning model's: `H_cycles`, `expansion`.
    Hrm,
    /// Those of diffusers' classes: `attention_head_dim`, `in_channels`.
    Diffusers,
}

/// Layers that keep a state in the place of keys, by what computes them where no package does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateLayers {
    /// It has none.
    None,
    /// Linear attention by the gated delta rule.
    DeltaRule,
    /// A convolution over the last few tokens.
    Convolution,
    /// State spaces as Mamba and Mamba-2 have them.
    StateSpace,
}

/// What a row longer than the positions of the config does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeyondPositions {
    /// Runs: positions are computed.
    Runs,
    /// Stops: positions are rows of a table.
    Stops,
    /// Nothing: the trainer makes as many positions as a row has tokens.
    FollowRows,
}

/// Which heads for classes a decoder's modeling file has (transformers 5.17).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassHeads {
    /// `ForSequenceClassification`: all are alike.
    pub rows: bool,
    /// `ForTokenClassification`
    pub tokens: Option<TokenHead>,
}

/// How heads for classes of tokens differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenHead {
    /// What the linear layer is called.
    pub name: &'static str,
    /// Keys of the dropout before it, the first one found holds.
    pub dropout_keys: &'static [&'static str],
    /// The dropout where no key says it.
    pub dropout: f64,
    /// Whether logits are cast to fp32 for the loss.
    pub float_loss: bool,
}

impl ClassHeads {
    /// No class of either kind.
    pub(crate) const NONE: Self = Self { rows: false, tokens: None };
    /// Classes of rows alone.
    pub(crate) const ROWS: Self = Self { rows: true, tokens: None };
    /// Both, as `GenericForSequenceClassification` and `GenericForTokenClassification` are.
    pub(crate) const GENERIC: Self = Self { rows: true, tokens: Some(TokenHead::GENERIC) };
}

impl TokenHead {
    /// `GenericForTokenClassification`
    pub(crate) const GENERIC: Self =
        Self { name: "score", dropout_keys: &["classifier_dropout", "hidden_dropout"], dropout: 0.1, float_loss: true };
}

/// What Liger replaces (liger-kernel 0.8.5, transformers/monkey_patch.py, `MODEL_TYPE_TO_APPLY_LIGER_FN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liger {
    /// Head and loss, and norms, rotary embeddings and MLPs that are simulated with its kernels.
    Whole,
    /// Layers that are not simulated with its kernels; head and loss, if `fuses_loss`.
    LayersNotKnown { fuses_loss: bool },
    /// It has nothing for the model: transformers says so in its log and trains without.
    Untouched,
}

/// What fms-acceleration replaces (plugins/fused-ops-and-kernels at 876e2ed, models).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foak {
    /// Norms, rotary embeddings, either loss, and adapters' products.
    Whole,
    /// The cross-entropy alone: there are no rules for its layers.
    CrossEntropy,
    /// Nothing, or what is not simulated.
    Untouched,
}

impl Liger {
    /// Whether it fuses head and loss.
    pub(crate) const fn fuses_loss(self) -> bool {
        matches!(self, Self::Whole | Self::LayersNotKnown { fuses_loss: true })
    }
}

impl ModelType {
    /// Whether positions are rows of a table: then it matters at which a row's first token stands.
    pub(crate) fn has_position_table(&self) -> bool {
        self.beyond_positions == BeyondPositions::Stops
    }

    /// The first version of transformers in which it is simulated.
    pub(crate) fn first_version(&self) -> TransformersVersion {
        self.since.map_or(TransformersVersion::OLDEST, |(major, minor)| TransformersVersion::new(major, minor))
    }

    /// Whether it has SDPA; before, only its own matmul and softmax.
    pub(crate) fn has_sdpa_in(&self, version: TransformersVersion) -> bool {
        self.sdpa_since.is_none_or(|(major, minor)| !version.before(major, minor))
    }

    /// Whether its recomputed layers hand their keys on in training, which live as long as the model's output.
    pub(crate) fn hands_keys_on_in(&self, version: TransformersVersion) -> bool {
        self.drops_keys_since.is_some_and(|(major, minor)| version.before(major, minor))
    }

    /// Whether the older code of its layers was read: of others it is taken to be the newest.
    pub(crate) fn has_layers_of(&self, version: TransformersVersion) -> bool {
        let (major, minor) = self.layers_since;
        !version.before(major, minor)
    }

    /// A decoder of transformers like Llama of which nothing else is known.
    pub(crate) const DECODER: Self = Self {
        name: "",
        aliases: &[],
        kind: ModelKind::Decoder,
        in_transformers: true,
        config: ConfigWords::Llama,
        layers_key: "num_hidden_layers",
        heads_key: "num_attention_heads",
        positions_keys: &["n_positions", "max_position_embeddings"],
        default_positions: None,
        beyond_positions: BeyondPositions::Runs,
        padding_positions: false,
        image: None,
        pair_image: None,
        hears: false,
        keeps_cache: false,
        prepares_targets: false,
        row_key: None,
        dropout_keys: &["attention_dropout"],
        lora_targets: &[],
        liger: Liger::Untouched,
        foak: Foak::Untouched,
        flash_attention: false,
        divides_heads: true,
        has_tensor_plan: false,
        has_stages: false,
        shares_tokens: false,
        has_experts: false,
        kept_whole: None,
        state: StateLayers::None,
        only_simulated: false,
        encoder_parameters: 0,
        has_begin_token: true,
        has_padding_token: false,
        embeds: false,
        token_types: false,
        class_heads: ClassHeads::NONE,
        since: None,
        sdpa_since: None,
        drops_keys_since: None,
        layers_since: (5, 17),
    };
}

/// The row of the model type `name`; `ModelType::DECODER` for one that has none.
pub(crate) fn facts(name: &str) -> &'static ModelType {
    const UNLISTED: &ModelType = &ModelType::DECODER;
    ROWS.iter().chain(STAND_INS).find(|row| row.name == name).unwrap_or(UNLISTED)
}

/// The model type that `name` means: its own, or that of another with the same modeling file.
pub(crate) fn canonical_name(name: &str) -> &str {
    ROWS.iter().find(|row| row.aliases.contains(&name)).map_or(name, |row| row.name)
}

/// Whether a family mirrors the model type `name`.
pub(crate) fn is_mirrored(name: &str) -> bool {
    ROWS.iter().any(|row| row.name == name)
}

/// Every `model_type` that a family mirrors.
pub fn known_model_types() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// Every `model_type` that a family of language models mirrors.
pub fn language_model_types() -> Vec<&'static str> {
    let reads_text = |row: &&ModelType| !matches!(row.kind, ModelKind::Image | ModelKind::ImageText);
    ROWS.iter().filter(|row| row.in_transformers).filter(reads_text).map(|row| row.name).collect()
}

/// Whether a model type is simulated alone, and not trained here.
pub fn is_only_simulated(name: &str) -> bool {
    facts(name).only_simulated
}

/// The model types that are simulated with fms-acceleration's kernels.
pub(crate) fn with_foak() -> Vec<&'static str> {
    ROWS.iter().filter(|row| row.foak != Foak::Untouched).map(|row| row.name).collect()
}

/// The model types whose embeddings are simulated.
pub(crate) fn embedding_models() -> Vec<&'static str> {
    ROWS.iter().filter(|row| row.embeds).map(|row| row.name).collect()
}

/// The model types whose layers are simulated with Liger's kernels.
pub(crate) fn with_liger_layers() -> Vec<&'static str> {
    ROWS.iter().filter(|row| row.liger == Liger::Whole).map(|row| row.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_row() {
        let mut names: Vec<_> = ROWS
            .iter()
            .chain(STAND_INS)
            .flat_map(|row| [row.name].into_iter().chain(row.aliases.iter().copied()))
            .collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(!names.contains(&""));
    }

    #[test]
    fn a_row_does_not_contradict_itself() {
        for row in ROWS.iter().chain(STAND_INS) {
            let stops = row.beyond_positions == BeyondPositions::Stops;
            assert!(row.default_positions.is_none() || stops, "{}: a default that nobody reads", row.name);
            assert!(row.since <= Some(row.layers_since), "{}: its layers were read before it was there", row.name);
            assert!(!row.flash_attention || row.in_transformers, "{}", row.name);
            assert_eq!(canonical_name(row.name), row.name);
            assert!(row.aliases.iter().all(|alias| canonical_name(alias) == row.name));
        }
    }

    #[test]
    fn classes_are_those_of_decoders_with_a_family() {
        for row in ROWS.iter().chain(STAND_INS).filter(|row| row.class_heads.rows) {
            assert!(row.kind == ModelKind::Decoder && is_mirrored(row.name), "{}", row.name);
        }
        assert!(ROWS.iter().all(|row| row.class_heads.rows || row.class_heads.tokens.is_none()));
    }

    #[test]
    fn a_stand_in_says_something() {
        let unlisted = ModelType::DECODER;
        for row in STAND_INS {
            assert!(!is_mirrored(row.name));
            assert_ne!(format!("{row:?}"), format!("{:?}", ModelType { name: row.name, ..unlisted }), "{}", row.name);
        }
    }
}
