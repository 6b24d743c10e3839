//! The text encoders of published pipelines: CLIP's of ViT-L (ViT-H for Stable Diffusion 2), for SDXL and SD3 also ViT-bigG's, for SD3
//! and Flux also T5-XXL's encoder. How each script makes embeddings of tokens.

use std::rc::Rc;

use serde_json::Value;

use crate::building::{BuildError, Builder};
use crate::dtype::DType;
use crate::family::seq2seq::T5Encoder;
use crate::job::{Attention, Fields, JobError, keys};
use crate::model::family::RunOptions;
use crate::op::{cat, full};
use crate::tensor::{Context, Tensor};

use super::Columns;
use super::clip_text::{CLIP_POSITIONS, ClipTextModel, VIT_G, VIT_H, VIT_L};
use super::pipeline::Pipeline;

/// Numbers of a token of T5-XXL.
const T5_WIDTH: u64 = 4096;

/// What a prompt is embedded as.
pub(crate) struct Embedded {
    pub prompt_embeds: Tensor,
    pub pooled: Option<Tensor>,
    /// Positions of a prompt's tokens, which Flux has.
    pub text_ids: Option<Tensor>,
}

pub(crate) struct TextEncoders {
    pipeline: Pipeline,
    clips: Vec<ClipTextModel>,
    t5: Option<T5Encoder>,
    dtype: DType,
    widths: (u64, Option<u64>),
}

impl TextEncoders {
    /// Those of a pipeline whose denoiser takes so many numbers of a token, each with a builder of its own.
    pub(crate) fn build(
        pipeline: Pipeline,
        (wanted, attention, dtype): (u64, Attention, DType),
        builder: impl Fn(&str) -> Builder,
    ) -> Result<Self, BuildError> {
        let small = if wanted == VIT_H.width { VIT_H } else { VIT_L };
        let clip = |name: &str, sizes, projects| ClipTextModel::new(&builder(name), sizes, projects, attention);
        let (first, second, third) = ("text_encoder", "text_encoder_2", "text_encoder_3");
        let (clips, t5, widths) = match pipeline {
            Pipeline::Sd => (vec![clip(first, small, false)], None, (small.width, None)),
            Pipeline::Sdxl => {
                let clips = vec![clip(first, VIT_L, false), clip(second, VIT_G, true)];
                (clips, None, (VIT_L.width + VIT_G.width, Some(VIT_G.width)))
            }
            Pipeline::Sd3 => {
                let clips = vec![clip(first, VIT_L, true), clip(second, VIT_G, true)];
                (clips, Some(build_t5(&builder(third), attention)?), (T5_WIDTH, Some(VIT_L.width + VIT_G.width)))
            }
            Pipeline::Flux => {
                let clips = vec![clip(first, VIT_L, false)];
                (clips, Some(build_t5(&builder(second), attention)?), (T5_WIDTH, Some(VIT_L.width)))
            }
        };
        Ok(Self { pipeline, clips, t5, dtype, widths })
    }

    /// Whether they make what the denoiser takes, of prompts of so many tokens.
    pub(crate) fn check(&self, columns: &Columns, tokens: u64) -> Result<(), JobError> {
        if (columns.prompt, columns.pooled) != self.widths {
            let problem = format!(
                "the published text encoders make {} numbers of a token, the denoiser takes {}: other encoders in the step are not simulated",
                self.widths.0, columns.prompt
            );
            let error = JobError::new(problem).about(&[keys::CACHE_TEXT_EMBEDDINGS]);
            return Err(error.hint("set it to true: embeddings of prompts are then computed before").or_rehearse());
        }
        let (least, most) = match self.pipeline {
            Pipeline::Sd | Pipeline::Sdxl => (1, CLIP_POSITIONS),
            Pipeline::Sd3 => (CLIP_POSITIONS + 1, u64::MAX),
            Pipeline::Flux => (1, u64::MAX),
        };
        if (least..=most).contains(&tokens) {
            return Ok(());
        }
        let problem = match self.pipeline {
            Pipeline::Sd3 => format!("{tokens} tokens of a prompt are too few: the first {CLIP_POSITIONS} are CLIP's"),
            _ => format!("CLIP embeds no more than {CLIP_POSITIONS} tokens of a prompt, found {tokens}"),
        };
        let hint = format!("set it to {}", tokens.clamp(least, most));
        Err(JobError::new(problem).about(&[keys::PROMPT_LEN]).hint(hint))
    }

