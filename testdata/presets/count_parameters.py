#!/usr/bin/env python3
"""Counts the unique parameters of every preset with transformers itself, on the meta device (no memory, no weights).

Usage: [HRM=checkout of sapientinc/HRM] count_parameters.py [presets folder] > parameters.json
A tied weight is one tensor, so it counts once. Of a multimodal config the text model alone is counted, and under `with_towers` all of it. Buffers (HRM's
table of puzzles) are no parameters.
"""
import json
import os
import pathlib
import sys
import types

import torch
import transformers
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForImageTextToText,
                          AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoModelForSpeechSeq2Seq)

#: Multimodal models whose towers are simulated.
TOWERS = {"gemma3", "internvl", "llava", "paligemma", "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"}
ENCODERS = {"bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"}
ENCODER_DECODERS = {"bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5"}
#: Images and their texts: all of it is the model.
PAIRS = {"clip", "siglip"}
PRESETS = pathlib.Path(__file__).resolve().parents[2] / "crates/core/src/job/presets"


def hrm(fields):
    sys.path.insert(0, os.environ["HRM"])
    sys.modules["flash_attn"] = types.SimpleNamespace(flash_attn_func=None)
    from models.hrm.hrm_act_v1 import HierarchicalReasoningModel_ACTV1
    return HierarchicalReasoningModel_ACTV1(dict(fields, batch_size=1, num_puzzle_identifiers=1))


def beside_tower(fields):
    """Of a model whose text model has no class of its own with a head."""
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return sum(parameter.numel() for name, parameter in model.named_parameters() if ".visual." not in name)


def with_tower(path):
    """All of a model whose tower is simulated; `None` of others."""
    fields = json.loads(path.read_text())
    if fields.get("model_type") not in TOWERS or fields.get("vision_config", {}).get("model_type") == "pixtral":
        return None
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


def kind(config):
    """What builds it: the class that its config names where that is of classes, else the one with a language-model head."""
    named = (config.architectures or [""])[0]
    if config.model_type in PAIRS:
        return AutoModel
    if config.model_type in ENCODER_DECODERS:
        return AutoModelForSeq2SeqLM
    if config.model_type == "whisper":
        return AutoModelForSpeechSeq2Seq
    for ending, auto in (("ForImageClassification", AutoModelForImageClassification),
                         ("ForSequenceClassification", AutoModelForSequenceClassification)):
        if named.endswith(ending):
            return auto
    return AutoModelForMaskedLM if config.model_type in ENCODERS else AutoModelForCausalLM


def denoiser(fields):
    """A model of diffusers, by the class that its config names."""
    import diffusers
    with torch.device("meta"):
        return getattr(diffusers, fields.pop("_class_name"))(**fields)


def count(path):
    fields = json.loads(path.read_text())
    if "_class_name" in fields:
        return sum(parameter.numel() for parameter in denoiser(fields).parameters())
    if fields["model_type"] == "hrm":
        return sum(parameter.numel() for parameter in hrm(fields).parameters())
    if fields["model_type"] in ("glm4v", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"):
        return beside_tower(fields)
    if fields["model_type"] not in PAIRS:
        fields = fields.get("text_config", fields)
    # T5's classes tie whatever the config says; from_pretrained leaves apart what a checkpoint has apart, as these have.
    apart = fields["model_type"] in ("mt5", "t5") and fields.get("tie_word_embeddings") is False
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    auto = kind(config)
    with torch.device("meta"):
        model = auto.from_config(config)
    counted = sum(parameter.numel() for parameter in model.parameters())
    return counted + (model.lm_head.weight.numel() if apart else 0)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else PRESETS
    counts = {path.stem: count(path) for path in sorted(folder.glob("*.json"))}
    versions = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    whole = {path.stem: with_tower(path) for path in sorted(folder.glob("*.json"))}
    whole = {stem: parameters for stem, parameters in whole.items() if parameters}
    json.dump({"versions": versions, "parameters": counts, "with_towers": whole}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
