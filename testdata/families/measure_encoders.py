#!/usr/bin/env python3
"""Steps of encoders with their heads, and of decoders with heads for classes, measured as testdata/rehearse/reference/measure_torch.py measures those of language models.

    measure_encoders.py --stub --lib libtonnage_phantom.so --cases roberta_cases.json --out measured.json

Four tasks more: seq2seq_lm (an encoder-decoder, labels of target_len tokens), sequence_classification (a label a row), token_classification (a label a token) and image_classification (a label an
image, whose pixels of `image_size` stand where the ids of other batches do), built by the Auto classes of these names with the labels that `num_labels` of the model says, each batch's labels a tensor of its own; adapters are made with
peft's task types for them, which train the classifier in full. inference_forward builds the class whose name the model's
`architectures` has.
"""
import functools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rehearse", "reference"))
import measure_torch as reference  # noqa: E402

PEFT = {"sequence_classification": "SEQ_CLS", "token_classification": "TOKEN_CLS", "masked_lm": None, "image_classification": None,
        "seq2seq_lm": "SEQ_2_SEQ_LM"}
CLASSES = {"sequence_classification": "ForSequenceClassification", "token_classification": "ForTokenClassification",
           "image_classification": "ForImageClassification", "seq2seq_lm": "ForSeq2SeqLM"}
reference.DEFAULTS |= {"target_len": 128, "freeze_encoder": False}


def auto_class(case):
    import transformers
    named = (case["model"].get("architectures") or [""])[0]
    if case["model"]["family"] == "whisper":
        return transformers.AutoModelForSpeechSeq2Seq
    for task, ending in CLASSES.items():
        if case["task"] == task or (case["task"] == "inference_forward" and named.endswith(ending)):
            return getattr(transformers, "AutoModel" + ending)
    return transformers.AutoModelForMaskedLM


def has_cache(config):
    """Whether it is a decoder's."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not sees_images(config)


def hears(config):
    return hasattr(config, "num_mel_bins")


def sees_images(config):
    return hasattr(config, "image_size")


def pair(size):
    return size if isinstance(size, (list, tuple)) else (size, size)


def host_batch(case, config):
    import torch
    if hears(config):
        # Without autocast frames are cast as weights are: a convolution takes no others.
        dtype = torch.float32 if case["precision"].startswith("amp") else getattr(torch, reference.DT[case["precision"]])
        return torch.zeros(case["micro_batch"], config.num_mel_bins, 2 * config.max_source_positions, dtype=dtype)
    if not sees_images(config):
        return real_host_batch(case, config)
    return torch.zeros(case["micro_batch"], config.num_channels, *pair(config.image_size))


def takes_pixels(config, forward):
    """The forward call of a model of images under the names that the step has for text."""
    if hears(config):
        return lambda input_ids=None, **options: forward(input_features=input_ids, **options)
    if not sees_images(config):
        return forward
    return lambda input_ids=None, **options: forward(pixel_values=input_ids, **options)


def leave_head_apart(case, model):
    """T5's classes tie whatever the config says; from_pretrained leaves apart what a checkpoint has apart, as those have whose configs say so."""
    import torch
    if case["task"] == "seq2seq_lm" and case["model"].get("tie_word_embeddings") is False and hasattr(model, "shared"):
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))


def take_targets_whole():
    """Whether the mask of an encoder-decoder's own tokens hides something: it is made of ones."""
    import transformers.masking_utils as masks

    def fast_all(mask):
        mask.sum() == mask.numel()
        return True
    masks.fast_all = fast_all


def build(case):
    import torch
    from transformers import AutoConfig
    from transformers.initialization import no_init_weights
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    with no_init_weights():
        model = auto_class(case).from_config(
            config, dtype=getattr(torch, reference.DT[case["precision"]]), attn_implementation=case["attn"])
    model.tie_weights()
    leave_head_apart(case, model)
    if case["task"] == "seq2seq_lm":
        take_targets_whole()
    if case["freeze_encoder"]:
        model.model.encoder._freeze_parameters()
    if case["lora"]:
        from peft import LoraConfig, get_peft_model
        lora = case["lora"]
        model = get_peft_model(model, LoraConfig(
            r=lora["r"], lora_alpha=lora.get("alpha", 2 * lora["r"]), lora_dropout=lora.get("dropout", 0.0),
            target_modules=lora["targets"], task_type=None if hears(config) else PEFT[case["task"]]))
    if case["gradient_checkpointing"]:
        if case["lora"]:
            model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train(case["train_mode"] and case["task"] != "inference_forward")
    return model, config


def patch_data_dependence(max_new, padded=False):
    """Whether a row is padded, which the mask of an encoder asks on the host, and where labels are, which DeBERTa asks: all rows have one."""
    import torch
    import transformers.masking_utils as masks
    reset = real_patch(max_new, padded)

    def ignores(padding_mask, kv_length, local_attention_size=None):
        if padding_mask is not None:
            padding_mask.all()
            if padded:
                return False
        return local_attention_size is None or kv_length < local_attention_size
    masks._ignore_bidirectional_mask_sdpa = ignores
    torch.Tensor.nonzero = lambda mask: torch.nonzero_static(mask, size=mask.numel())
    return reset


def run_case(case, hooks, *arguments, **named):
    """The labels of a batch come to the device behind its ids, and no encoder takes `use_cache`."""
    import torch
    if case["task"] in CLASSES:
        real_build, asked = reference.build, case

        def built(_case):
            model, config = real_build(asked)
            forward = takes_pixels(config, model.forward)
            if has_cache(config):
                # The step of a masked LM, whose place this takes, says nothing of it.
                forward = functools.partial(forward, use_cache=asked["use_cache"])
            rows = (asked["micro_batch"], asked["seq_len"])[:2 if asked["task"].startswith("tok") else 1]
            if asked["task"] == "seq2seq_lm":
                rows = (asked["micro_batch"], asked["target_len"])
            on_host = torch.zeros(rows, dtype=torch.int64)
            kept = []

            def with_labels(input_ids=None, labels=None, **options):
                return forward(input_ids=input_ids, labels=kept[-1], **options)
            model.forward = with_labels
            hooks.labels = (on_host, kept)
            return model, config

        class Phases:
            def __getattr__(self, name): return getattr(hooks, name)
            def phase(self, name, step):
                # The step's first statement behind the ids is `phase("forward")`: there the labels follow.
                if name == "forward":
                    on_host, kept = hooks.labels
                    moved = on_host.to("cuda")
                    kept[:] = [moved]
                hooks.phase(name, step)
        reference.build = built
        try:
            return real_run_case({**case, "task": "masked_lm"}, Phases(), *arguments, **named)
        finally:
            reference.build = real_build
    if case["task"] == "inference_forward":
        real_build = reference.build

        def without_cache(case):
            model, config = real_build(case)
            forward = takes_pixels(config, model.forward)
            if not has_cache(config):
                model.forward = lambda use_cache=None, **options: forward(**options)
            return model, config
        reference.build = without_cache
        try:
            return real_run_case(case, hooks, *arguments, **named)
        finally:
            reference.build = real_build
    return real_run_case(case, hooks, *arguments, **named)


real_patch, real_run_case, real_host_batch = reference.patch_data_dependence, reference.run_case, reference.host_batch
reference.patch_data_dependence, reference.build, reference.run_case = patch_data_dependence, build, run_case
reference.host_batch = host_batch

if __name__ == "__main__":
    reference.main()
