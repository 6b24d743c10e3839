#!/usr/bin/env python3
"""What transformers computes with small models of every family: weights, logits, loss, gradients and decoding, a safetensors file and
a JSON file a case. crates/train/tests/families.rs computes the same.

    python testdata/train/families.py --out FOLDER [CASE ...]

transformers 5.17, fp32 on the CPU. A case's config holds the keys that are not defaults, as a config.json may write them.
"""

import argparse
import json
import math
from importlib.machinery import SourceFileLoader
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

ROWS, TOKENS, PROMPT = 2, 12, 8
DECODER = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
GPT2 = dict(vocab_size=97, n_positions=64, n_embd=48, n_layer=3, n_head=4)
BERT = dict(
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=64,
)
TWO_KINDS = ["sliding_attention", "full_attention"] * 2
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = dict(factor=4.0, original_max_position_embeddings=16)


def rope(rope_type, theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=rope_type, rope_theta=theta, **more))


def long_factors(count, **more):
    short = [1.0 + 0.3 * at for at in range(count)]
    return dict(short_factor=short, long_factor=[2 * one for one in short], original_max_position_embeddings=16, **more)


def case(name, model_type, base, attention="sdpa", lora=None, padding=None, **config):
    return dict(
        name=name,
        model_type=model_type,
        config={**base, **config},
        attention=attention,
        lora=lora,
        padding=padding,
    )


