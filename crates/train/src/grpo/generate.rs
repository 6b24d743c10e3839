//! `model.generate` of whole batches over a KV cache, with the statements of transformers 5.17 (generation/utils.py, `_sample`): a prefill,
//! then a token a pass, to the last row's end. core/src/step/generate.rs mirrors the same.

use std::rc::Rc;

use tonnage_torch::{ScalarType, operator};

use super::policy::{Pass, Policy};
use super::tensors::whole_numbers;
use crate::dtype::DType;
use crate::model::nn::KvCache;
use crate::op::{arange, cat, filled, ones};
use crate::tensor::{Context, Tensor};

/// How a batch is generated.
#[derive(Clone)]
pub(super) struct Generation {
    pub max_new_tokens: u64,
    /// Draws each token by its probability; else the likeliest.
    pub samples: bool,
    /// Whether a begin token is on the device.
    pub begins: bool,
    /// Tokens that end a row; without any all go on to the full length.
    pub ends: Vec<u32>,
    pub pad: u32,
    /// Whether rows have padding before them.
    pub padded: bool,
    /// Whether it goes on to the full length whatever comes: in rehearsals, and to see the worst case.
    pub to_full_length: bool,
}

/// Special tokens on the device.
struct SpecialTokens {
    #[expect(dead_code, reason = "it lives as long as generation")]
    begin: Option<Tensor>,
    end: Option<Tensor>,
    pad: Tensor,
}

/// What changes from token to token; the names are those of `_sample`.
struct Decoding<'a> {
    policy: &'a Policy<'a>,
    how: &'a Generation,
    special_tokens: SpecialTokens,
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    unfinished_sequences: Tensor,
    cache: Rc<KvCache>,
    chosen: Option<Chosen>,
}

/// They live until the next token's are there.
#[expect(dead_code, reason = "Python's names of them keep them alive")]
struct Chosen {
    logits: Tensor,
    scores: Tensor,
    probs: Option<Tensor>,
    next_tokens: Tensor,
}

/// What `prepare_inputs_for_generation` returns.
struct ModelInputs {
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
}

/// The prompts with what comes behind them, [rows, tokens]; both tensors are [rows, tokens], int64.
pub(super) fn generate(policy: &Policy<'_>, ids: &Tensor, mask: &Tensor, how: &Generation) -> Tensor {
    let context = policy.context();
    let special_tokens = SpecialTokens::prepare(context, how);
    if ids.size(0) > 1 {
        let last = ids.size(1) - 1;
        let is_padding = ids.narrow(1, last..last + 1).squeeze(1).eq_number(f64::from(how.pad));
        is_padding.any_of();
    }
    let position_ids = positions_of(mask);
    let mut state = Decoding {
        policy,
        how,
        special_tokens,
        input_ids: ids.clone(),
        attention_mask: mask.clone(),
        position_ids: position_ids.clone(),
        unfinished_sequences: ones(context, &[ids.size(0)], DType::Int64),
        cache: policy.new_cache(),
        chosen: None,
    };
    let inputs =
        ModelInputs { input_ids: copied(&state.input_ids), attention_mask: state.attention_mask.clone(), position_ids };
    let logits = state.forward(&inputs);
    drop(inputs);
    let mut is_over = state.take_token(logits);
    let mut tokens = 1;
    let mut inputs;
    while tokens < how.max_new_tokens && !is_over {
        inputs = state.prepared_inputs();
        let logits = state.forward(&inputs);
        is_over = state.take_token(logits);
        tokens += 1;
    }
    state.input_ids
}

impl SpecialTokens {
    /// `_prepare_special_tokens`, with its tests.
    fn prepare(context: &Rc<Context>, how: &Generation) -> Self {
        let ends: Vec<i64> = how.ends.iter().map(|end| i64::from(*end)).collect();
        let begin = how.begins.then(|| whole_numbers(context, &[0], &[]));
        let end = (!ends.is_empty()).then(|| whole_numbers(context, &ends, &[ends.len() as u64]));
        let pad = whole_numbers(context, &[i64::from(how.pad)], &[]);
        if let Some(end) = &end {
            end.is_in(&pad.unsqueeze(0)).any_of();
            end.lt_number(0.0).any_of();
        }
        Self { begin, end, pad }
    }
}

