#!/usr/bin/env python3
"""Steps of vision-language models with their images, measured as testdata/rehearse/reference/measure_torch.py measures those of language
models.

    measure_towers.py --stub --lib libtonnage_phantom.so --cases llava_cases.json --out measured.json

A case has four fields more: `images_per_row`, `image_size` (a side or height and width in pixels, where the config does not say it),
`freeze_vision_tower` and `freeze_multi_modal_projector`, by which those parts do not require grad and get no adapters. The model is
transformers' own ...ForConditionalGeneration. What a processor makes of the images comes to the device behind the ids and the mask; the
ids hold as many places for images as these have tokens. What the host reads of the device is what it wrote there and what follows from
that: `tonnage_rehearse.values` computes it.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "rehearse", "reference"))
sys.path.insert(0, os.path.join(HERE, "..", "..", "crates", "run", "python", "rehearse"))
import measure_torch as reference  # noqa: E402

reference.DEFAULTS.update(images_per_row=1, image_size=None, freeze_vision_tower=False, freeze_multi_modal_projector=False)
TEXT = 7
"""A token that stands for text."""


def pair(size):
    return tuple(size) if isinstance(size, (list, tuple)) else (size, size)


def fixed_pixels(case, config):
    """Of a tower that sees images of one size: as many rows as there are images."""
    import torch
    vision = config.vision_config
    images = case["micro_batch"] * case["images_per_row"]
    return {"pixel_values": torch.zeros(images, vision.num_channels, *pair(vision.image_size))}


def clip_tokens(case, config):
    vision = config.vision_config
    patches = (pair(vision.image_size)[0] // pair(vision.patch_size)[0]) ** 2
    has_class = vision.model_type == "clip_vision_model"
    return patches + (1 if has_class and config.vision_feature_select_strategy == "full" else 0)


def gridded(case, config):
    """Patches of all images in one list, and the grid of each, as Qwen's processors make them."""
    import torch
    vision = config.vision_config
    height, width = (side // vision.patch_size for side in pair(case["image_size"]))
    images = case["micro_batch"] * case["images_per_row"]
    numbers = vision.in_channels * vision.temporal_patch_size * vision.patch_size ** 2
    return {"pixel_values": torch.zeros(images * height * width, numbers),
            "image_grid_thw": torch.tensor([[1, height, width]] * images)}


def grid_tokens(case, config):
    vision = config.vision_config
    height, width = (side // vision.patch_size // vision.spatial_merge_size for side in pair(case["image_size"]))
    return height * width


def with_types(name, dtype):
    """The processor says of each token whether it stands for an image."""
    def inputs(case, config, ids):
        import torch
        return {name: (ids == config.image_token_id).to(getattr(torch, dtype))}
    return inputs


def shuffled_tokens(case, config):
    vision = config.vision_config
    return int((pair(vision.image_size)[0] // pair(vision.patch_size)[0]) * config.downsample_ratio) ** 2


def sized_pixels(case, config):
    """Of images of any size, which lie in tensors of one, and how large each is."""
    import torch
    images, sides = case["micro_batch"] * case["images_per_row"], pair(case["image_size"])
    return {"pixel_values": torch.zeros(images, config.vision_config.num_channels, *sides), "image_sizes": torch.tensor([sides] * images)}


def merged_tokens(case, config):
    side = config.vision_config.patch_size * config.spatial_merge_size
    height, width = pair(case["image_size"])
    return (height // side) * (width // side)


def tiled_pixels(case, config):
    """Of tiles, row by row, with a mask of the pixels that are no padding."""
    import torch
    vision = config.vision_config
    sizes = (case["micro_batch"], case["images_per_row"])
    pixels = torch.ones(*sizes, vision.num_channels, vision.image_size, vision.image_size)
    return {"pixel_values": pixels, "pixel_attention_mask": torch.ones(*sizes, vision.image_size, vision.image_size, dtype=torch.int64)}


def tiled_tokens(case, config):
    vision = config.vision_config
    return (vision.image_size // vision.patch_size) ** 2 // config.scale_factor ** 2


def prefix_types(case, config, ids):
    """PaliGemma's: 0 for the images and what is asked, 1 for the answer, here the last token."""
    import torch
    types = torch.zeros_like(ids)
    types[:, -1] = 1
    return {"token_type_ids": types}


FAMILIES = {
    # What the processor makes of images, how many tokens an image is, and what it makes of the ids.
    "llava": (fixed_pixels, clip_tokens, lambda case, config, ids: {}),
    "gemma3": (fixed_pixels, lambda case, config: config.mm_tokens_per_image, with_types("token_type_ids", "int64")),
    "internvl": (fixed_pixels, shuffled_tokens, lambda case, config, ids: {}),
    "idefics3": (tiled_pixels, tiled_tokens, lambda case, config, ids: {}),
    "smolvlm": (tiled_pixels, tiled_tokens, lambda case, config, ids: {}),
    "mistral3": (sized_pixels, merged_tokens, lambda case, config, ids: {}),
    "paligemma": (fixed_pixels, lambda case, config: (config.vision_config.image_size // config.vision_config.patch_size) ** 2, prefix_types),
    "qwen2_vl": (gridded, grid_tokens, with_types("mm_token_type_ids", "int64")),
    "qwen2_5_vl": (gridded, grid_tokens, with_types("mm_token_type_ids", "int64")),
    "qwen3_vl_moe": (gridded, grid_tokens, with_types("mm_token_type_ids", "int64")),
    "qwen3_vl": (gridded, grid_tokens, with_types("mm_token_type_ids", "int64")),
}
TOWERS = ("vision_tower", "visual", "vision_model")
PROJECTORS = ("multi_modal_projector", "merger", "deepstack_merger_list", "connector")


def host_batch(case, config):
    """Rows of text with the places of their images, each between tokens of text."""
    import torch
    tokens = FAMILIES[case["model"]["family"]][1](case, config)
    row = [TEXT]
    for _ in range(case["images_per_row"]):
        row += [config.image_token_id] * tokens + [TEXT]
    row += [TEXT] * (case["seq_len"] - len(row))
    assert len(row) == case["seq_len"], f"{len(row)} tokens"
    return torch.tensor([row] * case["micro_batch"])


def host_images(case, config, ids):
    pixels, _, more = FAMILIES[case["model"]["family"]]
    # Processors give what is made of the text first.
    return {**more(case, config, ids), **pixels(case, config)}


def is_frozen(case, name):
    """Whether what is called so is of a part that stays as it is."""
    parts = name.split(".")
    if any(part in PROJECTORS for part in parts):
        return case["freeze_multi_modal_projector"]
    return case["freeze_vision_tower"] and any(part in TOWERS for part in parts)


def targets(case, model):
    """Names of the modules that get adapters, all where no part is frozen."""
    import torch
    wanted = case["lora"]["targets"]
    if not (case["freeze_vision_tower"] or case["freeze_multi_modal_projector"]):
        return wanted
    every = wanted in ("all-linear", ["all-linear"])
    head = model.get_output_embeddings()
    fits = lambda name, module: isinstance(module, torch.nn.Linear) and (module is not head if every else name.split(".")[-1] in wanted)
    return [name for name, module in model.named_modules() if fits(name, module) and not is_frozen(case, name)]


def build(case):
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.initialization import no_init_weights
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    with no_init_weights():
        model = AutoModelForImageTextToText.from_config(
            config, dtype=getattr(torch, reference.DT[case["precision"]]), attn_implementation=case["attn"])
    model.tie_weights()
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        lora, wanted = case["lora"], targets(case, model)
        model = get_peft_model(model, LoraConfig(
            r=lora["r"], lora_alpha=lora.get("alpha", 2 * lora["r"]), lora_dropout=lora.get("dropout", 0.0),
            target_modules=wanted[0] if wanted == ["all-linear"] else wanted, task_type="CAUSAL_LM"))
    else:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not is_frozen(case, name))
    if case["gradient_checkpointing"]:
        if case["lora"]:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train(case["train_mode"] and case["task"] == "causal_lm")
    return model, config


def run_case(case, hooks, *arguments, **named):
    """The images of a batch come to the device behind its ids."""
    real_build, kept, on_host = reference.build, {}, {}

    def built(_case):
        model, config = real_build(case)
        forward = model.forward
        on_host.update(host_images(case, config, host_batch(case, config)))
        model.forward = lambda input_ids=None, **options: forward(input_ids=input_ids, **kept, **options)
        return model, config

    class Phases:
        def __getattr__(self, name): return getattr(hooks, name)

        def phase(self, name, step):
            # The step's first statement behind the ids is `phase("forward")`: there the images follow.
            if name == "forward":
                for key, value in on_host.items():
                    kept[key] = value.to("cuda")
            hooks.phase(name, step)
    reference.build = built
    try:
        return real_run_case(case, Phases(), *arguments, **named)
    finally:
        reference.build = real_build


def patch_data_dependence(max_new, padded=False):
    """As of language models, but that values are known: what decides of rows is asked of them."""
    import torch
    from tonnage_rehearse import values
    reset = real_patch(max_new, padded)
    values.install(torch, None)
    return reset


real_patch, real_run_case = reference.patch_data_dependence, reference.run_case
reference.patch_data_dependence, reference.build, reference.run_case = patch_data_dependence, build, run_case
reference.host_batch = host_batch

if __name__ == "__main__":
    reference.main()
