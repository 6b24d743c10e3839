//! What a model type is built by: one of the language models (`model::family`), the decoder that stands
//! in for others, or a model with a training loop of its own. What else is known of a model type is a row of
//! [`model_type`](crate::model_type).

mod activations;
mod class_head;
mod contrastive;
mod diffusion;
mod generic;
mod hrm;
mod seq2seq;
mod vision;

use std::rc::Rc;

use crate::building::{BuildError, Builder};
use crate::job::{Attention, JobError, JobSpec, ModelSpec};
use crate::model::family::agi2::{self, Agi2Model};
use crate::model::family::{BuildLanguageModel, LANGUAGE_MODELS, Model, RunOptions, TowerConfig};
use crate::model::hrm::ActLossHead;
use crate::model_type::{AGI2, known_model_types};

pub(crate) use activations::bound_activations;
pub(crate) use diffusion::{
    AutoencoderKl, Columns, Denoiser, Embedded, FluxCall, FluxTransformer, Part, Pipeline, Sd3Transformer,
    TextEncoders, UNetCall,
};
pub use generic::{Allowance, generic_allowance};

/// Builds a model on the device, by what runs it.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// A language model, for every task of one.
    LanguageModel(BuildLanguageModel),
    /// The reasoning model with its loss head, for `step/hrm.rs`.
    Hrm(fn(&JobSpec, &Builder) -> Result<ActLossHead, BuildError>),
    /// A denoiser of diffusers, for `step/diffusion`.
    Denoiser(fn(&ModelSpec, &Builder, Attention) -> Result<Denoiser, BuildError>),
    /// AGI2's model, for `step/agi2.rs`.
    Agi2(fn(&JobSpec, &Builder) -> Result<Agi2Model, BuildError>),
}

/// A family: the `model_type`s it accepts and how it is built.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// Hugging Face's `model_type`s, each with its row in [`model_type`](crate::model_type).
    pub model_types: &'static [&'static str],
    pub build: Build,
}

impl Family {
    /// Builds a language model.
    ///
    /// # Errors
    /// When the config is not one that it can be built from, or the family has a program of its own.
    pub(crate) fn build_language_model(
        &self,
        model: &ModelSpec,
        at: &Builder,
        options: &RunOptions,
    ) -> Result<Box<dyn Model>, BuildError> {
        match self.build {
            Build::LanguageModel(build) => match vision::tower_of(model)? {
                None => class_head::build_with_head(build, model, at, options),
                Some(tower) => {
                    let build = vision::language_model_of(model).unwrap_or(build);
                    let watched = Rc::new(vision::Watched::new(tower));
                    let tower: Rc<dyn TowerConfig> = Rc::clone(&watched) as _;
                    let options = RunOptions { tower: Some(tower), ..options.clone() };
                    let built = class_head::build_with_head(build, model, at, &options)?;
                    watched.check(model)?;
                    Ok(built)
                }
            },
            Build::Hrm(_) | Build::Agi2(_) | Build::Denoiser(_) => {
                let problem = format!("`{}` runs in its own training loop only", model.model_type);
                Err(JobError::new(problem).hint("choose a language model of transformers").into())
            }
        }
    }
}

/// The families with a training loop of their own. AGI2's configs have no `model_type`.
const OWN_LOOPS: &[Family] = &[Family { model_types: &[AGI2], build: Build::Agi2(build_agi2) }, hrm::FAMILY];

fn build_agi2(job: &JobSpec, at: &Builder) -> Result<Agi2Model, BuildError> {
    bound_activations(job)?;
    let options = RunOptions { attention: job.attention, mode: at.mode(), frozen_base: false, tower: None };
    agi2::build(&job.model.config, job.seq_len, at, &options)
}

/// Language models, encoder-decoders and models of images and their texts among them, then those with a loop of their own.
fn families() -> impl Iterator<Item = Family> {
    let language_model = |family: &crate::model::family::Family| Family {
        model_types: family.model_types,
        build: Build::LanguageModel(family.build),
    };
    let own_loops = OWN_LOOPS.iter().copied().chain(diffusion::FAMILIES);
    own_loops.chain(LANGUAGE_MODELS.iter().chain(seq2seq::FAMILIES).chain(contrastive::FAMILIES).map(language_model))
}

