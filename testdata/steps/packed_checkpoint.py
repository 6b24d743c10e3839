"""Checkpoints of GPTQ and AWQ as `from_pretrained` loads them onto the GPU with gptqmodel 7.6 (optimum 2.3): packed weights, zeros and
scales of nobody's numbers in a folder, `backend="auto_trainable"`. gptqmodel compiles its CUDA kernels of AWQ when they are asked for,
which takes nvcc: here they allocate what they allocate (gptqmodel_ext/awq/quantization/gemm_cuda_gen.cu) and compute nothing.
"""
SPLIT_K = 8


def linear_layers(model):
    import torch
    return {path: module for path, module in model.named_modules()
            if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings()}


def packed(path, layer, asked):
    """The tensors of a layer, by their names in the checkpoint."""
    import torch
    inputs, outputs, bits = layer.in_features, layer.out_features, asked.get("bits", 4)
    size = asked.get("group_size", 128)
    size = inputs if size == -1 else size
    groups = -(-inputs // size)
    tensors = {"qzeros": torch.zeros(groups, outputs * bits // 32, dtype=torch.int32),
               "scales": torch.ones(groups, outputs, dtype=torch.float16)}
    if asked["weights"] == "awq":
        tensors["qweight"] = torch.zeros(inputs, outputs * bits // 32, dtype=torch.int32)
    else:
        tensors["qweight"] = torch.zeros(inputs * bits // 32, outputs, dtype=torch.int32)
        tensors["g_idx"] = torch.arange(inputs, dtype=torch.int32) // size
    if layer.bias is not None:
        tensors["bias"] = torch.zeros(outputs, dtype=torch.float16)
    return {f"{path}.{name}": tensor for name, tensor in tensors.items()}


def described(asked):
    """`quantization_config` of the checkpoint."""
    common = {"bits": asked.get("bits", 4), "group_size": asked.get("group_size", 128)}
    if asked["weights"] == "awq":
        return {"quant_method": "awq", "version": "gemm", "zero_point": True, **common}
    return {"quant_method": "gptq", "desc_act": asked.get("desc_act", False), "sym": True, **common}


def write(case, dtype, folder):
    """The checkpoint; how many parameters the whole model has."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    count = sum(parameter.numel() for parameter in model.parameters())
    layers, tensors = linear_layers(model), {}
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    for name, value in model.state_dict().items():
        if name not in tied and name.rpartition(".")[0] not in layers:
            tensors[name] = value.clone()
    for path, layer in layers.items():
        tensors |= packed(path, layer, case["quantization"])
    config.architectures, config.dtype = [type(model).__name__], dtype
    config.quantization_config = described(case["quantization"])
    config.save_pretrained(folder)
    save_file(tensors, folder + "/model.safetensors", metadata={"format": "pt"})
    return count


def leave_kernels_out():
    import gptqmodel.nn_modules.qlinear.gemm_awq as gemm
    import torch

    def dequantize(weight, scales, *_):
        return torch.empty(weight.shape[0], weight.shape[1] * 8, dtype=scales.dtype, device=scales.device)

    def multiply(x, weight, *_, fp32_accum=True):
        outputs = weight.shape[1] * 8
        partial = torch.empty(SPLIT_K, x.shape[0], outputs, dtype=torch.float32, device=x.device)
        product = torch.empty(x.shape[0], outputs, dtype=x.dtype, device=x.device)
        del partial
        return product
    gemm.awq_runtime_available = lambda: True
    gemm.awq_dequantize_weights, gemm._awq_cuda_gemm_forward = dequantize, multiply


def asked_for(case, stub):
    """What a user says of the checkpoint so that it can be trained on."""
    from transformers import AwqConfig, GPTQConfig
    asked = case["quantization"]
    if asked["weights"] == "awq" and stub:
        leave_kernels_out()
    kind = AwqConfig if asked["weights"] == "awq" else GPTQConfig
    return kind(bits=asked.get("bits", 4), backend="auto_trainable")


def load(case, dtype, folder, stub):
    """The model on the GPU."""
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(
        folder, quantization_config=asked_for(case, stub), dtype=dtype, attn_implementation=case["attn"], device_map={"": 0})
