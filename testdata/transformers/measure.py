#!/usr/bin/env python3
"""One reference step under another version of transformers than the one that testdata/truth was measured with: the
measuring script of testdata/rehearse/reference, taught where older versions keep what it reads.

    PYTHONPATH=<folder with transformers 4.44.2 and its tokenizers, peft> measure.py --stub --lib libtonnage_phantom.so \\
        --cases ../truth/transformers_4_44_cases.json --out measured.json

The versions measured, and what stands beside each, are in versions.txt. PyTorch is 2.11 with all of them. Cases are those of
the reference script, with one field more: `transformers`, which must be the version installed.
Before 4.46 the loss is part of the model's forward: there the phase `loss` is the call of cross_entropy alone.
"""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rehearse", "reference"))
import measure_torch as reference  # noqa: E402

reference.DEFAULTS["transformers"] = None   # "4.44": the installed version must begin so
reference.DEFAULTS["device_map"] = False    # saved, and loaded with from_pretrained(device_map="cuda")
reference.DEFAULTS["reentrant"] = False     # gradient checkpointing with use_reentrant=True, as transformers 4 does by default


def version():
    import transformers
    return tuple(int(part) for part in transformers.__version__.split(".")[:2])


def patch_data_dependence(max_new, padded=False):
    """The host reads of device data, answered as for unpadded and unpacked batches, wherever a version keeps them."""
    import torch
    import transformers.generation.utils as generation
    import transformers.modeling_attn_mask_utils as old_masks

    if version() >= (5, 0):
        return newer(max_new, padded)
    if padded:
        raise SystemExit("padded rows are measured with versions from 5.0 on")

    # torch.all(mask == 1) and mask.all(), asked on the host: the ops run, the answer is that nothing is padded.
    class Yes:
        """A tensor that is true."""
        def __init__(self, value): self.value = value
        def __bool__(self): return True

    class Unpadded:
        """A mask that hides nothing."""
        def __init__(self, mask): self.mask = mask
        def __getitem__(self, index): return Unpadded(self.mask[index])
        def __getattr__(self, name): return getattr(self.mask, name)
        def all(self): return Yes(self.mask.all())

    class TorchOfMasks:
        def __getattr__(self, name): return getattr(torch, name)
        @staticmethod
        def all(mask, *dim, **named):
            found = torch.all(mask, *dim, **named)
            return found if dim or named else Yes(found)

    old_masks.torch = TorchOfMasks()
    if version() >= (4, 53):
        import transformers.masking_utils as masks
        ignores = masks._ignore_causal_mask_sdpa
        masks._ignore_causal_mask_sdpa = lambda padding_mask, *rest, **named: ignores(
            padding_mask if padding_mask is None else Unpadded(padding_mask), *rest, **named)
    if max_new:
        count = [0]

        def unfinished(self, this_peer_finished, synced_gpus, device, *rest, **named):
            count[0] += 1
            return count[0] <= max_new
        generation.GenerationMixin._has_unfinished_sequences = unfinished

        def reset(): count[0] = 0
        return reset
    return lambda: None


newer = reference.patch_data_dependence


def route_evenly(config):
    """Which tokens chose an expert, as many for each: `torch.where` of a mixture's loop (before 5.0) with the places known first."""
    import importlib

    import torch
    modeling = importlib.import_module(f"transformers.models.{config.model_type}.modeling_{config.model_type}")
    experts, calls = config.num_local_experts, [0]

    class TorchOfExperts:
        def __getattr__(self, name): return getattr(torch, name)
        @staticmethod
        def where(mask):
            expert = calls[0] % experts
            calls[0] += 1
            choices = mask.numel()
            count = choices * (expert + 1) // experts - choices * expert // experts
            return torch.nonzero_static(mask, size=count).unbind(1)

    modeling.torch = TorchOfExperts()


def no_init_weights():
    try:
        from transformers.initialization import no_init_weights as found
    except ImportError:
        from transformers.modeling_utils import no_init_weights as found
    return found()


def build(case):
    import torch
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
    wanted = case["transformers"]
    if wanted and not transformers.__version__.startswith(wanted):
        raise SystemExit(f"case {case['id']} is for transformers {wanted}, installed is {transformers.__version__}")
    model = dict(case["model"])
    family = model.pop("family")
    config = AutoConfig.for_model(family, **model)
    if version() < (5, 0) and hasattr(config, "num_local_experts"):
        route_evenly(config)
    kind = AutoModelForMaskedLM if case["task"] == "masked_lm" else AutoModelForCausalLM
    dtype = getattr(torch, reference.DT[case["precision"]])
    named = {"dtype" if version() >= (4, 56) else "torch_dtype": dtype, "attn_implementation": case["attn"]}
    with no_init_weights():
        model = kind.from_config(config, **named)
    model.tie_weights()
    if case["device_map"]:
        model = loaded(model, kind, named)
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        lora = case["lora"]
        model = get_peft_model(model, LoraConfig(
            r=lora["r"], lora_alpha=lora.get("alpha", 2 * lora["r"]), lora_dropout=lora.get("dropout", 0.0),
            target_modules=lora["targets"], task_type="CAUSAL_LM", fan_in_fan_out=family == "gpt2"))
    if case["gradient_checkpointing"]:
        if case["lora"]:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": case["reentrant"]})
    model.train(case["train_mode"] and case["task"] in ("causal_lm", "masked_lm"))
    return model, config


def loaded(model, kind, named):
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return kind.from_pretrained(folder, device_map="cuda", **named)


def run_case(case, hooks, *arguments, **named):
    """Where a model has no loss_function, or does not call it, the loss begins and ends at cross_entropy."""
    import torch.nn.functional as functional
    if case["task"] != "causal_lm":
        return real_run_case(case, hooks, *arguments, **named)
    real = functional.cross_entropy
    now = ["", 0]

    class Phases:
        def __getattr__(self, name): return getattr(hooks, name)
        def phase(self, name, step):
            now[:] = name, step
            hooks.phase(name, step)

    def cross_entropy(*given, **options):
        if now[0] == "loss":
            return real(*given, **options)
        hooks.phase("loss", now[1])
        result = real(*given, **options)
        hooks.phase("forward_tail", now[1])
        return result
    functional.cross_entropy = cross_entropy
    make_loss_function_settable()
    try:
        return real_run_case(case, Phases(), *arguments, **named)
    finally:
        functional.cross_entropy = real


def make_loss_function_settable():
    """The reference script puts its own in the place of a model's loss_function: none before 4.46, then a property."""
    from transformers import PreTrainedModel
    found = getattr(PreTrainedModel, "loss_function", None)
    if found is None:
        PreTrainedModel.loss_function = None
    elif isinstance(found, property) and found.fset is None:
        PreTrainedModel.loss_function = property(
            lambda self: self.__dict__.get("_measured_loss") or found.fget(self),
            lambda self, value: self.__dict__.__setitem__("_measured_loss", value))


real_run_case = reference.run_case
reference.patch_data_dependence = patch_data_dependence
reference.build = build
reference.run_case = run_case


def stand_in(name):
    """An empty module where a version has none, for the reference's imports."""
    import types
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = types.ModuleType(name)


if __name__ == "__main__":
    # measure_torch imports it before it forks.
    import transformers.modeling_utils  # noqa: F401
    stand_in("transformers.masking_utils")
    reference.main()
