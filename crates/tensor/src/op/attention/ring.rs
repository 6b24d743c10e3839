//! Attention over ranks that share the tokens of a row (torch/distributed/tensor/experimental/_context_parallel/_attention.py, PyTorch
//! 2.11): the kernel runs on the keys of one rank after another, all of them gathered first, and results are merged in fp32.

use super::flash::{FlashCall, FlashOutputs};
use crate::dtype::DType;
use crate::op::cat;
use crate::tensor::{Gradients, NodeBuilder, Ring, Saved, Shape, Tensor, gradients};
use tonnage_alloc::trace::Category;

/// Dimension of the tokens.
const TOKENS: usize = 2;

/// `scaled_dot_product_attention` of this rank's tokens, causal over all of them.
pub(super) fn ring_attention(query: &Tensor, key: &Tensor, value: &Tensor, ring: Ring) -> Tensor {
    let node = NodeBuilder::new("ScaledDotProductFlashAttentionBackward0", [query, key, value]);
    let inputs = [query, key, value].map(|input| node.save(input));
    let FlashOutputs { out, log_sum_exp, state } = run_forward([query, key, value].map(Tensor::detach), ring);
    let saved_results = [node.save(&log_sum_exp), node.save(&out)];
    let saved_state = state.map(|state| node.save(&state));
    node.finish(out, move |grad| {
        let inputs = inputs.each_ref().map(Saved::unpack);
        let [log_sum_exp, out] = saved_results.each_ref().map(Saved::unpack);
        let _state = saved_state.each_ref().map(Saved::unpack);
        run_backward(grad, inputs, (&out, &log_sum_exp), ring)
    })
}

/// Keys and values of all ranks, which one collective gathers.
#[derive(Default)]
struct Gathered(Option<Tensor>);

impl Gathered {
    /// Gathers the keys and values of all ranks, the first time it is asked to (`exchange_buffers`).
    fn exchange(&mut self, own: &Tensor, ring: Ring) {
        self.0.get_or_insert_with(|| {
            let _category = own.context().enter_category(Category::Communication);
            let sizes = Shape::new(&[own.numel().saturating_mul(ring.ranks)]);
            Tensor::empty(own.context(), "_c10d_functional.all_gather_into_tensor", sizes, own.dtype())
        });
    }

    /// `next_buffer`: another rank's, a view.
    fn next(&self, own: &Tensor) -> Option<Tensor> {
        self.0.as_ref().map(|all| all.narrow_any(0, 2 * own.numel()))
    }
}

/// What a rank sends: keys and values, or their gradients, one behind the other.
fn joined(a: &Tensor, b: &Tensor) -> Tensor {
    let flat = |tensor: &Tensor| tensor.reshape(&[tensor.numel()]);
    let (a, b) = (flat(a), flat(b));
    cat(&[&a, &b], 0)
}

/// As many numbers of a received buffer as `like` has, a view.
fn part_of(buffer: &Tensor, like: &Tensor) -> Tensor {
    buffer.narrow_any(0, like.numel()).view(like.sizes())
}

fn half(tensor: &Tensor) -> Tensor {
    tensor.narrow_any(TOKENS, tensor.size(TOKENS as isize) / 2)
}

fn run_forward([query, key, value]: [Tensor; 3], ring: Ring) -> FlashOutputs {
    let (mut key, mut value) = (key.contiguous(), value.contiguous());
    let mut merged: Option<(Tensor, Tensor)> = None;
    let mut gathered = Gathered::default();
    let mut outputs: Option<FlashOutputs> = None;
    for turn in 0..ring.ranks {
        if let Some(next) = gathered.next(&key).filter(|_| turn > 0) {
            (key, value) = (part_of(&next, &key), part_of(&next, &value));
        }
        if turn + 1 < ring.ranks {
            gathered.exchange(&joined(&key, &value), ring);
        }
        let is_partial = ring.is_behind(turn);
        let own = match (turn, is_partial) {
            (0, _) => FlashCall { inputs: [query.clone(), key.clone(), value.clone()], is_causal: true },
            (_, false) => FlashCall { inputs: [query.clone(), half(&key), half(&value)], is_causal: false },
            (_, true) => FlashCall { inputs: [half(&query), key.clone(), value.clone()], is_causal: false },
        };
        let made = own.run_forward();
        // Python's variables have the last call's results until the next one's are there.
        let made = outputs.insert(made);
        let block = (made.out.float(), made.log_sum_exp.unsqueeze(3));
        merged = Some(match merged.take() {
            None => block,
            Some(before) => merge(before, &block, is_partial),
        });
    }
    let dtype = query.dtype();
    let merged = merged.map(|(out, log_sum_exp)| (out.to(dtype), log_sum_exp.squeeze(3)));
    match (merged, outputs) {
        (Some((out, log_sum_exp)), Some(last)) => FlashOutputs { out, log_sum_exp, state: last.state },
        // A ring of no ranks.
        (_, _) => FlashCall { inputs: [query, key, value], is_causal: true }.run_forward(),
    }
}

