"""Measures steps of the Trainer and of SFTTrainer on rows with images, as measure_trainer.py measures those on rows of text: put the
folder of measure_rl.py on PYTHONPATH.

A case has the four fields more that testdata/families/measure_towers.py has: `images_per_row`, `image_size`, `freeze_vision_tower` and
`freeze_multi_modal_projector`. The model is transformers' own ...ForConditionalGeneration; SFTTrainer's own collator asks a processor, of
which only what it returns is made here. What the host reads of the device is what it wrote there and what follows from that.

    measure_tower_trainer.py --stub --lib libtonnage_phantom.so --cases tower_trainer_cases.json --out truth.json
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "families"))
import measure_towers as towers  # noqa: E402
import measure_trainer as base  # noqa: E402

harness = base.harness
base.DEFAULTS.update(images_per_row=1, image_size=None, freeze_vision_tower=False, freeze_multi_modal_projector=False)
real_answer, real_made, real_run = base.answer, base.made, base.run_trainer


def patch_stub(padded=False):
    """Values are known: what decides of rows is asked of them."""
    towers.patch_data_dependence(None, padded)
    import triton.runtime.autotuner
    import triton.runtime.jit
    triton.runtime.jit.JITFunction.run = lambda self, *args, **options: None
    triton.runtime.autotuner.Autotuner.run = lambda self, *args, **options: None
    triton.runtime.autotuner.Heuristics.run = lambda self, *args, **options: None


def answer(phases, *arguments):
    import torch
    nonzero = torch.Tensor.nonzero
    noted = real_answer(phases, *arguments)
    torch.Tensor.nonzero = nonzero
    return noted


def config_of(case):
    from transformers import AutoConfig
    fields = dict(case["model"])
    return AutoConfig.for_model(fields.pop("family"), **fields)


def named_targets(case):
    """The case, whose adapters are on modules by name where a part is frozen."""
    if not case["lora"]:
        return case
    import torch
    from transformers import AutoModelForImageTextToText
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config_of(case))
    wanted = towers.targets(case, model)
    return {**case, "lora": {**case["lora"], "targets": wanted[0] if wanted == ["all-linear"] else wanted}}


def build(case, dtype, stub):
    model = harness.build(case["model"], dtype, attn=case["attn"], device="cpu")[0]
    if case["framework"] == "trl":
        # It loads models to the GPU itself; the Trainer moves what it is given there.
        model.to("cuda")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not towers.is_frozen(case, name))
    return model


def batch(case, count):
    """What a processor makes of so many rows."""
    import torch
    case, config = {**case, "micro_batch": count}, config_of(case)
    ids = towers.host_batch(case, config)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **towers.host_images(case, config, ids)}


def rows(case):
    from datasets import Dataset
    count = case["micro_batch"] * case["grad_accum"] * case["steps"] * case["world"]
    if case["framework"] == "trainer":
        return [{"row": row} for row in range(count)]
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return Dataset.from_dict({"images": [[0] * case["images_per_row"]] * count, "messages": [said] * count})


def processor(case):
    """A processor with the byte tokenizer, which returns the batch of as many rows as there are conversations."""
    from transformers import BatchFeature, ProcessorMixin

    class Processor(ProcessorMixin):
        def __init__(self):
            self.tokenizer = harness.byte_tokenizer()
            self.chat_template = None

        def apply_chat_template(self, messages, **options):
            return BatchFeature(batch(case, len(messages)))
    return Processor()


def made(case, phases, model, folder):
    import transformers

    def collate(chosen):
        inputs = batch(case, len(chosen))
        return {**inputs, "labels": inputs["input_ids"].clone()}
    transformers.default_data_collator = collate
    seeing = processor(case)
    harness.byte_tokenizer = lambda: seeing
    return real_made(case, phases, model, folder)


def run_trainer(case, phases, stub):
    import transformers
    transformers.AutoModelForCausalLM._model_mapping = transformers.AutoModelForImageTextToText._model_mapping
    return real_run(named_targets(case), phases, stub)


harness.patch_stub = patch_stub
base.answer, base.build, base.made, base.rows = answer, build, made, rows
harness.RUN["trainer"] = run_trainer

if __name__ == "__main__":
    harness.main(base.full_case, lambda case: run_trainer, base.warm)
