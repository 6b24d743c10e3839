"""Writes flags.json: the options of the frameworks in whose words remedies are said.

    python flags.py [DEEPSPEED_SOURCES] > flags.json

Needs trl, transformers, accelerate and torch; DeepSpeed's names are read from its sources, whose runtime needs a GPU
build to import.
"""

import dataclasses
import json
import pathlib
import re
import sys

import accelerate
import torch
import transformers
import trl
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser
from transformers.training_args import OptimizerNames


def fields(*classes):
    return sorted({"--" + field.name for each in classes for field in dataclasses.fields(each)})


def options(parser):
    return sorted({name for action in parser._actions for name in action.option_strings if name.startswith("--")})


def choices(parser, option):
    return next(list(action.choices) for action in parser._actions if option in action.option_strings)


def deepspeed(sources):
    constants = (sources / "deepspeed/runtime/constants.py").read_text()
    zero = (sources / "deepspeed/runtime/zero/config.py").read_text()
    runner = (sources / "deepspeed/launcher/runner.py").read_text()
    return {
        "version": (sources / "version.txt").read_text().strip(),
        "config": sorted(set(re.findall(r'^[A-Z0-9_]+ = "([a-z0-9_]+)"', constants + zero, re.M))),
        "launcher": sorted(set(re.findall(r'"(--[a-z_]+)"', runner))),
    }


launch = launch_command_parser()
found = {
    "versions": {
        "accelerate": accelerate.__version__,
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "trl": trl.__version__,
    },
    "trainer": fields(transformers.TrainingArguments),
    "trl_sft": fields(trl.SFTConfig, trl.ModelConfig),
    "trl_grpo": fields(trl.GRPOConfig, trl.ModelConfig),
    "trl_dpo": fields(trl.DPOConfig, trl.ModelConfig),
    "accelerate": options(launch),
    "torchrun": options(get_args_parser()),
    "optim": sorted(name.value for name in OptimizerNames),
    "mixed_precision": choices(launch, "--mixed_precision"),
}
if len(sys.argv) > 1:
    found["deepspeed"] = deepspeed(pathlib.Path(sys.argv[1]))
print(json.dumps(found, indent=1))
