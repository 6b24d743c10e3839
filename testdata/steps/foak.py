"""Puts fms-acceleration's kernels into a Hugging Face model as its plugin does, from its own sources: $FOAK is
plugins/fused-ops-and-kernels/src of foundation-model-stack/fms-acceleration at 876e2ed. Triton kernels allocate nothing through
PyTorch, nor do bitsandbytes' own: none of them runs.
"""
import os
import sys
import types

NAMES = ("fast_rms_layernorm", "fast_rope_embeddings", "fast_loss", "fused_ce_liger", "fused_lora")


def sources():
    """Its modules without its plugin, which needs the framework's own package."""
    from liger import no_triton
    no_triton()
    package = types.ModuleType("fms_acceleration_foak")
    package.__path__ = [os.path.join(os.environ["FOAK"], "fms_acceleration_foak")]
    framework, patcher = types.ModuleType("fms_acceleration"), types.ModuleType("fms_acceleration.model_patcher")

    class Trigger:
        def __init__(self, check=None, module_name=None):
            self.module_name = module_name
    patcher.ModelPatcherTrigger = patcher.ModelPatcherRule = Trigger
    sys.modules.update({"fms_acceleration_foak": package, "fms_acceleration": framework, "fms_acceleration.model_patcher": patcher})


def gptq_model(case, dtype, config):
    """A model whose linear layers are GPTQ's, in memory that nobody wrote, with peft's adapters: $FOAK_PEFT is
    plugins/accelerated-peft/src of the same."""
    import torch
    from peft import get_peft_model
    from peft.tuners.lora import gptq, model as lora
    from transformers import AutoConfig, AutoModelForCausalLM
    sources()
    for name in ("fms_acceleration_peft", "fms_acceleration_peft.gptqmodel"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(os.environ["FOAK_PEFT"], *name.split("."))]
        sys.modules[name] = package
    from fms_acceleration_peft.gptqmodel.nn_modules.qlinear.qlinear_tritonv2 import QuantLinear
    fields = dict(case["model"])
    full = AutoModelForCausalLM.from_config(AutoConfig.for_model(fields.pop("family"), **fields), dtype=getattr(torch, dtype), attn_implementation=case["attn"])
    for path, module in list(full.named_modules()):
        if isinstance(module, torch.nn.Linear) and path != "lm_head":
            parent, _, name = path.rpartition(".")
            layer = QuantLinear(4, case["quantization"].get("group_size", 128), module.in_features, module.out_features, module.bias is not None)
            layer.in_features, layer.out_features = module.in_features, module.out_features
            setattr(full.get_submodule(parent), name, layer)
    full.to("cuda")
    full.quantization_method, full.is_loaded_in_4bit = "gptq", True
    for parameter in full.parameters():
        parameter.requires_grad = False
    lora.dispatch_gptq = lambda target, adapter, config, **options: (
        gptq.GPTQLoraLinear(target, adapter, config=config, **options) if isinstance(target, QuantLinear) else None)
    model = get_peft_model(full, config)
    if case["gradient_checkpointing"]:
        model.enable_input_require_grads()
    return model


def silence(utils):
    for name in dir(utils):
        if name.startswith(("cdequantize", "cgemm")):
            setattr(utils, name, lambda *arguments: None)


def fuse(model):
    from fms_acceleration_foak.fused_ops.unsloth_lora import utils
    silence(utils)
    from fms_acceleration_foak.models.utils import build_lora_fused_ops
    for module in model.modules():
        if not type(module).__name__.endswith("Attention"):
            continue
        for names, kind in ((["q_proj", "k_proj", "v_proj"], "qkv"), (["o_proj"], "o")):
            if all(hasattr(getattr(module, name), "lora_A") for name in names):
                base = "auto_gptq" if getattr(model, "quantization_method", None) == "gptq" else "bitsandbytes"
                for trigger, forward in build_lora_fused_ops(module, base, names, kind):
                    layer = getattr(module, trigger.module_name)
                    layer.forward = types.MethodType(forward, layer)


def put_in(model, kernels, noted):
    """`noted` wraps a loss in the phase's name."""
    unknown = set(kernels) - set(NAMES)
    if unknown:
        raise SystemExit(f"no such kernels: {sorted(unknown)}")
    sources()
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    modeling = sys.modules[type(base).__module__]
    if "fast_rms_layernorm" in kernels:
        from fms_acceleration_foak.kernels.unsloth.rms_layernorm import fast_rms_layernorm
        for module in model.modules():
            if type(module).__name__.endswith("RMSNorm"):
                module.forward = types.MethodType(fast_rms_layernorm, module)
    if "fast_rope_embeddings" in kernels:
        from fms_acceleration_foak.kernels.unsloth.rope_embedding import fast_rope_embedding
        modeling.apply_rotary_pos_emb = fast_rope_embedding
    if "fast_loss" in kernels:
        from fms_acceleration_foak.kernels.unsloth.cross_entropy_loss import FastForCausalLMLoss
        base.loss_function = noted(FastForCausalLMLoss)
    if "fused_ce_liger" in kernels:
        from fms_acceleration_foak.fused_ops.liger_ce import fused_linear_cross_entropy_loss as liger
        type(base.config).use_return_dict = True
        liger.LigerFusedLinearCrossEntropyLoss.forward = noted(liger.LigerFusedLinearCrossEntropyLoss.forward)
        base.forward = types.MethodType(liger.lce_forward, base)
    if "fused_lora" in kernels and getattr(model, "quantization_method", None) or hasattr(base, "hf_quantizer") and "fused_lora" in kernels:
        fuse(model)


def replicate_adapters(trainer):
    """What the plugin does before a training under FSDP: adapters are not sharded, hooks sum their gradients."""
    from peft.tuners.lora.layer import LoraLayer
    from fms_acceleration_foak.utils import lora_adapters_switch_ddp_from_fsdp
    layers = [module for module in trainer.model.modules() if isinstance(module, LoraLayer)]
    lora_adapters_switch_ddp_from_fsdp(layers, trainer.accelerator.state.fsdp_plugin)