/// The family of a `model_type`.
///
/// # Errors
/// When no family accepts it; the error lists those that are known.
pub(crate) fn find_family(model_type: &str) -> Result<Family, BuildError> {
    if generic::stands_in(model_type) {
        return Ok(generic::FAMILY);
    }
    families().find(|family| family.model_types.contains(&model_type)).ok_or_else(|| BuildError::UnknownModelType {
        model_type: model_type.to_owned(),
        known: known_model_types().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::building::Mode;
    use crate::dtype::DType;
    use crate::gpu::Device;
    use crate::job::{Beside, CheckpointPolicy, Fields, Preset, from_case};
    use crate::model_type::{ConfigWords, facts, language_model_types};
    use crate::tensor::Context;

    fn puzzle() -> JobSpec {
        from_case(&json!({"kind": "hrm"})).unwrap()
    }

    /// Parameters of a model, or why it cannot be built.
    fn parameters(model: &ModelSpec) -> Result<u64, BuildError> {
        let context = Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 });
        let mode = Mode::new(true, CheckpointPolicy::Off);
        let builder = Builder::new(&context, DType::Bfloat16, None, mode);
        let family = find_family(&model.model_type)?;
        if let Build::Hrm(build) = family.build {
            build(&JobSpec { model: model.clone(), micro_batch_size: 1, seq_len: 1, ..puzzle() }, &builder)?;
            return Ok(builder.parameter_count());
        }
        if let Build::Denoiser(build) = family.build {
            build(model, &builder, Attention::Sdpa)?;
            return Ok(builder.parameter_count());
        }
        let options = RunOptions { attention: Attention::Sdpa, mode: builder.mode(), frozen_base: false, tower: None };
        family.build_language_model(model, &builder, &options)?;
        Ok(builder.parameter_count())
    }

    fn with_config(model_type: &str, config: &Value) -> Result<u64, BuildError> {
        let config = Fields(config.as_object().unwrap().clone());
        parameters(&ModelSpec {
            name: model_type.to_owned(),
            model_type: model_type.to_owned(),
            config,
            beside: Beside::default(),
        })
    }

    /// Published in fp8 alone, which is not simulated, or with a `config.json` that nobody here could read.
    const WITHOUT_PRESET: [&str; 2] = ["minimax_m2", "mistral4"];

    #[test]
    fn published_models_have_their_published_parameters() {
        let mut met = Vec::new();
        for preset in Preset::all() {
            let model = preset.model().unwrap().spec;
            assert_eq!(parameters(&model), Ok(preset.parameters), "{}", preset.name);
            met.push(model.model_type);
        }
        for family in families().filter(|family| !matches!(family.build, Build::Agi2(_))) {
            assert!(
                family
                    .model_types
                    .iter()
                    .all(|name| WITHOUT_PRESET.contains(name) || met.iter().any(|met| met == name)),
                "{:?}",
                family.model_types
            );
        }
    }

    #[test]
    fn impossible_reasoning_models_name_their_key() {
        let cases = [
            (json!({"vocab_size": null}), "vocab_size"),
            (json!({"vocab_size": 1_u64 << 40}), "vocab_size"),
            (json!({"hidden_size": 1_u64 << 31, "num_heads": 1_u64 << 24, "expansion": 0.1}), "hidden_size"),
            (json!({"num_heads": 12}), "num_heads"),
            (json!({"num_heads": 1}), "num_heads"),
            (json!({"expansion": 0.0}), "expansion"),
            (json!({"expansion": 1e9}), "expansion"),
            (json!({"expansion": "4"}), "expansion"),
            (json!({"H_layers": 5000}), "H_layers"),
            (json!({"L_cycles": 1024, "L_layers": 512}), "L_cycles"),
            (json!({"puzzle_emb_ndim": -1}), "puzzle_emb_ndim"),
            (json!({"num_puzzle_identifiers": 1_u64 << 31, "puzzle_emb_ndim": 1_u64 << 31}), "num_puzzle_identifiers"),
            (json!({"halt_max_steps": 0}), "halt_max_steps"),
            (json!({"pos_encodings": "alibi"}), "pos_encodings"),
            (json!({"loss_type": "mse"}), "loss_type"),
            (json!({"forward_dtype": "float32"}), "forward_dtype"),
        ];
        for (changes, key) in cases {
            let mut config = json!({"vocab_size": 11});
            config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let error = with_config("hrm", &config).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{changes}: {error}");
        }
        assert_eq!(with_config("hrm", &json!({"vocab_size": 11})), Ok(27_275_266));
        assert_eq!(with_config("hrm", &json!({"vocab_size": 11, "puzzle_emb_ndim": 0})), Ok(27_275_266));
    }

    #[test]
    fn every_row_has_one_family_and_every_family_a_row() {
        let mut names: Vec<_> = families().flat_map(|family| family.model_types.iter().copied()).collect();
        let mut rows = known_model_types();
        names.sort_unstable();
        rows.sort_unstable();
        assert_eq!(names, rows);
        for family in families() {
            let is_language_model = matches!(family.build, Build::LanguageModel(_));
            for name in family.model_types {
                assert_eq!(facts(name).in_transformers, is_language_model, "{name}");
                assert!(!generic::stands_in(name), "{name} is stood in for too");
            }
        }
    }

    #[test]
    fn the_keys_of_a_row_are_keys_that_its_family_reads() {
        for model_type in language_model_types() {
            let facts = facts(model_type);
            for key in [facts.layers_key, facts.heads_key] {
                let error = with_config(model_type, &json!({"vocab_size": 100, key: 0})).unwrap_err().to_string();
                assert!(error.contains(key), "{model_type} does not read `{key}`: {error}");
            }
        }
    }

    /// Every family's tiny model, whose defaults are replaced so that tests build it at once.
    fn tiny(model_type: &str) -> Value {
        let mut config = json!({"vocab_size": 100});
        config[facts(model_type).layers_key] = json!(2);
        config
    }

    #[test]
    fn impossible_configs_name_their_key() {
        for model_type in language_model_types() {
            let facts = facts(model_type);
            let width_key = match facts.config {
                ConfigWords::Gpt2 => "n_embd",
                ConfigWords::DistilBert => "dim",
                ConfigWords::EncoderDecoder => "d_model",
                ConfigWords::Llama | ConfigWords::Hrm | ConfigWords::Diffusers => "hidden_size",
            };
            let names = [facts.layers_key, facts.heads_key, width_key];
            let cases = [
                (names[0], json!(0)),
                (names[0], json!(5000)),
                (names[1], json!(7)),
                (names[2], json!(-4)),
                ("vocab_size", json!(1_u64 << 40)),
            ];
            for (key, value) in cases {
                // T5's heads are as wide as the config says, whatever their number is; any number of states will do.
                if ["num_heads", "state_size"].contains(&key) {
                    continue;
                }
                let mut config = tiny(model_type);
                config[key] = value.clone();
                // A head dimension of its own would make any number of heads possible.
                if model_type.starts_with("gemma") || model_type == "qwen3" {
                    config["num_key_value_heads"] = json!(4);
                }
                let error = with_config(model_type, &config).unwrap_err().to_string();
                assert!(
                    error.contains(key) || error.contains("num_key_value_heads"),
                    "{model_type} {key} {value}: {error}"
                );
            }
        }
    }

    #[test]
    fn sizes_whose_products_overflow_are_refused() {
        let huge = json!(1_u64 << 31);
        for model_type in language_model_types() {
            let mut config = tiny(model_type);
            if facts(model_type).config == ConfigWords::Gpt2 {
                config["n_embd"] = huge.clone();
                config["n_head"] = json!(1);
            } else if facts(model_type).config == ConfigWords::EncoderDecoder {
                config["d_model"] = huge.clone();
                config["d_ff"] = huge.clone();
                config["encoder_attention_heads"] = json!(1);
                config["decoder_attention_heads"] = json!(1);
            } else {
                config["hidden_size"] = huge.clone();
                config["intermediate_size"] = huge.clone();
                config["num_attention_heads"] = json!(2);
                config["num_key_value_heads"] = json!(2);
                // Mamba-2's heads make up twice the width.
                config["num_heads"] = json!(1_u64 << 26);
            }
            let error = with_config(model_type, &config).unwrap_err().to_string();
            assert!(error.contains("at most 2^50"), "{model_type}: {error}");
        }
    }

    #[test]
    fn impossible_options_of_one_family_name_their_key() {
        let cases = [
            ("llama", json!({"head_dim": 3}), "head_dim"),
            ("llama", json!({"num_key_value_heads": 5}), "num_key_value_heads"),
            ("llama", json!({"hidden_act": "nothing"}), "hidden_act"),
            ("mistral", json!({"sliding_window": 0}), "sliding_window"),
            ("qwen2", json!({"layer_types": ["full_attention"]}), "layer_types"),
            ("qwen3", json!({"layer_types": ["full_attention", "sliding_attention"]}), "sliding_window"),
            ("gemma2", json!({"layer_types": ["full_attention", "other"]}), "layer_types"),
            ("gemma3_text", json!({"sliding_window": null}), "sliding_window"),
            ("gemma3_text", json!({"use_bidirectional_attention": true}), "use_bidirectional_attention"),
            ("phi3", json!({"partial_rotary_factor": 2.0}), "partial_rotary_factor"),
            ("phi3", json!({"partial_rotary_factor": 0.001}), "partial_rotary_factor"),
            ("bert", json!({"is_decoder": true}), "is_decoder"),
            ("bert", json!({"add_cross_attention": true}), "add_cross_attention"),
            ("electra", json!({"add_cross_attention": true}), "add_cross_attention"),
            ("roberta", json!({"add_cross_attention": true}), "add_cross_attention"),
            ("gpt2", json!({"add_cross_attention": true}), "add_cross_attention"),
            ("gpt_bigcode", json!({"add_cross_attention": true}), "add_cross_attention"),
            ("bert", json!({"hidden_dropout_prob": 1.0}), "hidden_dropout_prob"),
        ];
        for (model_type, changes, key) in cases {
            let mut config = tiny(model_type);
            config.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let error = with_config(model_type, &config).unwrap_err().to_string();
            assert!(error.contains(&format!("`{key}`")), "{model_type} {changes}: {error}");
        }
    }
}
