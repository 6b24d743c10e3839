//! `generate` with a KV cache (transformers/generation/utils.py): prefill, then one token a pass, greedy, to full length.

use std::rc::Rc;

use crate::dtype::DType;
use crate::family::{ForwardCall, Model, ModelOutput};
use crate::nn::KvCache;
use crate::op::{ReduceKind, arange, cat, full};
use crate::spec::JobSpec;
use crate::tensor::{Context, Tensor};
use crate::trace::{Category, PhaseKind};

use super::simulate::input_ids;

/// What `prepare_inputs_for_generation` returns.
struct ModelInputs {
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
}

/// What changes from token to token; the names are those of `_sample`.
struct Sampling {
    input_ids: Tensor,
    attention_mask: Tensor,
    position_ids: Tensor,
    unfinished_sequences: Tensor,
    cache: Rc<KvCache>,
    next_token_logits: Option<Tensor>,
    next_tokens: Option<Tensor>,
}

/// The most events of a job that is run to its end: seconds and a gigabyte.
const MOST_EVENTS: usize = 1 << 24;
/// After this many tokens it is known how many events a token takes.
const TOKENS_TO_KNOW: u64 = 8;

pub(super) fn generate(job: &JobSpec, context: &Rc<Context>, model: &dyn Model, special_tokens: usize) {
    context.begin_step(1);
    context.phase(PhaseKind::Input);
    let ids = input_ids(context, job.micro_batch_size, job.seq_len);
    let mask = {
        let _category = context.enter_category(Category::Input);
        ids.ones_like()
    };
    context.phase(PhaseKind::Generate);
    let output = {
        let _no_grad = context.set_grad_enabled(false);
        let _autocast = context.autocast(job.precision.autocast_dtype());
        sample(job, context, model, special_tokens, (&ids, &mask))
    };
    context.end();
    drop(output);
}

fn sample(
    job: &JobSpec,
    context: &Rc<Context>,
    model: &dyn Model,
    special_tokens: usize,
    (ids, mask): (&Tensor, &Tensor),
) -> Tensor {
    let _special_tokens: Vec<Tensor> =
        (0..special_tokens).map(|_| full(context, "_to_copy.default", &[], DType::Int64)).collect();
    // Whether rows end in padding: asked of batches only.
    if ids.size(0) > 1 {
        let is_padding = ids.narrow(1, 1).squeeze(1).map("eq.Scalar", DType::Bool);
        is_padding.reduce_all("any.default", ReduceKind::Any, DType::Bool);
    }
    let position_ids = positions_of(mask);
    let mut state = Sampling {
        input_ids: ids.clone(),
        attention_mask: mask.clone(),
        position_ids: position_ids.clone(),
        unfinished_sequences: full(context, "ones.default", &[ids.size(0)], DType::Int64),
        cache: model.new_cache(),
        next_token_logits: None,
        next_tokens: None,
    };
    let mut outputs = Some(prefill(model, &state));
    let mut model_inputs: Option<ModelInputs> = None;
    let mut after_prefill = 0;
    for token in 0..job.max_new_tokens {
        if token == 1 {
            after_prefill = context.events();
        }
        if token == TOKENS_TO_KNOW && is_too_long(job, context, after_prefill) {
            break;
        }
        let output = match outputs.take() {
            Some(prefilled) => prefilled,
            None => {
                let inputs = state.prepare_inputs(1);
                let inputs = model_inputs.insert(inputs);
                forward(model, inputs, &state.cache)
            }
        };
        state.update_model_kwargs(context);
        if let Some(logits) = &output.logits {
            state.select_token(context, logits);
        }
    }
    state.input_ids
}

