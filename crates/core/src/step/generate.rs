//! `generate` with a KV cache (transformers 5.17, generation/utils.py): prefill, then one token a pass, to full length.
//! Any step that generates calls it.

use std::rc::Rc;

use crate::dtype::DType;
use crate::job::NextTokenLogits;
use crate::model::family::{ForwardCall, Model, ModelOutput};
use crate::model::nn::KvCache;
use crate::op::{ReduceKind, arange, cat, full};
use crate::tensor::{Context, Doubles, Tensor};

pub(super) use super::generation_config::{GenerationConfig, SpecialTokens};
use super::generation_config::{SpecialTokenTensors, any};
use super::sampling::{Choice, Sampling};
use super::tokens::{self, Leaping};
use super::{cache_growth, cache_position};

/// What `prepare_inputs_for_generation` returns.
pub(super) struct ModelInputs {
    pub input_ids: Tensor,
    pub attention_mask: Tensor,
    pub position_ids: Option<Tensor>,
}

/// What changes from token to token; the names are those of `_sample`.
pub(super) struct Decoding {
    pub input_ids: Tensor,
    pub attention_mask: Tensor,
    /// None where the model takes none.
    position_ids: Option<Tensor>,
    unfinished_sequences: Tensor,
    /// Where the next tokens lie in the cache (before transformers 5.1, which then makes position ids from the mask).
    cache_position: Option<Tensor>,
    cache: Option<Rc<KvCache>>,
    chosen: Option<Chosen>,
    model_inputs: Option<ModelInputs>,
    /// Where they are kept (`output_scores`).
    scores: Option<Vec<Tensor>>,
}

/// `next_token_logits`, `next_token_scores` and what was made of them; they live until the next token's are there.
struct Chosen {
    logits: Tensor,
    scores: Tensor,
    choice: Choice,
}

/// Arguments of `generate`, whose caller holds both tensors until it returns.
pub(super) struct GenerateCall<'a> {
    /// Prompts of one length, [rows, tokens].
    pub input_ids: &'a Tensor,
    pub attention_mask: &'a Tensor,
    pub config: &'a GenerationConfig,
}

/// `model.generate(...)`: the prompts with the new tokens behind them, [rows, tokens].
pub(super) fn generate(context: &Rc<Context>, model: &dyn Model, call: &GenerateCall) -> Tensor {
    generate_dict(context, model, call).sequences
}

/// What `generate(..., return_dict_in_generate=True)` returns.
pub(super) struct Generated {
    pub sequences: Tensor,
    pub scores: Vec<Tensor>,
    _past_key_values: Option<Rc<KvCache>>,
}

/// The same with the cache beside it.
pub(super) fn generate_dict(context: &Rc<Context>, model: &dyn Model, call: &GenerateCall) -> Generated {
    let special_tokens = call.config.special_tokens.prepare(context);
    // Whether rows end in padding: asked of batches only.
    if special_tokens.pad.is_some() && call.input_ids.size(0) > 1 {
        let is_padding = call.attention_mask.narrow_any(1, 1).squeeze(1).map("eq.Scalar", DType::Bool);
        any(&is_padding);
    }
    let cache_position = cache_position::initial_position(context, call.input_ids);
    let cache = model.new_cache();
    let position_ids = cache.counts_tokens().then(|| match &cache_position {
        Some(position) => position.clone(),
        None => positions_of(call.attention_mask),
    });
    let state = Decoding {
        input_ids: call.input_ids.clone(),
        attention_mask: call.attention_mask.clone(),
        position_ids: position_ids.clone(),
        unfinished_sequences: full(context, "ones.default", &[call.input_ids.size(0)], DType::Int64),
        cache_position,
        cache: call.config.use_cache.then_some(cache),
        chosen: None,
        model_inputs: None,
        scores: call.config.output_scores.then(Vec::new),
    };
    sample_tokens(context, model, call.config, &special_tokens, state)
}

