#!/usr/bin/env python3
"""How fast `tonnage train` and `tonnage generate` are beside the same loop in Python: CPU seconds of one thread, in turns, so that what
else the machine does meets both.

    python testdata/train/speed.py --tonnage target/release/tonnage [--rounds 5] [--folder FOLDER]

Run by a Python with torch and transformers, which is also the PyTorch of the trainer. Of a training the seconds of a step are the
difference between a long and a short one, so that start and end count for neither; of the Python loop those of its steps alone. A ratio
above 1 says that tonnage is faster. The time from the command to the first step's line is the clock's, and that of the processors beside it.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

REPOSITORY = Path(__file__).resolve().parents[2]
GPT2 = dict(model_type="gpt2", n_embd=96, n_layer=3, n_head=4, n_positions=512, vocab_size=256)
QWEN2 = dict(
    model_type="qwen2",
    hidden_size=256,
    intermediate_size=1024,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=4096,
    max_position_embeddings=512,
)
# Name, config, rows, tokens of a row, steps of the short and the long training. The first has the sizes of examples/lilwill-cpu.toml.
CASES = [
    ("gpt2 96 x 3, 12 x 64", GPT2, 12, 64, 10, 60),
    ("qwen2 256 x 4, 8 x 128", QWEN2, 8, 128, 4, 16),
]
# Tokens of the short and the long text.
TEXTS = (20, 320)
NO_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", TONNAGE_TORCH=sys.executable)


def cpu_seconds(words):
    """Of a command and what it starts, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in words], env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def full(config):
    return {**config, **(NO_DROPOUT if config["model_type"] == "gpt2" else {})}


def train_command(arguments, config, rows, tokens, steps, output):
    words = [arguments.tonnage, "trainer", "--set", "framework=loop", "--set", f"micro_batch_size={rows}"]
    words += ["--set", f"seq_len={tokens}", "--set", f"max_steps={steps}", "--set", "save_steps=1000000"]
    words += ["--set", "optimizer=adamw", "--set", "clip_grad_norm=1.0", "--set", "learning_rate=1e-3", "--set", "precision=fp32"]
    words += ["--set", "use_cache=false", "--set", "keep_outputs=false", "--set", f"output_dir={output}"]
    words += ["--data-train-files", REPOSITORY / "examples/stories.txt", "--data-tokenizer", "bytes", "--data-eval-share", "0"]
    for key, value in full(config).items():
        words += ["--set", f"model.{key}={value}"]
    return words


def ours_of_a_step(arguments, case, folder):
    name, config, rows, tokens, short, long = case
    seconds = []
    for steps in (short, long):
        output = folder / f"trained-{config['model_type']}-{steps}-{time.monotonic_ns()}"
        seconds.append(cpu_seconds(train_command(arguments, config, rows, tokens, steps, output))[0])
    return (seconds[1] - seconds[0]) / (long - short)


def python(job, *words):
    command = [sys.executable, __file__, "--as", job, *map(str, words)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def model_of(config):
    from transformers import AutoConfig, AutoModelForCausalLM

    kept = dict(full(config))
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kept.pop("model_type"), **kept))


def train_here(at):
    """The loop that `tonnage train` runs, in Python; prints CPU seconds of a step."""
    import torch

    _, config, rows, tokens, short, long = CASES[at]
    text = list((REPOSITORY / "examples/stories.txt").read_bytes())
    model = model_of(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, foreach=True)
    began = None
    for step in range(long):
        if step == short:
            began = time.process_time()
        start = step * rows * tokens
        ids = torch.tensor([text[start + row * tokens : start + (row + 1) * tokens] for row in range(rows)])
        loss = model(ids, labels=ids, use_cache=False).loss
        loss.item()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
    print((time.process_time() - began) / (long - short))


def generate_here(folder):
    """Hugging Face's generate, greedy, one row; prints CPU seconds of a token."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    prompt = torch.tensor([list(b"Once")])
    seconds = []
    for tokens in TEXTS:
        began = time.process_time()
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        seconds.append(time.process_time() - began)
    print((seconds[1] - seconds[0]) / (TEXTS[1] - TEXTS[0]))


def ours_of_a_token(arguments, checkpoint):
    seconds = []
    for tokens in TEXTS:
        taken, answer = cpu_seconds([arguments.tonnage, "generate", checkpoint, "Once", "-n", tokens, "--greedy", "--json"])
        made = len(json.loads(answer)["tokens"])
        if made != tokens:
            raise SystemExit(f"{made} tokens were made in place of {tokens}")
        seconds.append(taken)
    return (seconds[1] - seconds[0]) / (TEXTS[1] - TEXTS[0])


def paired(rounds, ours, theirs):
    """Medians of both, and of their ratio in each round."""
    pairs = []
    for at in range(rounds):
        # Whoever is first in one round is second in the next.
        if at % 2 == 0:
            of_ours, of_theirs = ours(), theirs()
        else:
            of_theirs, of_ours = theirs(), ours()
        pairs.append((of_ours, of_theirs))
    return median(pair[0] for pair in pairs), median(pair[1] for pair in pairs), median(pair[1] / pair[0] for pair in pairs)


def first_step(arguments, folder):
    """Seconds by the clock and of processors from the command to the first step's line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = folder / f"first-{time.monotonic_ns()}"
    words = [arguments.tonnage, "train", REPOSITORY / "examples/lilwill-cpu.toml", "--output-dir", output, "--max-steps", "1"]
    began = time.monotonic()
    child = subprocess.Popen([str(word) for word in words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = next((time.monotonic() - began for line in child.stdout if line.startswith("step 1/")), None)
    child.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(arguments):
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    rounds = arguments.rounds
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({platform.machine()}), load {os.getloadavg()[0]:.1f}, {rounds} rounds")
    for at, case in enumerate(CASES):
        ours, theirs, ratio = paired(rounds, lambda: ours_of_a_step(arguments, case, folder), lambda: python("train", at))
        print(f"training {case[0]}: {1000 * ours:.1f} ms a step, Python {1000 * theirs:.1f} ms: {ratio:.2f} times as fast", flush=True)
    for name, config, rows, tokens, *_ in CASES:
        output = folder / f"model-{config['model_type']}-{time.monotonic_ns()}"
        cpu_seconds(train_command(arguments, config, rows, tokens, 1, output))
        checkpoint = output / "checkpoint-1"
        ours, theirs, ratio = paired(rounds, lambda: ours_of_a_token(arguments, checkpoint), lambda: python("generate", checkpoint))
        print(f"generating {name.split(',')[0]}: {1 / ours:.0f} tokens a second, Python {1 / theirs:.0f}: {ratio:.2f} times as fast", flush=True)
    starts = [first_step(arguments, folder) for _ in range(rounds)]
    print(f"to the first step: {median(one[0] for one in starts):.1f} s, the whole command {median(one[1] for one in starts):.1f} CPU s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tonnage", default=str(REPOSITORY / "target/release/tonnage"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/tmp/tonnage-speed")
    parser.add_argument("--as", dest="job", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    match arguments.job:
        case ["train", at]:
            train_here(int(at))
        case ["generate", folder]:
            generate_here(folder)
        case _:
            measure(arguments)


if __name__ == "__main__":
    main()
