#!/usr/bin/env python3
"""Steps of models of images and their texts (CLIP, SigLIP), measured as testdata/rehearse/reference/measure_torch.py measures those of
language models.

    measure_contrastive.py --stub --lib libtonnage_phantom.so --cases clip_cases.json --out measured.json

The task is contrastive: transformers' own CLIPModel or SiglipModel with return_loss=True, whose loss is of the pairs of a batch. A case's
micro_batch counts pairs, its seq_len the tokens of a text; pixels come to the device behind the ids and the mask.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rehearse", "reference"))
import measure_torch as reference  # noqa: E402

real_patch, real_run_case = reference.patch_data_dependence, reference.run_case


def build(case):
    import torch
    from transformers import AutoConfig, AutoModel
    from transformers.initialization import no_init_weights
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    with no_init_weights():
        model = AutoModel.from_config(config, dtype=getattr(torch, reference.DT[case["precision"]]), attn_implementation=case["attn"])
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        lora, targets = case["lora"], case["lora"]["targets"]
        model = get_peft_model(model, LoraConfig(
            r=lora["r"], lora_alpha=lora.get("alpha", 2 * lora["r"]), lora_dropout=lora.get("dropout", 0.0),
            target_modules=targets[0] if targets == ["all-linear"] else targets))
    if case["gradient_checkpointing"]:
        if case["lora"]:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train(case["train_mode"])
    return model, config


def patch_data_dependence(max_new, padded=False):
    """Whether a text is padded, which SigLIP's mask asks on the host."""
    import transformers.masking_utils as masks
    reset = real_patch(max_new, padded)

    def ignores(padding_mask, kv_length, local_attention_size=None):
        if padding_mask is not None:
            padding_mask.all()
            if padded:
                return False
        return local_attention_size is None or kv_length < local_attention_size
    masks._ignore_bidirectional_mask_sdpa = ignores
    return reset


def run_case(case, hooks, *arguments, **named):
    """The step of a masked LM, whose labels are left out: the loss is of pairs."""
    import torch
    kept = {}

    def built(_case):
        model, config = build(case)
        vision, forward = config.vision_config, model.forward
        kept["host"] = torch.zeros(case["micro_batch"], vision.num_channels, vision.image_size, vision.image_size)
        model.forward = lambda input_ids=None, labels=None, **options: forward(
            input_ids=input_ids, pixel_values=kept["pixels"], return_loss=True, **options)
        return model, config

    class Phases:
        def __getattr__(self, name): return getattr(hooks, name)

        def phase(self, name, step):
            # The step's first statement behind the ids and their mask is `phase("forward")`.
            if name == "forward":
                kept["pixels"] = kept["host"].to("cuda")
            hooks.phase(name, step)
    reference.build = built
    try:
        return real_run_case({**case, "task": "masked_lm"}, Phases(), *arguments, **named)
    finally:
        reference.build = build


reference.patch_data_dependence, reference.build, reference.run_case = patch_data_dependence, build, run_case

if __name__ == "__main__":
    reference.main()
