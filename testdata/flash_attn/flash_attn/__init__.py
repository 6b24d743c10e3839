"""Stands for flash-attn 2.8 where no GPU is: the same functions, which allocate what flash_attn_interface.py and mha_fwd and
mha_bwd of csrc/flash_attn/flash_api.cpp allocate, in their order, and compute nothing. What calls them, transformers, is real.
"""
import math

import torch

__version__ = "2.8.3"


def _rounded(size, multiple):
    return -(-size // multiple) * multiple


def _head_size_rounded(head_size):
    return _rounded(head_size, 32) if head_size <= 192 else 256


def _num_splits(blocks, slots, key_blocks):
    """num_splits_heuristic: the fewest splits within 85 % of the best occupancy."""
    if blocks >= 0.8 * slots:
        return 1
    most = min(128, slots, key_blocks)
    useful = [s for s in range(1, most + 1) if s == 1 or math.ceil(key_blocks / s) != math.ceil(key_blocks / (s - 1))]
    occupancy = {s: blocks * s / slots / math.ceil(blocks * s / slots) for s in useful}
    best = max(occupancy.values())
    return next(s for s in useful if occupancy[s] >= 0.85 * best)


def _forward(q, k, v, dropout_p, window_size):
    batch, seqlen_q, heads, head_size = q.shape
    seqlen_k, heads_k = k.shape[1], k.shape[2]
    local = any(0 <= side < seqlen_k for side in window_size)
    swapped = seqlen_q == 1 and heads > heads_k and not local and dropout_p == 0 and head_size % 8 == 0
    if swapped:
        groups = heads // heads_k
        q = q.reshape(batch, heads_k, groups, head_size).transpose(1, 2)
        seqlen_q, heads = groups, heads_k
    out = torch.empty_like(q)
    softmax_lse = torch.empty((batch, heads, seqlen_q), dtype=torch.float32, device=q.device)
    accumulators = []
    if dropout_p == 0:
        block = 256 if head_size <= 64 else 128 if head_size <= 128 else 64
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        splits = _num_splits(batch * heads * math.ceil(seqlen_q / 64), 2 * processors, math.ceil(seqlen_k / block))
        if splits > 1:
            for sizes in [(splits, batch, heads, seqlen_q), (splits, batch, heads, seqlen_q, _head_size_rounded(head_size))]:
                accumulators.append(torch.empty(sizes, dtype=torch.float32, device=q.device))
    rng_state = torch.empty((2,), dtype=torch.int64, device=q.device)
    if swapped:
        out = out.transpose(1, 2).reshape(batch, 1, heads_k * groups, head_size)
        softmax_lse = softmax_lse.reshape(batch, heads_k * groups, 1)
    return out, softmax_lse, rng_state


def _backward(dout, q, k, v, dq, dk, dv):
    batch, seqlen_q, heads, head_size = q.shape
    rows, heads_k = _rounded(seqlen_q, 128), k.shape[2]
    softmax_d = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    dq_accum = torch.empty((batch, rows, heads, _head_size_rounded(head_size)), dtype=torch.float32, device=q.device)
    if heads_k != heads:
        sizes = (batch, k.shape[1], heads, head_size)
        dk_expanded, dv_expanded = (torch.empty(sizes, dtype=q.dtype, device=q.device) for _ in range(2))
        grouped = (batch, k.shape[1], heads_k, heads // heads_k, head_size)
        torch.sum(dk_expanded.reshape(grouped), 3, out=dk)
        torch.sum(dv_expanded.reshape(grouped), 3, out=dv)
    return softmax_d


class FlashAttnFunc(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, dropout_p, window_size, is_grad_enabled):
        if q.dtype not in (torch.float16, torch.bfloat16):
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        is_grad = is_grad_enabled and any(x.requires_grad for x in [q, k, v])
        head_size_og = q.size(3)
        if head_size_og % 8 != 0:
            q, k, v = (torch.nn.functional.pad(x, [0, 8 - head_size_og % 8]) for x in (q, k, v))
        out_padded, softmax_lse, rng_state = _forward(q, k, v, dropout_p, window_size)
        if is_grad:
            ctx.save_for_backward(q, k, v, out_padded, softmax_lse, rng_state)
        return out_padded[..., :head_size_og]

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, softmax_lse, rng_state = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        head_size_og = dout.size(3)
        if head_size_og % 8 != 0:
            dout = torch.nn.functional.pad(dout, [0, 8 - head_size_og % 8])
        _backward(dout, q, k, v, dq, dk, dv)
        return (*(x[..., :head_size_og] for x in (dq, dk, dv)), None, None, None)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    return FlashAttnFunc.apply(q, k, v, dropout_p, window_size, torch.is_grad_enabled())


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
                           causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):
    raise NotImplementedError("rows of several lengths are not measured with this stand-in")


def flash_attn_with_kvcache(*args, **kwargs):
    raise NotImplementedError("paged caches are not measured with this stand-in")
