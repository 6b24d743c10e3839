"""Walks every config class of transformers: what its default config says, and how many parameters its language model has.

    python walk.py > models.jsonl

One line a `model_type`: its class for causal language modelling if it has one, that class's parameters (tied ones once,
built on the meta device from the default config), and the config as `save_pretrained` writes it. Nothing is downloaded.
"""

import json
import sys
import warnings

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

LISTS = {name: getattr(modeling_auto, name) for name in dir(modeling_auto)
         if name.startswith("MODEL_FOR_") and name.endswith("_MAPPING_NAMES")}
CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
# What `save_pretrained` writes and no reader of shapes asks for.
NOISE = {"transformers_version", "id2label", "label2id", "task_specific_params", "num_labels", "bos_token_id", "eos_token_id",
         "initializer_range", "layer_norm_eps", "rms_norm_eps"}


#: Nested configs that say what the language model is; others are kept as empty objects.
READ = {"text_config", "rope_parameters", "full_attention", "sliding_attention", "vision_config", "audio_config"}
#: Lists, and an object, that give each layer or part its own: they are kept whole.
OF_LAYERS = {"ssm_multipliers", "layers_block_type", "layer_types", "mlp_layer_types", "moe_layers", "no_rope_layers", "activation_sparsity_pattern", "intermediate_size", "per_layer_config"}


def compact(value, depth=0):
    """The config without noise: towers with their numbers alone, lists only where they name layers."""
    kept = {}
    for key, item in value.items():
        if key in NOISE or item is None:
            continue
        if isinstance(item, dict) and key not in OF_LAYERS:
            item = compact(item, depth + 1) if key in READ else {}
            if key in ("vision_config", "audio_config"):
                item = {name: number for name, number in item.items() if isinstance(number, (int, float)) and not isinstance(number, bool)}
        if isinstance(item, list) and key not in OF_LAYERS:
            item = item[:2]
        kept[key] = item
    return kept


def first(names):
    return names[0] if isinstance(names, (list, tuple)) else names


def text_parameters(model_type, config):
    """Parameters of the language model and the head of a multimodal class, tied ones once; None where it is not built."""
    for mapping in ("IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "SEQ_TO_SEQ_CAUSAL_LM"):
        name = first(LISTS.get(f"MODEL_FOR_{mapping}_MAPPING_NAMES", {}).get(model_type) or [None])
        if name is None:
            continue
        try:
            with torch.device("meta"):
                model = getattr(transformers, name)(config)
        except Exception:
            return None
        of_text = ("language_model.", "text_model.", "lm_head.")
        return sum(parameter.numel() for key, parameter in model.named_parameters()
                   if any(f".{key}".find(f".{part}") >= 0 for part in of_text) and "vision" not in key)
    return None


def describe(model_type):
    row = {"model_type": model_type, "class": None, "parameters": None}
    row["tasks"] = sorted(name[len("MODEL_FOR_"):-len("_MAPPING_NAMES")].lower() for name, names in LISTS.items() if model_type in names)
    try:
        config = CONFIG_MAPPING[model_type]()
    except Exception as error:
        row["problem"] = f"no default config: {type(error).__name__}"
        return row
    row["config"] = compact(json.loads(config.to_json_string(use_diff=True)))
    name = first(LISTS[CAUSAL].get(model_type) or [None])
    if "text_config" in row["config"]:
        row["text_parameters"] = text_parameters(model_type, config)
    if name is None:
        return row
    row["class"] = name
    try:
        with torch.device("meta"):
            model = getattr(transformers, name)(config)
        row["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    except Exception as error:
        row["problem"] = f"not built: {type(error).__name__}: {str(error)[:80]}"
    return row


def main():
    print(json.dumps({"transformers": transformers.__version__, "torch": torch.__version__}))
    for model_type in sorted(CONFIG_MAPPING.keys()):
        print(json.dumps(describe(model_type), separators=(",", ":")))
        sys.stdout.flush()


main()