def cases():
    yield case("gpt2", "gpt2", GPT2)
    yield case("gpt2_no_dropout", "gpt2", GPT2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    upcast = dict(scale_attn_by_inverse_layer_idx=True, reorder_and_upcast_attn=True)
    yield case("gpt2_upcast", "gpt2", GPT2, "eager", **upcast)
    yield case("gpt2_eager", "gpt2", GPT2, "eager", layer_norm_epsilon=1e-2)
    other = dict(n_inner=64, activation_function="gelu", scale_attn_weights=False, tie_word_embeddings=False)
    yield case("gpt2_other", "gpt2", GPT2, initializer_range=0.1, **other)
    yield case("gpt2_padded", "gpt2", GPT2, padding="left")
    yield case("llama", "llama", DECODER)
    yield case("llama_eager", "llama", DECODER, "eager", rms_norm_eps=1e-2)
    yield case("llama_biases", "llama", DECODER, attention_bias=True, mlp_bias=True, hidden_act="gelu_pytorch_tanh", head_dim=10)
    yield case("llama_padding_row", "llama", DECODER, pad_token_id=5, initializer_range=0.3)
    yield case("llama_padded_left", "llama", DECODER, padding="left")
    yield case("llama_padded_right", "llama", DECODER, "eager", padding="right")
    yield case("llama_rope_llama3", "llama", DECODER, **rope("llama3", 500000.0, **LLAMA3))
    yield case("llama_rope_linear", "llama", DECODER, **rope("linear", factor=4.0))
    yield case("llama_rope_yarn", "llama", DECODER, **rope("yarn", **YARN))
    yield case("llama_rope_yarn_mscale", "llama", DECODER, **rope("yarn", mscale=0.7, mscale_all_dim=1.3, beta_fast=8, **YARN))
    yield case("llama_rope_yarn_plain", "llama", DECODER, **rope("yarn", attention_factor=0.8, truncate=False, **YARN))
    # Within the length of the first training: a row has 12 tokens.
    yield case("llama_rope_dynamic", "llama", DECODER, **rope("dynamic", factor=4.0))
    yield case("llama_rope_longrope", "llama", DECODER, **rope("longrope", **long_factors(4)))
    yield case("llama_rope_longrope_plain", "llama", DECODER, **rope("longrope", attention_factor=1.3, **long_factors(4)))
    yield case("llama_old_keys", "llama", DECODER, rope_theta=500.0, rope_scaling=dict(type="linear", factor=3.0))
    yield case("llama_old_llama3", "llama", DECODER, rope_theta=500.0, rope_scaling=dict(rope_type="llama3", **LLAMA3))
    yield case("llama_lora", "llama", DECODER, lora=dict(r=4, alpha=12.0, targets=["q_proj", "v_proj", "down_proj"]))
    yield case("qwen2", "qwen2", DECODER, **rope("default", 1e6))
    window = dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)
    yield case("qwen2_tied_window", "qwen2", DECODER, tie_word_embeddings=True, **window)
    yield case("qwen2_window_eager", "qwen2", DECODER, "eager", **window)
    yield case("qwen3", "qwen3", DECODER, head_dim=8)
    yield case("qwen3_tied", "qwen3", DECODER, "eager", head_dim=16, tie_word_embeddings=True, attention_bias=True)
    yield case("smollm3", "smollm3", DECODER, pad_token_id=0, no_rope_layer_interval=2, **rope("default", 2e6))
    windows = dict(use_sliding_window=True, sliding_window=5, no_rope_layers=[0, 1, 0])
    yield case("smollm3_window", "smollm3", DECODER, "eager", pad_token_id=0, tie_word_embeddings=False, **windows)
    numbers = dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.25, logits_scaling=4.0)
    yield case("granite", "granite", DECODER, pad_token_id=0, **numbers)
    switches = dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, residual_multiplier=0.22)
    yield case("granite_eager", "granite", DECODER, "eager", pad_token_id=0, **switches)
    yield case("olmo", "olmo", DECODER, clip_qkv=0.05)
    yield case("olmo_eager", "olmo", DECODER, "eager", attention_bias=True, tie_word_embeddings=True, pad_token_id=None)
    yield case("olmo2", "olmo2", DECODER, rms_norm_eps=1e-2)
    yield case("olmo2_eager", "olmo2", DECODER, "eager", attention_bias=True, tie_word_embeddings=True)
    olmoe = dict(num_experts=6, num_experts_per_tok=2, intermediate_size=24)
    yield case("olmoe", "olmoe", DECODER | olmoe, clip_qkv=0.5, rms_norm_eps=1e-2)
    yield case("olmoe_eager", "olmoe", DECODER | olmoe, "eager", norm_topk_prob=True, attention_bias=True, experts_implementation="batched_mm")
    yield case("olmo3", "olmo3", {**DECODER, "num_hidden_layers": 4}, sliding_window=5)
    two = dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=5000.0), sliding_attention=dict(rope_type="default"))
    yield case("olmo3_two", "olmo3", {**DECODER, "num_hidden_layers": 4}, "eager", sliding_window=5, rope_parameters=two)
    neox = {name: value for name, value in DECODER.items() if name != "num_key_value_heads"}
    yield case("gpt_neox", "gpt_neox", neox, rotary_pct=0.5, rotary_emb_base=500)
    yield case("gpt_neox_eager", "gpt_neox", neox, "eager", use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True)
    still = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    yield case("gpt_bigcode", "gpt_bigcode", GPT2, **still)
    heads = dict(multi_query=False, scale_attn_weights=False, n_inner=64, activation_function="gelu", tie_word_embeddings=False)
    yield case("gpt_bigcode_eager", "gpt_bigcode", GPT2, "eager", layer_norm_epsilon=1e-2, **heads, **still)
    opt = {name: value for name, value in neox.items() if name != "intermediate_size"} | dict(ffn_dim=80, dropout=0.0)
    yield case("opt", "opt", opt)
    behind = dict(do_layer_norm_before=False, word_embed_proj_dim=20, init_std=0.1)
    yield case("opt_behind", "opt", opt, "eager", **behind)
    yield case("opt_padded", "opt", opt, padding="left", enable_bias=False)
    yield case("phi", "phi", DECODER)
    yield case("phi_eager", "phi", DECODER, "eager", partial_rotary_factor=0.25, qk_layernorm=True)
    yield case("starcoder2", "starcoder2", DECODER, sliding_window=5)
    yield case("starcoder2_eager", "starcoder2", DECODER, "eager", use_bias=False, norm_epsilon=1e-2, tie_word_embeddings=False)
    yield case("stablelm", "stablelm", DECODER, use_qkv_bias=True)
    yield case("stablelm_eager", "stablelm", DECODER, "eager", use_parallel_residual=True, partial_rotary_factor=0.5)
    yield case("cohere", "cohere", DECODER, logit_scale=0.5)
    yield case("cohere_eager", "cohere", DECODER, "eager", use_qk_norm=True, attention_bias=True, layer_norm_eps=1e-2)
    yield case("cohere2", "cohere2", {**DECODER, "num_hidden_layers": 4}, sliding_window=5)
    yield case("cohere2_eager", "cohere2", DECODER, "eager", sliding_window=5, sliding_window_pattern=2, tie_word_embeddings=False)
    yield case("glm", "glm", DECODER, pad_token_id=0, head_dim=8)
    yield case("glm_eager", "glm", DECODER, "eager", pad_token_id=0, head_dim=12, partial_rotary_factor=1.0, attention_bias=False)
    yield case("glm4", "glm4", DECODER, pad_token_id=0, head_dim=8)
    yield case("glm4_eager", "glm4", DECODER, "eager", pad_token_id=0, head_dim=16, attention_bias=False, rms_norm_eps=1e-2)
    few = dict(num_local_experts=6, num_experts_per_tok=2, intermediate_size=24, head_dim=8)
    yield case("gpt_oss", "gpt_oss", DECODER | few, "eager", sliding_window=5)
    plain = dict(attention_bias=False, layer_types=["full_attention", "sliding_attention", "full_attention"], sliding_window=7)
    yield case("gpt_oss_batched", "gpt_oss", DECODER | few, "eager", experts_implementation="batched_mm", tie_word_embeddings=True, **plain, **rope("default", 5e3))
    routed = dict(moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3, head_dim=8, pad_token_id=0)
    yield case("glm4_moe", "glm4_moe", DECODER, **routed, n_group=4, topk_group=2, routed_scaling_factor=1.5)
    switches = dict(use_qk_norm=True, attention_bias=True, norm_topk_prob=False, n_shared_experts=2, first_k_dense_replace=2)
    yield case("glm4_moe_eager", "glm4_moe", DECODER, "eager", **routed, **switches, experts_implementation="batched_mm")
    latent = {**DECODER, "num_key_value_heads": 6} | dict(q_lora_rank=20, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
    del routed["head_dim"]
    groups = dict(n_group=4, topk_group=2, first_k_dense_replace=1)
    yield case("deepseek_v3", "deepseek_v3", latent, **routed, **groups)
    more = dict(q_lora_rank=None, rope_interleave=False, attention_bias=True, norm_topk_prob=False, **rope("yarn", mscale=1.0, mscale_all_dim=0.7, **YARN))
    yield case("deepseek_v3_eager", "deepseek_v3", latent, "eager", **routed, **groups, **more)
    yield case("mistral", "mistral", DECODER, sliding_window=5)
    yield case("mistral_eager", "mistral", DECODER, "eager", sliding_window=5)
    yield case("mistral_no_window", "mistral", DECODER, sliding_window=None)
    yield case("mistral_padded", "mistral", DECODER, sliding_window=5, padding="left")
    yield case("mixtral", "mixtral", DECODER, num_local_experts=4)
    yield case("mixtral_eager", "mixtral", DECODER, "eager", num_local_experts=6, num_experts_per_tok=3, sliding_window=5)
    yield case("mixtral_batched", "mixtral", DECODER, num_local_experts=4, experts_implementation="batched_mm")
    experts = dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12, head_dim=8)
    yield case("qwen3_moe", "qwen3_moe", DECODER, **experts)
    yield case("qwen3_moe_normalized", "qwen3_moe", DECODER, "eager", norm_topk_prob=True, mlp_only_layers=[1], **experts)
    yield case("qwen3_moe_sparse_step", "qwen3_moe", DECODER, decoder_sparse_step=2, use_sliding_window=True, sliding_window=5, **experts)
    partial = rope("default", partial_rotary_factor=0.5)
    yield case("phi3", "phi3", DECODER, pad_token_id=0, **partial)
    yield case("phi3_window", "phi3", DECODER, "eager", pad_token_id=0, sliding_window=5)
    yield case("phi3_old_keys", "phi3", DECODER, pad_token_id=0, rope_theta=500.0, partial_rotary_factor=0.75, head_dim=16)
    yield case("phi3_longrope", "phi3", DECODER, pad_token_id=0, original_max_position_embeddings=16, **rope("longrope", **long_factors(4)))
    gemma = dict(head_dim=8, sliding_window=5)
    yield case("gemma2", "gemma2", DECODER, "eager", query_pre_attn_scalar=16, **gemma)
    yield case("gemma2_sdpa", "gemma2", DECODER, **gemma)
    caps = dict(attn_logit_softcapping=2.0, final_logit_softcapping=1.5)
    yield case("gemma2_caps", "gemma2", DECODER, "eager", **caps, **gemma)
    yield case("gemma2_no_caps", "gemma2", DECODER, "eager", attn_logit_softcapping=None, final_logit_softcapping=None, **gemma)
    yield case("gemma3", "gemma3_text", DECODER, **gemma)
    four = dict(num_hidden_layers=4, layer_types=TWO_KINDS)
    yield case("gemma3_two", "gemma3_text", {**DECODER, **four}, **gemma)
    yield case("gemma3_eager", "gemma3_text", {**DECODER, **four}, "eager", final_logit_softcapping=2.0, **gemma)
    nested = dict(
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=5000.0),
        sliding_attention=dict(rope_type="default", rope_theta=700.0),
    )
    yield case("gemma3_nested", "gemma3_text", {**DECODER, **four}, rope_parameters=nested, **gemma)
    old = dict(rope_theta=5000.0, rope_local_base_freq=700.0, rope_scaling=dict(rope_type="linear", factor=8.0))
    yield case("gemma3_old_keys", "gemma3_text", {**DECODER, **four}, **old, **gemma)
    yield case("bert", "bert", BERT)
    yield case("bert_eager", "bert", BERT, "eager", hidden_act="relu", layer_norm_eps=1e-3)
    yield case("bert_untied", "bert", BERT, tie_word_embeddings=False)
    small = dict(vocab_size=97, n_embd=48, n_layer=3, n_head=4, embd_pdrop=0.0, attn_pdrop=0.0)
    yield case("agi2", "agi2", small, tie_word_embeddings=True)
    yield case("agi2_untied", "agi2", small, tie_word_embeddings=False)
    yield case("gpt2_lora", "gpt2", GPT2, lora=dict(r=3, alpha=6.0, targets=["c_attn"]))