/// Refuses a job whose tokens, taking as many events each as those since the prefill, are too many to run.
fn is_too_long(job: &JobSpec, context: &Rc<Context>, after_prefill: usize) -> bool {
    let per_token = ((context.events() - after_prefill) as u64 / (TOKENS_TO_KNOW - 1)).max(1);
    let most = MOST_EVENTS as u64 / per_token;
    if job.max_new_tokens > most {
        context
            .fail(|| format!("`max_new_tokens` is {}; of this model at most {most} are simulated", job.max_new_tokens));
    }
    job.max_new_tokens > most
}

/// Position ids from the mask: `mask.cumsum(-1) - 1`, padding set to 0.
fn positions_of(mask: &Tensor) -> Tensor {
    let counted = mask.cumsum().map("sub.Tensor", DType::Int64);
    let padding = mask.map("eq.Scalar", DType::Bool);
    let positions = counted.map("masked_fill.Scalar", DType::Int64);
    drop((counted, padding));
    positions
}

fn prefill(model: &dyn Model, state: &Sampling) -> ModelOutput {
    let model_inputs = ModelInputs {
        input_ids: state.input_ids.clone_contiguous(),
        attention_mask: state.attention_mask.clone(),
        position_ids: state.position_ids.clone(),
    };
    forward(model, &model_inputs, &state.cache)
}

fn forward(model: &dyn Model, inputs: &ModelInputs, cache: &Rc<KvCache>) -> ModelOutput {
    model.forward(&ForwardCall {
        input_ids: &inputs.input_ids,
        attention_mask: Some(&inputs.attention_mask),
        position_ids: Some(&inputs.position_ids),
        labels: None,
        cache: Some(Rc::clone(cache)),
        logits_to_keep: Some(1),
        fused_loss: false,
    })
}

impl Sampling {
    fn prepare_inputs(&self, tokens: u64) -> ModelInputs {
        ModelInputs {
            input_ids: self.input_ids.narrow(1, tokens).clone_contiguous(),
            attention_mask: self.attention_mask.clone(),
            position_ids: self.position_ids.narrow(1, tokens).clone_contiguous(),
        }
    }

    /// `_update_model_kwargs_for_generation`: one more position and one more mask column.
    fn update_model_kwargs(&mut self, context: &Rc<Context>) {
        let old_positions = self.position_ids.clone();
        let next = {
            let last = old_positions.narrow(1, 1);
            let offset = arange(context, 1).unsqueeze(0).binary("add.Tensor", &last, DType::Int64);
            offset.map("add.Tensor", DType::Int64)
        };
        self.position_ids = cat(&[&old_positions, &next], 1);
        drop(next);
        let column = full(context, "new_ones.default", &[self.attention_mask.size(0), 1], DType::Int64);
        self.attention_mask = cat(&[&self.attention_mask, &column], 1);
    }

    /// Greedy choice, appended to the ids, and the test for the end.
    fn select_token(&mut self, context: &Rc<Context>, logits: &Tensor) {
        let last_logits = logits.narrow(1, 1).squeeze(1);
        self.next_token_logits = Some(last_logits.unary("_to_copy.default", DType::Float32));
        let Some(scores) = &self.next_token_logits else { return };
        self.next_tokens = Some(scores.reduce_last("argmax.default", ReduceKind::ArgMax, DType::Int64));
        let Some(next_tokens) = &self.next_tokens else { return };
        self.input_ids = cat(&[&self.input_ids, &next_tokens.unsqueeze(1)], 1);
        let rows = self.input_ids.size(0);
        let done = {
            let never = full(context, "full.default", &[rows], DType::Bool);
            let too_long = full(context, "full.default", &[rows], DType::Bool);
            never.binary("bitwise_or.Tensor", &too_long, DType::Bool)
        };
        let going_on = done.map("bitwise_not.default", DType::Bool);
        drop(done);
        self.unfinished_sequences = self.unfinished_sequences.binary("bitwise_and.Tensor", &going_on, DType::Int64);
        drop(going_on);
        let longest = self.unfinished_sequences.reduce_all("max.default", ReduceKind::WholeMax, DType::Int64);
        let _is_zero = longest.map("eq.Scalar", DType::Bool);
    }
}
