#!/usr/bin/env python3
"""Measures testdata/truth/flash_attn_cases.json: transformers' own code over the phantom library, with the package beside this
script in flash-attn's place.

    measure.py --lib libtonnage_phantom.so --out flash_attn.json [--only id,id]
    measure.py --lib libtonnage_phantom.so --check               # against testdata/truth/flash_attn_truth.json

Without data one more test cannot be answered: flash_attention_mask's `attention_mask.all()` is taken for true, as it is for rows
without padding. Each case runs in a process of its own, since to import the package's users asks for a device.
"""
import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REFERENCE = os.path.join(HERE, "..", "rehearse", "reference")
TRUTH = os.path.join(HERE, "..", "truth")
FIGURES = ("peak_allocated_bytes", "rounded512_peak_bytes", "peak_reserved_bytes", "peak_phase", "peak_per_phase")


def answer_masks():
    """What `flash_attention_mask` returns for rows without padding, after the same operations."""
    import transformers.masking_utils as masking

    def flash_attention_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, **kwargs):
        if attention_mask is not None:
            attention_mask = attention_mask[:, -kv_length:]
            if attention_mask.shape[1] == kv_length:
                attention_mask.all()
        return None

    masking.ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"] = flash_attention_mask


def run_one():
    """One case, in this process: the reference script with the stand-in on its path."""
    sys.path[:0] = [HERE, REFERENCE]
    if "LD_PRELOAD" in os.environ:
        answer_masks()
    sys.argv.remove("--one")
    arguments, sys.argv = sys.argv, [os.path.join(REFERENCE, "measure_torch.py"), *sys.argv[1:]]
    # The reference script starts itself again with the phantom: that must be this script.
    execve = os.execve
    os.execve = lambda path, argv, env: execve(path, [argv[0], arguments[0], "--one", *arguments[1:]], env)
    runpy.run_path(sys.argv[0], run_name="__main__")


def measured(case, library, folder):
    path, out = os.path.join(folder, "case.json"), os.path.join(folder, "out.json")
    with open(path, "w") as file:
        json.dump(case, file)
    environment = dict(os.environ, TONNAGE_PHANTOM_QUIET="1", PYTHONWARNINGS="ignore", PYTHONHASHSEED="1")
    command = [sys.executable, os.path.abspath(__file__), "--one", "--no-tags", "--stub", "--lib", library, "--case", path, "--out", out]
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode or not os.path.exists(out):
        raise SystemExit(f"measure.py: {case['id']} ended with {done.returncode}\n{done.stderr[-2000:]}")
    with open(out) as file:
        result = json.load(file)
    os.remove(out)
    result = result.get(case["id"], result)
    if "error" in result:
        raise SystemExit(f"measure.py: {case['id']}: {result['error'][-2000:]}")
    return {figure: result[figure] for figure in FIGURES if figure in result}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--out")
    parser.add_argument("--only")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    with open(os.path.join(TRUTH, "flash_attn_cases.json")) as file:
        cases = json.load(file)
    if arguments.only:
        cases = [case for case in cases if case["id"] in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        results = {case["id"]: measured(case, os.path.abspath(arguments.lib), folder) for case in cases}
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump(results, file, indent=1)
    if arguments.check:
        with open(os.path.join(TRUTH, "flash_attn_truth.json")) as file:
            truth = json.load(file)["cases"]
        wrong = [name for name, figures in results.items() if any(truth[name].get(key) != value for key, value in figures.items())]
        print(f"{len(results) - len(wrong)} of {len(results)} cases are equal", *wrong)
        sys.exit(bool(wrong))


if __name__ == "__main__":
    run_one() if "--one" in sys.argv else main()
