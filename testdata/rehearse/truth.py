#!/usr/bin/env python3
"""The reference figures of testdata/truth, measured again: real PyTorch over the phantom library must give every figure to
the byte. Run it with the environment of requirements.txt (environment.sh makes it).

    truth.py --library libtonnage_phantom.so                         # the training steps: 41 cases
    truth.py --library libtonnage_phantom.so --sets torch parallel rl
    truth.py --library libtonnage_phantom.so --sets rl --only trl_q05x4_b8_c64_amp
    truth.py --library libtonnage_phantom.so --sets agi2 --agi2 AGI2 # of a checkout of roby2358/agi2 at 6e54453, as far as it has switches
    truth.py --library libtonnage_phantom.so --sets hrm --hrm HRM    # needs a checkout of sapientinc/HRM

Compared are the peaks of allocated and reserved memory, the phase of the peak, and every phase's own peak.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TRUTH = os.path.join(HERE, "..", "truth")
REFERENCE = os.path.join(HERE, "reference")
TORCH = (os.path.join(REFERENCE, "measure_torch.py"), "--no-tags")
RL = (os.path.join(REFERENCE, "measure_rl.py"), "--no-trace")
PARALLEL = (os.path.join(REFERENCE, "measure_parallel.py"), "--no-trace")
HRM = (os.path.join(REFERENCE, "measure_hrm.py"), "--no-trace")
DPO = (os.path.join(HERE, "..", "steps", "measure_dpo.py"), "--no-trace")
TRAINER = (os.path.join(HERE, "..", "steps", "measure_trainer.py"), "--no-trace")
AGI2 = (os.path.join(HERE, "..", "steps", "measure_agi2.py"), "--no-trace")
#: Set -> the script that measures it. The set `torch` is cases.json itself.
SETS = {
    "torch": TORCH, "mixed": TORCH, "rl": RL, "grpo_mixed": RL, "swarm_mixed": RL, "parallel": PARALLEL, "ddp_mixed": PARALLEL,
    "fsdp_mixed": PARALLEL, "dpo": DPO, "trainer": TRAINER, "hrm": HRM, "hrm_mixed": HRM, "agi2": AGI2,
}
#: transformers 5.17 makes Gemma 3's two rotary tables in the order of a Python set of strings, which varies from run to run
#: and with it the place of 2 MiB; under this seed it is the order that the reference happened to have.
HASH_SEED = "1"
FIGURES = ("peak_allocated_bytes", "peak_reserved_bytes", "peak_phase", "peak_per_phase")


def measured(name, arguments, folder):
    script, counters_only = SETS[name]
    prefix = "" if name == "torch" else f"{name}_"
    out = os.path.join(folder, f"{name}.json")
    command = [sys.executable, script, "--stub", counters_only, "--lib", arguments.library, "--cases", os.path.join(TRUTH, f"{prefix}cases.json"), "--out", out]
    if arguments.only:
        command += ["--only", ",".join(arguments.only)]
    if script == HRM[0]:
        command += ["--hrm", arguments.hrm]
    if script == AGI2[0] and arguments.agi2:
        command += ["--agi2", arguments.agi2]
    environment = dict(
        os.environ, TONNAGE_PHANTOM_QUIET="1", PYTHONPATH=REFERENCE, PYTHONWARNINGS="ignore", PYTHONHASHSEED=HASH_SEED
    )
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL if not arguments.verbose else None)
    if done.returncode or not os.path.exists(out):
        raise SystemExit(f"truth.py: {os.path.basename(script)} ended with {done.returncode}")
    with open(os.path.join(TRUTH, f"{prefix}truth.json")) as file:
        truth = json.load(file)["cases"]
    with open(out) as file:
        return truth, json.load(file)


def differences(expected, found):
    if "error" in found:
        return [found["error"].strip().splitlines()[-1]]
    return [f"{figure}: {found.get(figure)} instead of {expected[figure]}" for figure in FIGURES
            if figure in expected and expected[figure] != found.get(figure)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["torch"])
    parser.add_argument("--only", nargs="*", help="ids of cases")
    parser.add_argument("--hrm", help="a checkout of sapientinc/HRM, for its sets")
    parser.add_argument("--agi2", help="a checkout of roby2358/agi2 in place of our own trainer of its set")
    parser.add_argument("--verbose", action="store_true", help="what the measuring scripts print")
    arguments = parser.parse_args()
    arguments.library = os.path.abspath(arguments.library)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.sets:
            begun = time.time()
            truth, found = measured(name, arguments, folder)
            compared = [case for case in truth if case in found]
            equal = 0
            for case in compared:
                problems = differences(truth[case], found[case])
                equal += not problems
                for problem in problems:
                    print(f"{name} {case}: {problem}")
            wrong += len(compared) - equal
            print(f"{name}: {equal} of {len(compared)} cases equal to the byte, {time.time() - begun:.0f} s", flush=True)
            if not compared:
                raise SystemExit(f"truth.py: {name} has no such cases")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
