"""Writes cases.json: the jobs that the generic decoder is held against, for each model type that it stands in for.

    python make_cases.py > cases.json
    python ../rehearse/reference/measure_torch.py --stub --lib libtonnage_phantom.so --no-tags --cases cases.json --out truth.json
    cargo xtask architectures

Shapes, rows, dtypes, optimizers and attention differ from job to job and from type to type, so that no constant can be fitted
to them. The measuring script builds each model with `AutoModelForCausalLM.from_config`; models are small, since what a range
must hold is relative.
"""

import json
import random

#: Names of the fields, by model type, where they are not Llama's.
NAMES = {
    "bloom": {"layers": "n_layer", "heads": "n_head", "kv": None, "inner": None},
    "codegen": {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "kv": None, "inner": "n_inner", "positions": "n_positions"},
    "gptj": {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "kv": None, "inner": "n_inner", "positions": "n_positions"},
    "gpt_bigcode": {"hidden": "n_embd", "layers": "n_layer", "heads": "n_head", "kv": None, "inner": "n_inner", "positions": "n_positions"},
    "gpt_neo": {"layers": "num_layers", "heads": "num_heads", "kv": None},
    "gpt_neox": {"kv": None},
    "opt": {"inner": "ffn_dim", "kv": None},
    "falcon": {"inner": "ffn_hidden_size", "kv": None},
    "phi": {"kv": None},
}
LLAMA = {"hidden": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads", "kv": "num_key_value_heads",
         "inner": "intermediate_size", "positions": "max_position_embeddings"}