def agi2(one):
    """The guide's small GPT, under the names that its own source has."""
    module = SourceFileLoader("agi2", str(Path(__file__).parents[1] / "steps" / "agi2.py")).load_module()
    config = one["config"]
    model = module.SmallGpt(97, TOKENS, config["n_embd"], config["n_layer"], config["n_head"], 0.0, config["tie_word_embeddings"])
    width = config["n_embd"]
    angles = torch.arange(TOKENS).unsqueeze(1) * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    model.places.table[:, 0::2], model.places.table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return model


#: Names of testdata/steps/agi2.py, and those of the trainer's source.
AGI2_NAMES = {
    "embeddings.table": "token_embeddings.embedding",
    "blocks": "transformer_blocks",
    "attention.query": "attention.w_q",
    "attention.key": "attention.w_k",
    "attention.value": "attention.w_v",
    "attention.out": "attention.w_o",
    "feed_forward.up": "feed_forward.fc1",
    "feed_forward.down": "feed_forward.fc2",
    "norms.0": "ln1",
    "norms.1": "ln2",
    "norm.": "ln_f.",
    "head": "output_projection",
}


class Lora(torch.nn.Module):
    """peft's `lora.Linear` without dropout: `base(x) + lora_B(lora_A(x)) * alpha / r`."""

    def __init__(self, base, r, alpha):
        super().__init__()
        transposed = type(base).__name__ == "Conv1D"
        outputs, inputs = reversed(base.weight.shape) if transposed else base.weight.shape
        self.base, self.scaling = base, alpha / r
        self.lora_A = torch.nn.Linear(inputs, r, bias=False)
        self.lora_B = torch.nn.Linear(r, outputs, bias=False)
        torch.nn.init.normal_(self.lora_B.weight, std=0.1)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x)) * self.scaling


