"""Run by test_same_file.py: a model and rows of the right length for trainers that have no network, and a script of run_clm's kind.

    trainers.py make FOLDER TOKENS      a small Qwen2 with a tokenizer in FOLDER/model, rows of TOKENS in FOLDER/rows
    trainers.py clm FILE                transformers' Trainer, told by a JSON file alone
"""

import dataclasses
import json
import sys
from pathlib import Path


def make(folder, tokens):
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2Tokenizer

    config = Qwen2Config(
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=3000,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "model")
    # Of single letters, so that a text of so many letters is so many tokens.
    words = {**{f"w{index}": index for index in range(4)}, **{sign: 4 + index for index, sign in enumerate(sorted(ByteLevel.alphabet()))}}
    tokenizer = Qwen2Tokenizer(vocab=words, merges=[], bos_token="w0", eos_token="w1", unk_token="w2", pad_token="w3")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    tokenizer.save_pretrained(folder / "model")
    row = {"input_ids": [5 + index % 2000 for index in range(tokens)]}
    (folder / "rows").mkdir()
    (folder / "rows" / "train.jsonl").write_text((json.dumps(row) + "\n") * 64)
    # TRL ends answers with a token.
    answer = tokens - tokens // 2 - 1
    pair = {"prompt": "a" * (tokens // 2), "chosen": "b" * answer, "rejected": "c" * answer}
    (folder / "pairs").mkdir()
    (folder / "pairs" / "train.jsonl").write_text((json.dumps(pair) + "\n") * 64)
    (folder / "prompts").mkdir()
    (folder / "prompts" / "train.jsonl").write_text((json.dumps({"prompt": "a" * (tokens // 2)}) + "\n") * 64)
    (folder / "rewards.py").write_text("def constant(completions, **others):\n    return [0.0] * len(completions)\n")


@dataclasses.dataclass
class Script:
    """What run_clm.py is told beside `TrainingArguments`."""

    model_name_or_path: str = ""
    block_size: int = 64


def clm(file):
    import torch
    from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

    script, arguments = HfArgumentParser((Script, TrainingArguments)).parse_json_file(file)
    model = AutoModelForCausalLM.from_pretrained(script.model_name_or_path)
    row = {name: torch.ones(script.block_size, dtype=torch.long) for name in ("input_ids", "labels", "attention_mask")}
    Trainer(model, arguments, train_dataset=[row] * 64).train()


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        clm(sys.argv[2])