/// Position ids from the mask: `mask.cumsum(-1) - 1`, padding set to 0.
pub(super) fn positions_of(mask: &Tensor) -> Tensor {
    let counted = mask.cumsum().sub_int(1);
    let padding = mask.eq_number(0.0);
    counted.masked_fill(&padding, 0.0)
}

/// `clone(memory_format=torch.contiguous_format)`
fn copied(tensor: &Tensor) -> Tensor {
    tensor.run(operator!("clone"), [])
}

impl Decoding<'_> {
    fn forward(&self, inputs: &ModelInputs) -> Tensor {
        self.policy.logits(&Pass {
            input_ids: &inputs.input_ids,
            attention_mask: &inputs.attention_mask,
            position_ids: Some(&inputs.position_ids),
            cache: Some(&self.cache),
            logits_to_keep: 1,
            padded: self.how.padded,
        })
    }

    fn prepared_inputs(&self) -> ModelInputs {
        let last = |tensor: &Tensor| {
            let end = tensor.size(1);
            copied(&tensor.narrow(1, end - 1..end))
        };
        ModelInputs {
            input_ids: last(&self.input_ids),
            attention_mask: self.attention_mask.clone(),
            position_ids: last(&self.position_ids),
        }
    }

    /// The next token of each row; whether all rows have ended.
    fn take_token(&mut self, logits: Tensor) -> bool {
        self.update_model_kwargs();
        self.select_token(&logits);
        self.append_token()
    }

    /// `_update_model_kwargs_for_generation`: one more position and one more mask column.
    fn update_model_kwargs(&mut self) {
        let context = self.policy.context();
        let next = {
            let end = self.position_ids.size(1);
            let last = self.position_ids.narrow(1, end - 1..end);
            let offset = &arange(context, 1).unsqueeze(0) + &last;
            offset.add_int(1)
        };
        self.position_ids = cat(&[&self.position_ids, &next], 1);
        drop(next);
        let column = ones(context, &[self.attention_mask.size(0), 1], DType::Int64);
        self.attention_mask = cat(&[&self.attention_mask, &column], 1);
    }

    fn select_token(&mut self, logits: &Tensor) {
        let previous = self.chosen.take();
        let end = logits.size(1);
        // `outputs.logits[:, -1, :].to(copy=True, dtype=torch.float32)`
        let copy = [ScalarType::Float32.into(), false.into(), true.into()];
        let next_token_logits = logits.narrow(1, end - 1..end).squeeze(1).run(operator!("to", "dtype"), copy);
        let scores = next_token_logits.clone();
        let chosen = if self.how.samples {
            let probs = scores.softmax(None);
            let next_tokens = probs.multinomial_one().squeeze(1);
            Chosen { logits: next_token_logits, scores, probs: Some(probs), next_tokens }
        } else {
            let next_tokens = scores.argmax_last();
            Chosen { logits: next_token_logits, scores, probs: None, next_tokens }
        };
        drop(previous);
        self.chosen = Some(chosen);
    }

    /// Appends the tokens, padding where a row has ended, and tests for the end.
    fn append_token(&mut self) -> bool {
        let context = self.policy.context();
        let Some(chosen) = &mut self.chosen else { return true };
        let end = self.special_tokens.end.as_ref();
        if end.is_some() {
            let going_on = &chosen.next_tokens * &self.unfinished_sequences;
            let padding = &self.special_tokens.pad * &self.unfinished_sequences.rsub_scalar(1.0).to(DType::Int64);
            chosen.next_tokens = &going_on + &padding;
        }
        self.input_ids = cat(&[&self.input_ids, &chosen.next_tokens.unsqueeze(1)], 1);
        let done = {
            let flags = || filled(context, &[self.input_ids.size(0)], 0.0, DType::Bool);
            let mut is_done = flags();
            is_done = is_done.bitwise_or(&flags());
            if let Some(end) = end {
                let tokens = self.input_ids.size(1);
                let last = self.input_ids.narrow(1, tokens - 1..tokens);
                let has_ended = last.is_in(end).squeeze(1);
                is_done = is_done.bitwise_or(&has_ended);
            }
            is_done
        };
        let going_on = done.bitwise_not();
        drop(done);
        self.unfinished_sequences = self.unfinished_sequences.bitwise_and(&going_on);
        drop(going_on);
        let is_over = self.unfinished_sequences.max_int().eq_number(0.0);
        !self.how.to_full_length && end.is_some() && is_over.host_truth()
    }
}
