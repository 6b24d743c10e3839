//! TRL's fused head (trl 1.16, kernels/chunked_logprob.py): log-probabilities and entropies of tokens from hidden states
//! and the head's weight, tile by tile; logits never exist. The backward makes each tile again.

use std::rc::Rc;

use super::create::full;
use crate::dtype::DType;
use crate::tensor::{Context, NodeBuilder, Product, Saved, Shape, Tensor, gradients};

/// Tokens of a tile (`TOKEN_CHUNK_SIZE`).
const TOKENS: u64 = 4096;
/// Vocabulary entries of a tile (trl/trainer/utils.py, `_CHUNKED_LOGPROB_CHUNK_SIZE`).
const VOCABULARY: u64 = 32768;
const FUNCTION: &str = "ChunkedLogProbFunction";
const BACKWARD: &str = "ChunkedLogProbFunctionBackward";

/// What the function returns for each token, beside log-probabilities (`outputs`).
#[derive(Clone, Copy, Default)]
pub(crate) struct TokenOutputs {
    pub entropy: bool,
    pub mean_logits: bool,
    pub is_top1: bool,
}

/// What the function returns for each token; only log-probabilities and entropies are differentiable.
pub(crate) struct PerToken {
    pub log_probs: Tensor,
    pub entropy: Option<Tensor>,
    pub mean_logits: Option<Tensor>,
    pub is_top1: Option<Tensor>,
}

/// What the tiles leave behind.
struct Statistics {
    log_z: Tensor,
    log_probs: Tensor,
    entropy: Option<Tensor>,
    mean_logits: Option<Tensor>,
    is_top1: Option<Tensor>,
}

/// The function on [tokens, width] hidden states, a [vocabulary, width] weight and [tokens] targets.
pub(crate) fn chunked_log_probs(hidden: &Tensor, weight: &Tensor, targets: &Tensor, outputs: TokenOutputs) -> PerToken {
    let context = Rc::clone(hidden.context());
    let compute_dtype = context.autocast_dtype().unwrap_or(hidden.dtype());
    let node = NodeBuilder::new(BACKWARD, [hidden, weight]);
    let needs = [node.needs(0), node.needs(1)];
    let Statistics { log_z, log_probs, entropy, mean_logits, is_top1 } = {
        let _no_grad = context.set_grad_enabled(false);
        statistics(&context, hidden, weight, compute_dtype, outputs)
    };
    // Without the entropy the normaliser fills its slot.
    let slot = entropy.clone().unwrap_or_else(|| log_z.clone());
    let saved = [hidden, weight, targets, &log_z, &slot].map(|tensor| node.save(tensor));
    drop((log_z, slot));
    let formula = move |_grads: &[Option<Tensor>]| {
        let [hidden, weight, _targets, _log_z, _entropy] = saved.each_ref().map(Saved::unpack);
        let [hidden_grad, weight_grad] = backward(&hidden, &weight, compute_dtype, needs);
        gradients![hidden_grad, weight_grad]
    };
    match entropy {
        Some(entropy) => {
            let [log_probs, entropy] = node.finish_many([log_probs, entropy], formula);
            PerToken { log_probs, entropy: Some(entropy), mean_logits, is_top1 }
        }
        None => {
            let [log_probs] = node.finish_many([log_probs], formula);
            PerToken { log_probs, entropy: None, mean_logits, is_top1 }
        }
    }
}