#: Classes without SDPA.
EAGER = {"bloom", "codegen", "gptj", "gpt_neo"}
HEAD_DIM = {"gemma", "helium", "seed_oss", "ernie4_5", "glm", "glm4", "ministral", "ministral3", "cwm", "arcee", "cohere2"}
#: Fields beside the sizes: the switches, in turn.
SWITCHES = {
    "granite": [{"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}, {"attention_bias": True}],
    "seed_oss": [{}, {"attention_dropout": 0.0, "residual_dropout": 0.0}],
    "stablelm": [{}, {"use_qkv_bias": True}, {"use_parallel_residual": True}],
    "cohere": [{}, {"use_qk_norm": True}],
    "gpt_neox": [{}, {"use_parallel_residual": False}, {"attention_bias": False}],
    "starcoder2": [{}, {"residual_dropout": 0.1, "embedding_dropout": 0.1}, {"sliding_window": 128}],
    "falcon": [{}, {"new_decoder_architecture": True, "num_kv_heads": 4}, {"multi_query": False, "parallel_attn": False, "bias": True}],
    "opt": [{}, {"dropout": 0.0}],
    "gpt_bigcode": [{}, {"multi_query": False}],
    "olmo3": [{}, {"sliding_window": 256}],
    "exaone4": [{}, {"sliding_window": 256}],
    "smollm3": [{}, {"no_rope_layer_interval": 2}],
    "arcee": [{}, {"mlp_bias": True}],
    "codegen": [{}, {"attn_pdrop": 0.1, "resid_pdrop": 0.1}],
}
TYPES = ["arcee", "bloom", "codegen", "cohere", "cohere2", "cwm", "ernie4_5", "exaone4", "falcon", "gemma", "glm", "glm4",
         "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "granite", "helium", "ministral", "ministral3", "olmo", "olmo2", "olmo3",
         "opt", "phi", "seed_oss", "smollm3", "stablelm", "starcoder2"]
#: Types that a family mirrors by now: drawn, so that the types after them keep their jobs, and left out.
MIRRORED = {"cohere", "cohere2", "glm", "glm4", "gpt_bigcode", "gpt_neox", "granite", "olmo", "olmo2", "olmo3", "opt", "phi", "smollm3", "stablelm",
            "starcoder2"}
#: hidden, layers, heads, key-value heads, inner, vocabulary
SHAPES = [(768, 6, 12, 4, 2048, 32000), (512, 8, 8, 8, 1792, 50304), (1024, 5, 16, 2, 4096, 64000), (640, 7, 10, 5, 2560, 100352),
          (1536, 3, 12, 12, 4608, 49152), (896, 6, 14, 2, 4864, 151936)]
JOBS = [
    {"micro_batch": 4, "seq_len": 512, "precision": "bf16"},
    {"micro_batch": 2, "seq_len": 389, "precision": "fp32", "clip_grad_norm": 1.0},
    {"micro_batch": 3, "seq_len": 600, "precision": "amp_bf16", "gradient_checkpointing": True, "optimizer": "adamw_fused", "grad_accum": 2},
    {"micro_batch": 2, "seq_len": 768, "precision": "bf16", "attn": "eager", "optimizer": "sgd"},
    {"micro_batch": 6, "seq_len": 1024, "precision": "bf16", "task": "inference_forward", "train_mode": False},
    {"micro_batch": 8, "seq_len": 256, "precision": "amp_fp16", "optimizer": "adafactor"},
]


def model(model_type, at, sizes):
    hidden, layers, heads, kv, inner, vocabulary = sizes
    names = dict(LLAMA, **NAMES.get(model_type, {}))
    sizes = {"hidden": hidden, "layers": layers, "heads": heads, "kv": kv, "inner": inner, "positions": 2048}
    fields = {"family": model_type, "vocab_size": vocabulary}
    fields.update({names[size]: value for size, value in sizes.items() if names[size]})
    if model_type in HEAD_DIM:
        fields["head_dim"] = hidden // heads
    if model_type == "bloom":
        fields.pop("max_position_embeddings")
    if model_type == "gpt_neo":
        fields["attention_types"] = [[["global", "local"], layers // 2], [["global"], layers % 2]] if layers % 2 else [[["global", "local"], layers // 2]]
    if model_type in ("gptj", "codegen"):
        fields["rotary_dim"] = 32
    if model_type == "codegen":  # its query-key-value matrix is cut into four
        fields["n_head"] = {10: 20, 14: 28}.get(heads, heads)
    if model_type in ("glm", "glm4", "smollm3"):
        fields["pad_token_id"] = None
    switches = SWITCHES.get(model_type, [{}])
    fields.update(switches[at % len(switches)])
    return fields


#: Names of linear layers that every class has one of, for adapters.
TARGETS = {"bloom": ["query_key_value"], "falcon": ["query_key_value", "dense"], "gpt_neox": ["query_key_value"], "codegen": ["qkv_proj"],
           "gpt_bigcode": ["c_attn"]}


def mixed(model_type, at, draw):
    """A job of random sizes: other widths, rows, dtypes and optimizers than the six above, adapters and generation."""
    head_dim, heads = draw.choice([32, 40, 64, 80, 96]), draw.choice([4, 8, 12, 16])
    hidden = head_dim * heads
    sizes = (hidden, draw.randint(2, 9), heads, draw.choice([1, 2, 4, heads]), draw.choice([2, 3, 4]) * hidden + 8 * draw.randint(0, 7),
             draw.choice([5003, 32000, 50257, 65536, 100352, 151936, 256000]))
    if model_type == "falcon":
        sizes = sizes[:3] + (heads,) + sizes[4:]
    case = {"id": f"{model_type}_x{at + 1}", "model": model(model_type, at + 1, sizes), "micro_batch": draw.choice([1, 2, 3, 5, 8]),
            "seq_len": draw.choice([64, 129, 256, 500, 1024, 1500]), "precision": draw.choice(["bf16", "bf16", "fp32", "amp_bf16", "amp_fp16"]),
            "optimizer": draw.choice(["adamw", "adamw_fused", "sgd_momentum", "adamw_forloop"]), "grad_accum": draw.choice([1, 1, 2]),
            "attn": draw.choice(["sdpa", "sdpa", "eager"]), "gradient_checkpointing": draw.random() < 0.3}
    if at == 3:
        case["lora"] = {"r": 8, "alpha": 16, "dropout": draw.choice([0.0, 0.05]), "targets": TARGETS.get(model_type, ["q_proj", "v_proj"])}
    if at == 4:
        case.update(task="generate", max_new_tokens=draw.choice([8, 40]), use_cache=True, train_mode=False, precision="bf16",
                    gradient_checkpointing=False, grad_accum=1, seq_len=min(case["seq_len"], 512))
    return case


def main():
    cases, draw = [], random.Random(20261122)
    for model_type in TYPES:
        cases_of_type = [mixed(model_type, at, draw) for at in range(6)]
        for case in cases_of_type:
            if model_type in EAGER:
                case["attn"] = "eager"
        cases += cases_of_type
    for model_type in TYPES:
        for at, job in enumerate(JOBS):
            case = {"id": f"{model_type}_{at + 1}", "model": model(model_type, at, SHAPES[(at + len(model_type)) % len(SHAPES)]), **job}
            if model_type in EAGER:
                case["attn"] = "eager"
            cases.append(case)
    cases = [case for case in cases if case["model"]["family"] not in MIRRORED]
    print("[" + ",\n ".join(json.dumps(case) for case in cases) + "]")


main()