/// `_sample`, or the greedy search that it is without `do_sample`.
fn sample_tokens(
    context: &Rc<Context>,
    model: &dyn Model,
    config: &GenerationConfig,
    special_tokens: &SpecialTokenTensors,
    mut state: Decoding,
) -> Generated {
    let prefilled = prefill(model, &state);
    state.take_token(context, config, special_tokens, prefilled);
    if config.max_new_tokens > 1 {
        let decode = |state: &mut Decoding| {
            let output = state.forward(model);
            state.take_token(context, config, special_tokens, output);
        };
        // A token ends with the inputs of the next one: what it leaves then goes before that one ends.
        state.prepare_inputs(1);
        state = tokens::run_leaping(context, state, config.max_new_tokens - 2, |state| {
            decode(state);
            state.prepare_inputs(1);
        });
        decode(&mut state);
    }
    let scores = state.scores.unwrap_or_default();
    Generated { sequences: state.input_ids, scores, _past_key_values: state.cache }
}

/// Position ids from the mask: `mask.cumsum(-1) - 1`, padding set to 0.
pub(super) fn positions_of(mask: &Tensor) -> Tensor {
    let counted = {
        let numbers = mask.to(DType::Int64);
        let counted = numbers.cumsum();
        drop(numbers);
        counted.map("sub.Tensor", DType::Int64)
    };
    let padding = mask.map("eq.Scalar", DType::Bool);
    let positions = counted.map("masked_fill.Scalar", DType::Int64);
    drop((counted, padding));
    positions
}

fn prefill(model: &dyn Model, state: &Decoding) -> ModelOutput {
    let model_inputs = match &state.cache_position {
        Some(position) => state.inputs_at(position),
        None => state.whole_inputs(),
    };
    forward(model, &model_inputs, state.cache.as_ref())
}

fn forward(model: &dyn Model, inputs: &ModelInputs, cache: Option<&Rc<KvCache>>) -> ModelOutput {
    model.forward(&ForwardCall {
        attention_mask: Some(&inputs.attention_mask),
        position_ids: inputs.position_ids.as_ref(),
        cache: cache.map(Rc::clone),
        logits_to_keep: Some(1),
        ..ForwardCall::new(&inputs.input_ids)
    })
}

impl Decoding {
    /// What the loop makes of the model's output: the next token, and the inputs of the one after it.
    fn take_token(
        &mut self,
        context: &Rc<Context>,
        config: &GenerationConfig,
        special_tokens: &SpecialTokenTensors,
        output: ModelOutput,
    ) {
        self.update_model_kwargs(context);
        if let Some(logits) = &output.logits {
            self.select_token(logits, config.sampling);
            self.append_token(context, special_tokens);
        }
    }

    fn inputs_at(&self, position: &Tensor) -> ModelInputs {
        let [input_ids, position_ids] = cache_position::inputs_at(position, &self.input_ids, &self.attention_mask);
        ModelInputs { input_ids, attention_mask: self.attention_mask.clone(), position_ids: Some(position_ids) }
    }

    /// Those of all tokens there are.
    fn whole_inputs(&self) -> ModelInputs {
        ModelInputs {
            input_ids: self.input_ids.clone_contiguous(),
            attention_mask: self.attention_mask.clone(),
            position_ids: self.position_ids.clone(),
        }
    }

    fn prepare_inputs(&mut self, tokens: u64) {
        if self.cache.is_none() {
            self.model_inputs = Some(self.whole_inputs());
            return;
        }
        if let Some(position) = &self.cache_position {
            self.model_inputs = Some(self.inputs_at(position));
            return;
        }
        let inputs = ModelInputs {
            input_ids: self.input_ids.narrow_any(1, tokens).clone_contiguous(),
            attention_mask: self.attention_mask.clone(),
            position_ids: self.position_ids.as_ref().map(|ids| ids.narrow_any(1, tokens).clone_contiguous()),
        };
        self.model_inputs = Some(inputs);
    }

    fn forward(&self, model: &dyn Model) -> ModelOutput {
        match &self.model_inputs {
            Some(inputs) => forward(model, inputs, self.cache.as_ref()),
            None => prefill(model, self),
        }
    }