/// The results so far with those of another rank's keys (`_SDPAMerger._merge_one`).
fn merge(
    (all_out, all_log_sum_exp): (Tensor, Tensor),
    (block_out, block_log_sum_exp): &(Tensor, Tensor),
    is_partial: bool,
) -> (Tensor, Tensor) {
    let part = |all: &Tensor| if is_partial { half(all) } else { all.clone() };
    let (out, log_sum_exp) = (part(&all_out), part(&all_log_sum_exp));
    let weighted = {
        let weight = block_log_sum_exp.sub(&log_sum_exp).sigmoid();
        let difference = out.sub(block_out);
        weight.mul(&difference)
    };
    let out = out.sub(&weighted);
    drop(weighted);
    let correction = log_sum_exp.sub(block_log_sum_exp).log_sigmoid();
    let log_sum_exp = log_sum_exp.sub(&correction);
    drop(correction);
    if !is_partial {
        return (out, log_sum_exp);
    }
    let joined = |all: Tensor, part: &Tensor| cat(&[&half(&all), part], TOKENS);
    let all_log_sum_exp = joined(all_log_sum_exp, &log_sum_exp);
    (joined(all_out, &out), all_log_sum_exp)
}

/// A gradient of which half was added to (`_partial_update(original, new, add=True)`).
fn updated_in_part(original: &Tensor) -> Tensor {
    let part = half(original);
    cat(&[&part, &part], TOKENS)
}

/// `permute_tensor`: what the rank before sends.
fn received(sent: &Tensor) -> Tensor {
    let _category = sent.context().enter_category(Category::Communication);
    Tensor::empty(sent.context(), "_c10d_functional.all_to_all_single", *sent.sizes(), sent.dtype())
}

/// What a call of a turn's backward pass is given: query, key and value; result, gradient and sums.
fn arguments_of(turn: u64, ring: Ring, inputs: [&Tensor; 3], results: [&Tensor; 3]) -> ([Tensor; 3], [Tensor; 3]) {
    let (inputs, results) = (inputs.map(Tensor::clone), results.map(Tensor::clone));
    if turn == 0 {
        return (inputs, results);
    }
    let [query, key, value] = inputs;
    if !ring.is_behind(turn) {
        return ([query, half(&key), half(&value)], results);
    }
    let [out, grad, log_sum_exp] = results.map(|tensor| half(&tensor));
    ([half(&query), key, value], [out, grad, log_sum_exp.contiguous()])
}

fn run_backward(
    grad: &Tensor,
    [query, key, value]: [Tensor; 3],
    (out, log_sum_exp): (&Tensor, &Tensor),
    ring: Ring,
) -> Gradients {
    let zeros = |like: &Tensor| like.unary("zeros_like.default", DType::Float32);
    let mut grad_query = zeros(&query);
    let (mut grad_key, mut grad_value) = (zeros(&key), zeros(&value));
    let (mut key, mut value) = (key.contiguous(), value.contiguous());
    let mut gathered = Gathered::default();
    let mut next_kv: Option<Tensor> = None;
    let mut made: Option<[Tensor; 3]> = None;
    let mut sent: Option<Tensor> = None;
    let mut arrived: Option<Tensor> = None;
    // The arguments of the call before, which hold what they are views of.
    let mut arguments: Option<([Tensor; 3], [Tensor; 3])> = None;
    for turn in 0..ring.ranks {
        if let Some(next) = gathered.next(&key).filter(|_| turn > 0) {
            (key, value) = (part_of(&next, &key), part_of(&next, &value));
        }
        if turn + 1 < ring.ranks {
            let own = joined(&key, &value);
            gathered.exchange(&own, ring);
            replace(&mut next_kv, own);
        }
        let is_behind = ring.is_behind(turn);
        let taken = arguments_of(turn, ring, [&query, &key, &value], [out, grad, log_sum_exp]);
        let (inputs, [out, grad, _]) = arguments.insert(taken);
        let call = FlashCall { inputs: inputs.each_ref().map(|input| (*input).clone()), is_causal: turn == 0 };
        let gradients = call.run_backward(grad, out);
        made = Some(gradients);
        if let Some(arrived) = arrived.clone() {
            sent = Some(arrived.clone());
            (grad_key, grad_value) = (part_of(&arrived, &grad_key), part_of(&arrived, &grad_value));
            if !is_behind {
                grad_key = updated_in_part(&grad_key);
                grad_value = updated_in_part(&grad_value);
            }
        }
        let own = joined(&grad_key, &grad_value);
        arrived = Some(received(&own));
        replace(&mut sent, own);
        if is_behind {
            grad_query = updated_in_part(&grad_query);
        }
    }
    let grad_query = grad_query.to(query.dtype());
    let last = arrived.as_ref().map(|arrived| arrived.to(key.dtype()));
    drop(sent);
    let parts = last.map(|last| [part_of(&last, &grad_key), part_of(&last, &grad_value)]);
    drop((grad_key, grad_value, next_kv, made, arrived, gathered, arguments));
    let [grad_key, grad_value] = parts.map_or([None, None], |parts| parts.map(Some));
    gradients![grad_query, grad_key, grad_value]
}

/// Python's assignment: what was there goes when the new value is there.
fn replace(variable: &mut Option<Tensor>, value: Tensor) {
    let before = variable.replace(value);
    drop(before);
}