/// The log of the normaliser, the log-probabilities and the entropies, from statistics that tiles are folded into.
fn statistics(
    context: &Rc<Context>,
    hidden: &Tensor,
    weight: &Tensor,
    dtype: DType,
    outputs: TokenOutputs,
) -> Statistics {
    let tokens = hidden.size(0);
    let per_token = |op: &'static str| full(context, op, &[tokens], DType::Float32);
    let running_max = per_token("full.default");
    let [sum_exp, x_sum_exp, _sq_sum_exp, z_sum] = [(); 4].map(|()| per_token("zeros.default"));
    let max_before_target = per_token("full.default");
    let target_logit = per_token("zeros.default");
    let _tile = tile(context, FUNCTION, tokens, dtype);
    let mut hidden_chunk = None;
    for rows in chunks(tokens, TOKENS) {
        hidden_chunk = Some(hidden.narrow_any(0, rows).to(dtype));
        for entries in chunks(weight.size(0), VOCABULARY) {
            let _weight_chunk = weight.narrow_any(0, entries).to(dtype);
            context.need_cublas_workspace("mm.out");
            count_tile(context, [rows, hidden.size(1), entries], dtype);
        }
    }
    let log_z = {
        let log = sum_exp.unary("log.default", DType::Float32);
        running_max.binary("add.Tensor", &log, DType::Float32)
    };
    let log_probs = target_logit.binary("sub.Tensor", &log_z, DType::Float32);
    let entropy = outputs.entropy.then(|| {
        let mean = x_sum_exp.binary("div.Tensor", &sum_exp, DType::Float32);
        log_z.binary("sub.Tensor", &mean, DType::Float32)
    });
    let mean_logits = outputs.mean_logits.then(|| z_sum.unary("div.Tensor", DType::Float32));
    let is_top1 = outputs.is_top1.then(|| {
        let is_highest = target_logit.binary("ge.Tensor", &running_max, DType::Bool);
        let is_first = target_logit.binary("gt.Tensor", &max_before_target, DType::Bool);
        is_highest.binary("bitwise_and.Tensor", &is_first, DType::Bool)
    });
    drop(hidden_chunk);
    Statistics { log_z, log_probs, entropy, mean_logits, is_top1 }
}

/// Both gradients, summed up in fp32 and cast at the end.
fn backward(hidden: &Tensor, weight: &Tensor, dtype: DType, needs: [bool; 2]) -> [Option<Tensor>; 2] {
    let context = hidden.context();
    let zeros =
        |input: &Tensor, needed: bool| needed.then(|| full(context, "zeros.default", input.sizes(), DType::Float32));
    let hidden_grad = zeros(hidden, needs[0]);
    let weight_grad = zeros(weight, needs[1]);
    let _tile = tile(context, BACKWARD, hidden.size(0), dtype);
    let mut hidden_chunk = None;
    let mut weight_chunk = None;
    for rows in chunks(hidden.size(0), TOKENS) {
        hidden_chunk = Some(hidden.narrow_any(0, rows).to(dtype));
        for entries in chunks(weight.size(0), VOCABULARY) {
            weight_chunk = Some(weight.narrow_any(0, entries).to(dtype));
            context.need_cublas_workspace("mm.out");
            // The logits again, and a product for each gradient that is asked for.
            let products = 1 + needs.iter().filter(|needed| **needed).count();
            (0..products).for_each(|_| count_tile(context, [rows, hidden.size(1), entries], dtype));
        }
    }
    let cast = [
        hidden_grad.as_ref().map(|grad| grad.to(hidden.dtype())),
        weight_grad.as_ref().map(|grad| grad.to(weight.dtype())),
    ];
    drop((hidden_chunk, weight_chunk));
    cast
}

/// The buffer that every tile's logits are written to.
fn tile(context: &Rc<Context>, op: &'static str, tokens: u64, dtype: DType) -> Tensor {
    Tensor::empty(context, op, Shape::new(&[tokens.min(TOKENS), VOCABULARY]), dtype)
}

/// Counts a product of a chunk of hidden states, the weight's and their tile of logits: two of them make the third. A kernel
/// walks the tile after it.
fn count_tile(context: &Rc<Context>, [rows, width, entries]: [u64; 3], dtype: DType) {
    let bytes = |numel: u64| numel.saturating_mul(dtype.size());
    let tile = bytes(rows.saturating_mul(entries));
    context.count_product(&Product {
        dtype,
        flops: rows.saturating_mul(entries).saturating_mul(width).saturating_mul(2),
        skipped: 0,
        read: bytes(rows.saturating_add(entries).saturating_mul(width)),
        written: 0,
    });
    context.count_bytes(tile.saturating_mul(2));
}

/// The lengths of the chunks of `total`.
fn chunks(total: u64, size: u64) -> impl Iterator<Item = u64> {
    (0..total.div_ceil(size)).map(move |at| size.min(total - at * size))
}