    /// `_update_model_kwargs_for_generation`: one more position and one more mask column.
    fn update_model_kwargs(&mut self, context: &Rc<Context>) {
        if let Some(position) = self.cache_position.clone() {
            let _column = self.append_column(context);
            self.cache_position = Some(position.narrow_any(0, 1).map("add.Tensor", DType::Int64));
            return;
        }
        let old_positions = self.position_ids.clone();
        if let Some(old_positions) = &old_positions {
            let next = {
                let last = old_positions.narrow_any(1, 1);
                let offset = arange(context, 1).unsqueeze(0).binary("add.Tensor", &last, DType::Int64);
                offset.map("add.Tensor", DType::Int64)
            };
            self.position_ids = Some(cat(&[old_positions, &next], 1));
        }
        self.append_column(context);
    }

    /// Returns the column.
    fn append_column(&mut self, context: &Rc<Context>) -> Tensor {
        let sizes = [self.attention_mask.size(0), 1];
        let column = full(context, "new_ones.default", &sizes, self.attention_mask.dtype());
        self.attention_mask = cat(&[&self.attention_mask, &column], 1);
        column
    }

    /// The next token of each row, from the last position's logits.
    fn select_token(&mut self, logits: &Tensor, sampling: Option<Sampling>) {
        let previous = self.chosen.take();
        let (previous_logits, previous_scores, previous_choice) = match previous {
            Some(Chosen { logits, scores, choice }) => (Some(logits), Some(scores), Some(choice)),
            None => (None, None, None),
        };
        let next_token_logits = next_token_logits(logits);
        drop(previous_logits);
        let next_token_scores = match sampling {
            Some(sampling) => sampling.process(&next_token_logits),
            None => next_token_logits.clone(),
        };
        drop(previous_scores);
        self.scores.iter_mut().for_each(|scores| scores.push(next_token_scores.clone()));
        let choice = match sampling {
            Some(_) => Choice::drawn(&next_token_scores, previous_choice),
            None => Choice::likeliest(&next_token_scores, previous_choice),
        };
        self.chosen = Some(Chosen { logits: next_token_logits, scores: next_token_scores, choice });
    }

    /// Appends the tokens to the ids, padding where a row has ended, and tests for the end.
    fn append_token(&mut self, context: &Rc<Context>, special_tokens: &SpecialTokenTensors) {
        let Some(Chosen { choice, .. }) = &mut self.chosen else { return };
        if let (Some(_), Some(pad)) = (&special_tokens.end, &special_tokens.pad) {
            choice.next_tokens = padded_tokens(&choice.next_tokens, &self.unfinished_sequences, pad);
        }
        self.input_ids = cat(&[&self.input_ids, &choice.next_tokens.unsqueeze(1)], 1);
        let done = stopping_criteria(context, &self.input_ids, special_tokens.end.as_ref());
        let going_on = done.map("bitwise_not.default", DType::Bool);
        drop(done);
        self.unfinished_sequences = self.unfinished_sequences.binary("bitwise_and.Tensor", &going_on, DType::Int64);
        drop(going_on);
        let longest = self.unfinished_sequences.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64);
        let _is_zero = longest.map("eq.Scalar", DType::Bool);
    }
}

impl Leaping for Decoding {
    fn room(&self) -> u64 {
        if self.scores.is_some() {
            // Each token leaves its own.
            return 0;
        }
        self.cache.as_ref().map_or(u64::MAX, |cache| cache_growth::cache_room(cache))
    }

