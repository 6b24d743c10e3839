"""Puts Liger's fused linear cross-entropy into a Hugging Face model, as the `liger_*` steps of this folder were measured.

liger-kernel 0.8.5, transformers 5.17, torch 2.11. Only the loss is replaced: Liger's norms, rotary embeddings and MLPs
stay off. Triton kernels allocate nothing through PyTorch, so where none can be compiled they may do nothing.
"""
import importlib
import inspect


def no_triton():
    """Makes every Triton kernel do nothing."""
    import triton.runtime.autotuner as autotuner
    import triton.runtime.jit as jit
    for kernel in (jit.JITFunction, autotuner.Autotuner, autotuner.Heuristics):
        kernel.run = lambda self, *args, **kwargs: None


def fuse_loss(model, model_type, phase):
    """Patches `model`; `phase(name)` hears where the loss begins and where the rest of forward does."""
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    apply = MODEL_TYPE_TO_APPLY_LIGER_FN[model_type]
    switches = set(inspect.signature(apply).parameters) - {"model", "fused_linear_cross_entropy"}
    apply(model=model, fused_linear_cross_entropy=True, **{name: False for name in switches})
    module = importlib.import_module(model.forward.__func__.__module__)
    original = module.LigerForCausalLMLoss

    def loss(*args, **kwargs):
        phase("loss")
        result = original(*args, **kwargs)
        phase("forward_tail")
        return result

    module.LigerForCausalLMLoss = loss
