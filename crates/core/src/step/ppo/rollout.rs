//! The rollout of an update: `batch_generation`, then the log-probabilities, values and scores of what was generated, some rows at a
//! time.

use crate::dtype::DType;
use crate::job::PpoSpec;
use crate::op::{ReduceKind, arange, cat, full, stack};
use crate::tensor::Tensor;
use crate::trace::PhaseKind;

use super::{Asked, Beside, Output, Trainer};
use crate::step::generate::{GenerateCall, GenerationConfig, SpecialTokens, generate_dict};
use crate::step::sampling::Sampling;

/// `temperature` of `PPOConfig`, as near 1 as makes no difference.
const TEMPERATURE: f64 = 0.7;

/// Variables of an update; some live on into the next.
#[derive(Default)]
pub(super) struct Rollout {
    /// Whole, padded to chunks of one size.
    pub query_responses: Option<Tensor>,
    /// Those of every generated token, which nobody deletes.
    logitss: Option<Tensor>,
    postprocessed_response: Option<Tensor>,
    postprocessed_query_response: Option<Tensor>,
    sequence_length: Option<Tensor>,
    full_value: Option<Tensor>,
    /// What `get_reward` returns beside what is used, which Python names `_`.
    underscore: Option<Tensor>,
    pub responses: Option<Tensor>,
    pub postprocessed_responses: Option<Tensor>,
    pub logprobs: Option<Tensor>,
    pub ref_logprobs: Option<Tensor>,
    pub sequence_lengths: Option<Tensor>,
    pub scores: Option<Tensor>,
    pub values: Option<Tensor>,
    pub returns: super::returns::Returns,
}

/// Lists with an element of each chunk.
#[derive(Default)]
struct Lists {
    responses: Vec<Tensor>,
    postprocessed_responses: Vec<Tensor>,
    logprobs: Vec<Tensor>,
    ref_logprobs: Vec<Tensor>,
    sequence_lengths: Vec<Tensor>,
    scores: Vec<Tensor>,
    values: Vec<Tensor>,
}

