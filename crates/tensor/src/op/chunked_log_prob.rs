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
pub struct TokenOutputs {
    pub entropy: bool,
    pub mean_logits: bool,
    pub is_top1: bool,
}

/// What the function returns for each token; only log-probabilities and entropies are differentiable.
pub struct PerToken {
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

/// The function on `[tokens, width]` hidden states, a `[vocabulary, width]` weight and `[tokens]` targets.
pub fn chunked_log_probs(hidden: &Tensor, weight: &Tensor, targets: &Tensor, outputs: TokenOutputs) -> PerToken {
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
    each_chunk(context, tokens, TOKENS, |rows| {
        hidden_chunk = Some(hidden.narrow_any(0, rows).to(dtype));
        each_chunk(context, weight.size(0), VOCABULARY, |entries| {
            let _weight_chunk = weight.narrow_any(0, entries).to(dtype);
            context.need_cublas_workspace("mm.out");
            count_tile(context, [rows, hidden.size(1), entries], dtype);
        });
    });
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
    // The logits again, and a product for each gradient that is asked for.
    let products = 1 + needs.iter().filter(|needed| **needed).count();
    each_chunk(context, hidden.size(0), TOKENS, |rows| {
        hidden_chunk = Some(hidden.narrow_any(0, rows).to(dtype));
        each_chunk(context, weight.size(0), VOCABULARY, |entries| {
            weight_chunk = Some(weight.narrow_any(0, entries).to(dtype));
            context.need_cublas_workspace("mm.out");
            (0..products).for_each(|_| count_tile(context, [rows, hidden.size(1), entries], dtype));
        });
    });
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

/// So many first and last chunks are run of any number.
const RUN_WHOLE: u64 = 8;

/// Runs `chunk` for the lengths of the chunks of `total`. Each makes its copies before the last one's go, so that they lie in
/// two places by turns: of very many an even number of those between is left out, and all that follow find memory as it
/// would be. What they compute is counted.
fn each_chunk(context: &Context, total: u64, size: u64, mut chunk: impl FnMut(u64)) {
    let chunks = total.div_ceil(size);
    let left_out = left_out_of(chunks);
    let mut at = 0;
    while at < chunks {
        let moment = context.moment();
        chunk(size.min(total - at * size));
        at += 1;
        if at == RUN_WHOLE {
            context.compute_again(&moment, left_out);
            at += left_out;
        }
    }
}

/// How many of so many equal chunks are left out.
fn left_out_of(chunks: u64) -> u64 {
    if tests::runs_all() { 0 } else { chunks.saturating_sub(2 * RUN_WHOLE) / 2 * 2 }
}

#[cfg(not(test))]
mod tests {
    pub(super) const fn runs_all() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tonnage_alloc::trace::Trace;
    use tonnage_alloc::{AllocatorConfig, CachingAllocator, replay_trace};

    use super::*;
    use crate::Device;

    thread_local! {
        static ALL: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn runs_all() -> bool {
        ALL.get()
    }

    /// Rows of 4,096 tokens, vocabulary, dtype of the weights, whether autocast runs, whether the head is trained.
    type Head = (u64, u64, DType, bool, bool);

    /// Two steps of a layer and the head over it; and the operations that they count.
    fn train((rows, vocabulary, dtype, casts, trains_head): Head, all: bool) -> (Trace, u64) {
        ALL.set(all);
        let context = Context::new(Device { compute_capability: (9, 0), multiprocessors: 132 });
        let made = |sizes: &[u64]| Tensor::empty(&context, "empty.default", Shape::new(sizes), dtype);
        let (inputs, layer) = (made(&[rows * TOKENS, 64]), made(&[64, 64]).into_parameter());
        let head = made(&[vocabulary, 64]);
        let head = if trains_head { head.into_parameter() } else { head };
        let targets = Tensor::empty(&context, "empty.default", Shape::new(&[rows * TOKENS]), DType::Int64);
        for _ in 0..2 {
            let _autocast = context.autocast(casts.then_some(DType::Bfloat16));
            let hidden = inputs.linear(&layer, None);
            let outputs = TokenOutputs { entropy: true, ..TokenOutputs::default() };
            let loss = chunked_log_probs(&hidden, &head, &targets, outputs).log_probs.sum();
            drop(hidden);
            loss.backward();
        }
        context.end();
        ALL.set(false);
        let flops = context.take_work().iter().map(|phase| phase.amount.flops.total()).sum();
        (context.take_trace(), flops)
    }

    /// Allocated and reserved bytes, and whether it runs within so many bytes less.
    fn peaks(trace: &Trace, allocator: &str) -> ([u64; 2], Vec<bool>) {
        let config: AllocatorConfig = allocator.parse().unwrap();
        let replayed = replay_trace(&mut CachingAllocator::new(config.clone(), None), trace).unwrap().total;
        let reserved = replayed.peak_reserved;
        let within = |less: &u64| {
            replay_trace(&mut CachingAllocator::new(config.clone(), Some(reserved - less * (2 << 20))), trace).is_ok()
        };
        ([replayed.peak_allocated, reserved], (1..64).collect::<Vec<_>>().iter().map(within).collect())
    }

    #[test]
    fn chunks_that_are_left_out_change_no_peak_and_no_work() {
        for rows in [17, 18, 40, 41] {
            for (vocabulary, dtype, casts, trains_head) in [
                (500, DType::Float32, true, true),
                (500, DType::Bfloat16, false, false),
                (100_000, DType::Float32, true, true),
                (700_000, DType::Float32, true, true),
                (500, DType::Float32, true, false),
            ] {
                let head = (rows, vocabulary, dtype, casts, trains_head);
                let ((trace, flops), (all, all_flops)) = (train(head, false), train(head, true));
                assert_eq!(flops, all_flops, "{head:?}");
                for allocator in ["", "expandable_segments:True"] {
                    assert_eq!(peaks(&trace, allocator), peaks(&all, allocator), "{head:?} {allocator}");
                }
                let (events, all) = (trace.events.len(), all.events.len());
                assert!(events <= all, "{head:?}");
                // Without autocast nothing is cast chunk by chunk.
                assert!(events < all || rows < 40 || !casts, "{head:?}: {events} of {all}");
            }
        }
    }

    #[test]
    fn however_many_chunks_there_are_few_are_run() {
        let run = |chunks: u64| chunks - left_out_of(chunks);
        assert_eq!([1, 16, 17, 18, 19].map(run), [1, 16, 17, 16, 17]);
        assert!((0..1 << 12).all(|chunks| run(chunks) <= 17 && left_out_of(chunks).is_multiple_of(2)));
    }
}
