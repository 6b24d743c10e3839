"""The model that the scripts train, as `from_pretrained` would load it; TRL loads it in fp32 itself."""

import pathlib

import torch
from transformers import AutoConfig, AutoModelForCausalLM

CONFIG = AutoConfig.from_pretrained(pathlib.Path(__file__).parent.parent / "config.json")
ROWS = [{"input_ids": torch.randint(0, CONFIG.vocab_size, (512,)).tolist()} for _ in range(64)]


def model(dtype=CONFIG.dtype):
    return AutoModelForCausalLM.from_config(CONFIG, dtype=dtype)