impl Trainer<'_> {
    /// From prompts to what is trained on.
    pub(super) fn roll_out(&self, queries: &Tensor, rollout: &mut Rollout) -> Option<()> {
        let _no_grad = self.context.set_grad_enabled(false);
        self.context.phase(PhaseKind::Generate);
        let [query_responses, logitss] = self.batch_generation(queries)?;
        self.context.phase(PhaseKind::Between);
        rollout.query_responses = Some(query_responses);
        rollout.logitss = Some(logitss);
        let mut lists = Lists::default();
        for rows in chunks(queries.size(0), self.spec) {
            self.score_chunk(queries, rows, (&mut *rollout, &mut lists))?;
        }
        // Variables of the last chunk, which are deleted behind the lists.
        let last =
            [&lists.logprobs, &lists.ref_logprobs, &lists.scores, &lists.values].map(|list| list.last().cloned());
        let join = |list: Vec<Tensor>| {
            let joined = cat(&list.iter().collect::<Vec<_>>(), 0);
            drop(list);
            Some(joined)
        };
        rollout.responses = join(lists.responses);
        rollout.postprocessed_responses = join(lists.postprocessed_responses);
        rollout.logprobs = join(lists.logprobs);
        rollout.ref_logprobs = join(lists.ref_logprobs);
        rollout.sequence_lengths = join(lists.sequence_lengths);
        rollout.scores = join(lists.scores);
        rollout.values = join(lists.values);
        rollout.full_value = None;
        drop(last);
        self.context.empty_cache();
        Some(())
    }

    /// `batch_generation(policy, queries, local_rollout_forward_batch_size, ...)`
    fn batch_generation(&self, queries: &Tensor) -> Option<[Tensor; 2]> {
        let (mut query_responses, mut logitss) = (Vec::new(), Vec::new());
        for rows in chunks(queries.size(0), self.spec) {
            let (query_response, logits) = self.generate(&queries.narrow_any(0, rows))?;
            query_responses.push(query_response);
            logitss.push(logits);
        }
        Some([self.pad(&query_responses)?, self.pad(&logitss)?])
    }

    /// `pad(tensors).view(-1, ...)[:batch_size]`: the first chunk is the largest.
    fn pad(&self, tensors: &[Tensor]) -> Option<Tensor> {
        let first = tensors.first()?;
        let rows = first.size(0).saturating_mul(tensors.len() as u64);
        Some(full(self.context, "full.default", &first.sizes().with(0, rows), first.dtype()))
    }

    /// `generate(policy, queries, ...)`: prompts with their answers, and the scores of every token.
    fn generate(&self, queries: &Tensor) -> Option<(Tensor, Tensor)> {
        let attention_mask = queries.map("ne.Scalar", DType::Bool);
        let input_ids = {
            let _is_padding = attention_mask.map("bitwise_not.default", DType::Bool);
            full(self.context, "masked_fill.Scalar", queries.sizes(), DType::Int64)
        };
        let config = GenerationConfig {
            max_new_tokens: self.spec.response_length,
            sampling: Some(Sampling { temperature: TEMPERATURE }),
            special_tokens: SpecialTokens { begin: false, end: self.spec.stops, pad: false },
            use_cache: true,
            output_scores: true,
        };
        let call = GenerateCall { input_ids: &input_ids, attention_mask: &attention_mask, config: &config };
        let output = generate_dict(self.context, self.policy.as_ref(), &call);
        let first = output.scores.first()?;
        let logits = {
            let sizes = [first.size(0), output.scores.len() as u64, first.size(-1)];
            full(self.context, "stack.default", &sizes, first.dtype())
        };
        let answers = output.sequences.narrow_any(1, self.spec.response_length);
        Some((cat(&[queries, &answers], 1), logits))
    }

    /// What is computed of some rows before training.
    fn score_chunk(&self, queries: &Tensor, rows: u64, (rollout, lists): (&mut Rollout, &mut Lists)) -> Option<()> {
        let (context, length) = (self.context, self.spec.response_length);
        let query = queries.narrow_any(0, rows);
        let query_response = rollout.query_responses.as_ref()?.narrow_any(0, rows);
        let response = query_response.narrow_any(1, length);
        let logprob = selective_log_softmax(&rollout.logitss.as_ref()?.narrow_any(0, rows), &response)?;
        context.empty_cache();
        let ref_logprob = {
            let output = self.reference_output(&query_response);
            selective_log_softmax(&output.output.logits.as_ref()?.narrow_any(1, length), &response)?
        };
        context.empty_cache();
        let postprocessed_response = if self.spec.stops { truncate_response(&response) } else { response.clone() };
        rollout.postprocessed_response = Some(postprocessed_response.clone()).filter(|_| self.spec.stops);
        rollout.postprocessed_query_response = Some(cat(&[&query, &postprocessed_response], 1));
        let sequence_length = {
            let first = first_true_indices(postprocessed_response.map("eq.Scalar", DType::Bool));
            first.map("sub.Tensor", DType::Int64)
        };
        rollout.sequence_length = Some(sequence_length.clone());
        let (full_value, final_rewards, sequence_lengths) = self.get_reward(&self.value, &query_response);
        rollout.full_value = Some(full_value.clone());
        rollout.underscore = Some(final_rewards);
        rollout.underscore = Some(sequence_lengths);
        let value = full_value.narrow_any(1, length).squeeze(2);
        drop(full_value);
        let postprocessed = rollout.postprocessed_query_response.clone()?;
        let (reward_logits, score, sequence_lengths) = self.get_reward(&self.reward, &postprocessed);
        rollout.underscore = Some(reward_logits);
        rollout.underscore = Some(sequence_lengths);
        lists.responses.push(response);
        lists.postprocessed_responses.push(postprocessed_response);
        lists.logprobs.push(logprob);
        lists.ref_logprobs.push(ref_logprob);
        lists.sequence_lengths.push(sequence_length);
        lists.scores.push(score);
        lists.values.push(value);
        Some(())
    }

    /// `forward(ref_policy, ...)`, or of the policy without its adapters.
    fn reference_output(&self, query_response: &Tensor) -> Output {
        self.context.phase(PhaseKind::Logps);
        let asked = self.ask(query_response);
        let output = match &self.reference {
            Some(reference) => asked.output(reference.model.as_ref(), &reference.mode),
            None => {
                self.mode.enable_adapters(false);
                let output = asked.output(self.policy.as_ref(), &self.mode);
                self.mode.enable_adapters(true);
                output
            }
        };
        drop(asked);
        self.context.phase(PhaseKind::Between);
        output
    }

    /// `get_reward(model, query_responses, ...)`: scores of all tokens, of the last of each row, and where that is.
    fn get_reward(&self, model: &Beside, query_responses: &Tensor) -> (Tensor, Tensor, Tensor) {
        self.context.phase(PhaseKind::Reward);
        let asked: Asked = self.ask(query_responses);
        let scored = model.score(&asked, false);
        let reward_logits = scored.scores.clone();
        let sequence_lengths = {
            let answers = query_responses.narrow_any(1, self.spec.response_length);
            let first = first_true_indices(answers.map("eq.Scalar", DType::Bool));
            let last = first.map("sub.Tensor", DType::Int64);
            drop(first);
            last.map("add.Tensor", DType::Int64)
        };
        let final_rewards = {
            let _rows = arange(self.context, reward_logits.size(0));
            full(self.context, "index.Tensor", &[reward_logits.size(0)], reward_logits.dtype())
        };
        drop((asked, scored));
        self.context.phase(PhaseKind::Between);
        (reward_logits, final_rewards, sequence_lengths)
    }
}