def adapt(model, r, alpha, targets):
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for name, module in list(model.named_modules()):
        parent, _, last = name.rpartition(".")
        if last in targets:
            setattr(model.get_submodule(parent), last, Lora(module, r, alpha))


def build(one):
    if one["model_type"] == "agi2":
        return agi2(one)
    config = transformers.AutoConfig.for_model(one["model_type"], **json.loads(json.dumps(one["config"])))
    kind = transformers.AutoModelForMaskedLM if one["model_type"] == "bert" else transformers.AutoModelForCausalLM
    return kind.from_config(config, attn_implementation=one["attention"])


def padded(ids, side):
    mask = torch.ones_like(ids)
    if side == "left":
        mask[0, :3] = 0
    else:
        mask[1, -4:] = 0
    return mask


def correction_biases(model):
    """Buffers that checkpoints have: what routers add to scores before they choose."""
    return [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")]


def compute(one):
    torch.manual_seed(0)
    model = build(one)
    initial = {} if one["model_type"] == "agi2" else {name: [float(p.detach().mean()), float(p.detach().std(correction=0))] for name, p in [*model.named_parameters(), *correction_biases(model)]}
    with torch.no_grad():
        # No norm's weight stays 1, no bias 0.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.dim() == 1 else 0.05))
        for _, bias in correction_biases(model):
            bias.add_(torch.randn_like(bias) * 0.1)
    if one["lora"]:
        adapt(model, **one["lora"])
    model.eval()
    ids = torch.randint(0, 97, (ROWS, TOKENS))
    ids[0, 3] = ids[1, 5] = 0
    tensors = {"ids": ids}
    inputs = dict(input_ids=ids, labels=ids)
    if one["padding"]:
        tensors["mask"] = inputs["attention_mask"] = padded(ids, one["padding"])
        inputs["labels"] = tensors["labels"] = ids.masked_fill(tensors["mask"] == 0, -100)
    if one["model_type"] == "agi2":
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 97), ids[:, 1:].reshape(-1))
    else:
        logits, loss = (output := model(**inputs)).logits, output.loss
    loss.backward()
    tensors |= {"logits": logits.detach(), "loss": loss.detach()}
    for name, parameter in model.named_parameters():
        name = name.replace(".base.", ".")
        for ours, theirs in AGI2_NAMES.items() if one["model_type"] == "agi2" else ():
            name = name.replace(ours, theirs)
        tensors["weight." + name] = parameter.detach().clone()
        if parameter.grad is not None:
            tensors["gradient." + name] = parameter.grad.clone()
    for name, bias in correction_biases(model):
        tensors["weight." + name] = bias.clone()
    if one["model_type"] not in ("bert", "agi2") and one["padding"] != "right":
        tensors["decoded"] = decode(model, ids, tensors.get("mask"))
    return {name: tensor.contiguous() for name, tensor in tensors.items()}, initial


@torch.no_grad()
def decode(model, ids, mask):
    """A prompt, then a token at a time: the logits of each."""
    positions = None if mask is None else (mask.cumsum(-1) - 1).clamp(min=0)
    cache, steps = None, []
    for start, end in [(0, PROMPT)] + [(at, at + 1) for at in range(PROMPT, TOKENS)]:
        more = {} if mask is None else dict(attention_mask=mask[:, :end], position_ids=positions[:, start:end])
        output = model(input_ids=ids[:, start:end], past_key_values=cache, use_cache=True, **more)
        cache = output.past_key_values
        steps.append(output.logits[:, -1])
    return torch.stack(steps, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("case", nargs="*")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    for one in cases():
        if arguments.case and one["name"] not in arguments.case:
            continue
        tensors, initial = compute(one)
        save_file(tensors, arguments.out / f"{one['name']}.safetensors")
        text = json.dumps({**one, "initial": initial}, indent=1)
        (arguments.out / f"{one['name']}.json").write_text(text)


if __name__ == "__main__":
    main()