    /// How many lists of tokens come with a batch: the scripts of transformers tokenize in the step.
    pub(crate) fn token_lists(&self) -> usize {
        if self.pipeline.is_flow() { 0 } else { self.clips.len() }
    }

    /// What the script makes of `rows` prompts of so many tokens, whose ids came with the batch or come now.
    pub(crate) fn encode(&self, context: &Rc<Context>, ids: &[Tensor], [rows, tokens]: [u64; 2]) -> Embedded {
        let _no_grad = context.set_grad_enabled(false);
        let load = |tokens| full(context, "_to_copy.default", &[rows, tokens], DType::Int64);
        match (self.pipeline, &self.t5) {
            (Pipeline::Flux, Some(t5)) => {
                let pooled = {
                    let ids = load(CLIP_POSITIONS);
                    let output = self.clips[0].forward(&ids, false);
                    drop(ids);
                    output.pooled
                };
                let pooled = repeat(pooled);
                let prompt_embeds = encode_t5(t5, load(tokens));
                let text_ids = full(context, "_to_copy.default", &[tokens, 3], self.dtype);
                Embedded { prompt_embeds, pooled: Some(pooled), text_ids: Some(text_ids) }
            }
            (Pipeline::Sd3, Some(t5)) => self.join_sd3(t5, load, tokens),
            (Pipeline::Sdxl, _) => self.encode_sdxl(ids),
            _ => {
                let output = self.clips[0].forward(&ids[0], false);
                Embedded { prompt_embeds: output.first, pooled: None, text_ids: None }
            }
        }
    }

    fn encode_sdxl(&self, ids: &[Tensor]) -> Embedded {
        let (mut list, mut pooled) = (Vec::new(), None);
        for (clip, ids) in self.clips.iter().zip(ids) {
            let output = clip.forward(ids, true);
            pooled = Some(output.first.clone());
            list.push(output.into_penultimate());
        }
        Embedded { prompt_embeds: cat(&list.iter().collect::<Vec<_>>(), 2), pooled, text_ids: None }
    }

    fn join_sd3(&self, t5: &T5Encoder, load: impl Fn(u64) -> Tensor, tokens: u64) -> Embedded {
        let (mut list, mut pooled_list) = (Vec::new(), Vec::new());
        for clip in &self.clips {
            let output = {
                let ids = load(CLIP_POSITIONS);
                clip.forward(&ids, true)
            };
            pooled_list.push(output.first.clone());
            list.push(repeat(output.into_penultimate()));
        }
        let joined = cat(&list.iter().collect::<Vec<_>>(), 2);
        let pooled = cat(&pooled_list.iter().collect::<Vec<_>>(), 1);
        let of_t5 = encode_t5(t5, load(tokens - CLIP_POSITIONS));
        let padded = joined.pad_last(T5_WIDTH);
        drop(joined);
        Embedded { prompt_embeds: cat(&[&padded, &of_t5], 1), pooled: Some(pooled), text_ids: None }
    }
}

/// The encoder of google/t5-v1_1-xxl, by its config.json.
fn build_t5(at: &Builder, attention: Attention) -> Result<T5Encoder, BuildError> {
    let config: [(&str, Value); 8] = [
        ("vocab_size", 32128.into()),
        ("d_model", T5_WIDTH.into()),
        ("d_kv", 64.into()),
        ("d_ff", 10240.into()),
        ("num_layers", 24.into()),
        ("num_heads", 64.into()),
        ("feed_forward_proj", "gated-gelu".into()),
        ("tie_word_embeddings", false.into()),
    ];
    let fields = Fields(config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    let options = RunOptions { attention, mode: at.mode(), frozen_base: false, tower: None };
    Ok(T5Encoder::build(&fields, at, &options)?)
}

fn encode_t5(t5: &T5Encoder, ids: Tensor) -> Tensor {
    let prompt_embeds = t5.forward(&ids);
    drop(ids);
    repeat(prompt_embeds)
}

/// `repeat(1, ...)`, which copies.
fn repeat(embeds: Tensor) -> Tensor {
    let copy = embeds.map("repeat.default", embeds.dtype());
    drop(embeds);
    copy
}