/// Rows of each call over a batch.
fn chunks(rows: u64, spec: &PpoSpec) -> impl Iterator<Item = u64> {
    let most = spec.rollout_batch.max(1);
    (0..rows.div_ceil(most)).map(move |at| most.min(rows - at * most))
}

/// Log-probabilities of the tokens, row by row (trl 1.12, trainer/utils.py).
pub(super) fn selective_log_softmax(logits: &Tensor, index: &Tensor) -> Option<Tensor> {
    if logits.dtype() == DType::Float32 {
        let selected_logits = logits.gather_one(index);
        let logsumexp_values = {
            let rows: Vec<Tensor> = logits.unbind().iter().map(Tensor::logsumexp).collect();
            stack(&rows)?
        };
        return Some(&selected_logits - &logsumexp_values);
    }
    // Python's variable of a row, which lives until the next one is there, and to the end.
    let mut row_logps = None;
    let mut rows = Vec::new();
    for (logits, index) in logits.unbind().iter().zip(index.unbind()) {
        let before = row_logps.replace(logits.log_softmax());
        drop(before);
        rows.extend(row_logps.as_ref().map(|row: &Tensor| row.gather_one(&index)));
    }
    stack(&rows)
}

/// `first_true_indices(bools)`, which goes when it is done.
fn first_true_indices(bools: Tensor) -> Tensor {
    let context = bools.context();
    let zero_or_index = {
        let scaled = {
            let numbers = {
                let _others = bools.map("bitwise_not.default", DType::Bool);
                bools.map("_to_copy.default", DType::Int64)
            };
            numbers.map("mul.Tensor", DType::Int64)
        };
        let places = arange(context, bools.size(1));
        scaled.binary("add.Tensor", &places, DType::Int64)
    };
    let values = zero_or_index.reduce_last("min.dim", ReduceKind::ArgMax, DType::Int64);
    drop(full(context, "min.dim", &[bools.size(0)], DType::Int64));
    drop(bools);
    values
}

/// `truncate_response(stop_token_id, pad_token_id, responses)`
fn truncate_response(responses: &Tensor) -> Tensor {
    let trunc_idxs = first_true_indices(responses.map("eq.Scalar", DType::Bool));
    let idxs = arange(responses.context(), responses.size(1));
    let filled = {
        let _is_behind = full(responses.context(), "gt.Tensor", responses.sizes(), DType::Bool);
        full(responses.context(), "masked_fill.Scalar", responses.sizes(), DType::Int64)
    };
    drop((idxs, trunc_idxs));
    filled
}
