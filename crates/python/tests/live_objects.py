"""Run by test_torch.py: live objects of transformers, TRL and peft; prints what is asked of each as JSON."""

import json
import sys

import tonnage
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen2Config, TrainingArguments
from trl import DPOConfig, GRPOConfig, SFTConfig

# The arguments of a machine without a GPU: transformers takes bf16 there only so.
OUT = {"output_dir": sys.argv[1], "use_cpu": True}
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 5000}


def config():
    # A model keeps its config, and writes its dtype into it.
    return Qwen2Config(**SIZES)


with torch.device("meta"):
    on_meta = AutoModelForCausalLM.from_config(config())


def answer(*live, **keys):
    """The estimate's values, caveats about the objects, and what nobody understood."""
    try:
        found = tonnage.estimate(*live, gpu="h100", **keys)
    except tonnage.TonnageError as error:
        return {"error": f"{error.problem} {error.hint}"}
    read = found.to_dict().get("config", {"files": []})
    open_keys = [key["key"] for file in read["files"] for key in file["keys"] if key["became"] in ("noted", "refused", "not_understood")]
    return {
        "peak": found.peak_allocated_bytes,
        "verdict": found.verdict,
        "values": {value.key: value.value for value in found.job},
        "open": open_keys,
    }


def in_half():
    model = AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16)
    model.model.norm.float()
    return model


def frozen():
    model = AutoModelForCausalLM.from_config(config())
    model.model.embed_tokens.requires_grad_(False)
    return model


def with_a_head():
    model = AutoModelForCausalLM.from_config(config())
    model.reward = torch.nn.Linear(256, 1)
    return model


lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"])
in_16_bits = AutoModelForCausalLM.from_config(config(), dtype=torch.bfloat16)
said = {
    "config": answer(config()),
    "meta": answer(on_meta),
    "keywords": answer(config(), precision="fp32", micro_batch_size=2, seq_len=64, framework="trainer"),
    "arguments": answer(on_meta, TrainingArguments(**OUT, per_device_train_batch_size=2), seq_len=64),
    "bf16": answer(in_16_bits, TrainingArguments(**OUT, per_device_train_batch_size=2, bf16=True, gradient_checkpointing=True)),
    "sft": answer("Qwen/Qwen2.5-0.5B", SFTConfig(**OUT, max_length=256, per_device_train_batch_size=4)),
    "sft_of_model": answer(on_meta, SFTConfig(**OUT, max_length=256)),
    "dpo": answer("Qwen/Qwen2.5-0.5B", DPOConfig(**OUT, max_length=256)),
    "grpo": answer("Qwen/Qwen2.5-0.5B", GRPOConfig(**OUT, max_completion_length=64, num_generations=4, per_device_train_batch_size=4)),
    "lora": answer("Qwen/Qwen2.5-0.5B", SFTConfig(**OUT, max_length=64), lora),
    "peft_model": answer(get_peft_model(AutoModelForCausalLM.from_config(config()), lora), TrainingArguments(**OUT), seq_len=64),
    "four_bits": answer("Qwen/Qwen2.5-0.5B", SFTConfig(**OUT), BitsAndBytesConfig(load_in_4bit=True)),
    "no_bits": answer("Qwen/Qwen2.5-0.5B", SFTConfig(**OUT), BitsAndBytesConfig()),
    "in_half": answer(in_half(), TrainingArguments(**OUT)),
    "frozen": answer(frozen(), TrainingArguments(**OUT)),
    "with_a_head": answer(with_a_head(), TrainingArguments(**OUT)),
    "without_a_model": answer(SFTConfig(**OUT)),
    "compiled": answer(on_meta, TrainingArguments(**OUT, torch_compile=True)),
}
print(json.dumps(said))