    fn doubled(&self, doubles: &mut Doubles, tokens: u64) -> Self {
        let longer = Some((1, tokens));
        let input_ids = doubles.double_tensor(&self.input_ids, longer);
        let attention_mask = doubles.double_tensor(&self.attention_mask, longer);
        // Those of the prompt, where the mask of each pass makes new ones.
        let growth = longer.filter(|_| self.cache_position.is_none());
        let position_ids = self.position_ids.as_ref().map(|ids| doubles.double_tensor(ids, growth));
        let cache_position = self.cache_position.as_ref().map(|position| doubles.double_tensor(position, None));
        // The mask is the one above; ids are those of all tokens where there is no cache.
        let of_all = longer.filter(|_| self.cache.is_none());
        let mut inputs = |inputs: &ModelInputs| ModelInputs {
            input_ids: doubles.double_tensor(&inputs.input_ids, of_all),
            attention_mask: doubles.double_tensor(&inputs.attention_mask, None),
            position_ids: inputs.position_ids.as_ref().map(|ids| doubles.double_tensor(ids, None)),
        };
        let model_inputs = self.model_inputs.as_ref().map(&mut inputs);
        let mut chosen = |chosen: &Chosen| Chosen {
            logits: doubles.double_tensor(&chosen.logits, None),
            scores: doubles.double_tensor(&chosen.scores, None),
            choice: Choice {
                probs: chosen.choice.probs.as_ref().map(|probs| doubles.double_tensor(probs, None)),
                next_tokens: doubles.double_tensor(&chosen.choice.next_tokens, None),
            },
        };
        let chosen = self.chosen.as_ref().map(&mut chosen);
        Self {
            input_ids,
            attention_mask,
            position_ids,
            unfinished_sequences: doubles.double_tensor(&self.unfinished_sequences, None),
            cache_position,
            cache: self.cache.as_ref().map(|cache| Rc::new(cache_growth::doubled_cache(cache, doubles, tokens))),
            chosen,
            model_inputs,
            scores: None,
        }
    }

    fn for_each(&self, mut see: impl FnMut(&Tensor)) {
        let Self {
            input_ids,
            attention_mask,
            position_ids,
            unfinished_sequences,
            cache_position,
            cache,
            chosen,
            model_inputs,
            scores: _,
        } = self;
        cache_position.iter().for_each(&mut see);
        [input_ids, attention_mask].into_iter().chain(position_ids).for_each(&mut see);
        see(unfinished_sequences);
        if let Some(Chosen { logits, scores, choice: Choice { probs, next_tokens } }) = chosen {
            [logits, scores, next_tokens].into_iter().chain(probs).for_each(&mut see);
        }
        if let Some(ModelInputs { input_ids, attention_mask, position_ids }) = model_inputs {
            [input_ids, attention_mask].into_iter().chain(position_ids).for_each(&mut see);
        }
        if let Some(cache) = cache {
            cache_growth::for_each(cache, see);
        }
    }
}

/// The last position's logits, [rows, vocabulary].
fn next_token_logits(logits: &Tensor) -> Tensor {
    let last = |logits: &Tensor| logits.narrow_any(1, 1).squeeze(1);
    match logits.context().transformers().next_token_logits() {
        NextTokenLogits::View => last(logits),
        NextTokenLogits::Clone => last(logits).clone_contiguous(),
        NextTokenLogits::UpcastOfWholeClone => last(&logits.clone_contiguous()).float(),
        NextTokenLogits::UpcastOfClone => last(logits).clone_contiguous().float(),
        NextTokenLogits::Upcast => last(logits).unary("_to_copy.default", DType::Float32),
    }
}

/// `next_tokens * unfinished_sequences + pad_token_id * (1 - unfinished_sequences)`
fn padded_tokens(next_tokens: &Tensor, unfinished_sequences: &Tensor, pad: &Tensor) -> Tensor {
    let going_on = next_tokens * unfinished_sequences;
    let padding = pad * &unfinished_sequences.map("rsub.Scalar", DType::Int64);
    &going_on + &padding
}

/// `StoppingCriteriaList`: the length, and the end token where there is one.
fn stopping_criteria(context: &Rc<Context>, input_ids: &Tensor, end: Option<&Tensor>) -> Tensor {
    let flags = || full(context, "full.default", &[input_ids.size(0)], DType::Bool);
    let mut is_done = flags();
    is_done = is_done.binary("bitwise_or.Tensor", &flags(), DType::Bool);
    if let Some(end) = end {
        let has_ended = input_ids.narrow_any(1, 1).is_in(end).reduce_last("any.dim", ReduceKind::Any, DType::Bool);
        is_done = is_done.binary("bitwise_or.Tensor", &has_ended, DType::Bool);
    }
    is_done
}
