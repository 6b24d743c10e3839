"""Measures steps of Hugging Face's Trainer and of TRL's SFTTrainer (the real classes, trainer.train() for a few steps) as
measure_rl.py measures those of GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH.

Fields of a case (kind `trainer`): id, framework (trainer | trl), model, task (causal_lm | masked_lm | seq2seq_lm, whose
labels are target_len tokens and whose collator is DataCollatorForSeq2Seq | sequence_classification | token_classification | image_classification | contrastive: CLIPModel or SiglipModel with
return_loss=True on micro_batch pairs, whose collator is that of transformers' examples/pytorch/contrastive-image-text/run_clip.py), precision (fp32 | amp_bf16
(bf16=True) | amp_fp16 (fp16=True) | bf16 (bf16 weights, no autocast) | fp16 | bf16_amp | fp16_amp), micro_batch, seq_len, steps, grad_accum,
gradient_checkpointing, use_reentrant, optimizer (a word of `OptimizerNames`: adamw_torch, sgd, galore_adamw_layerwise, adamw_torch_4bit, of whose compiled steps a second run counts, with
Inductor's cache kept), weight_decay, lora {r, alpha, dropout,
targets}, clip_grad_norm, attn, use_liger_kernel, loss (`liger`: of liger_kernel_config only the fused loss), keep_outputs (compute_loss keeps what the model
returns until the next pass), use_cache, tp (the ranks of world share layers by transformers' tp_plan, in place of DDP), world (ranks of DDP as torchrun starts them, in one process, as in
measure_parallel.py), quantization {weights (nf4 | fp4 | int8 | gptq: fms-acceleration's QuantLinear with random weights | gptqmodel | awq: packed_checkpoint.py), bits, double, compute, prepared, experts, group_size, recast} (a causal model loaded by from_pretrained from
a folder, as bitsandbytes quantizes it; prepared: by peft's prepare_model_for_kbit_training; recast: by TRL's peft_module_casting_to_bf16 then; group_size: gptq's, -1 without groups; experts: stacks of experts are packed as they load, as Axolotl's
quantize_moe_experts does it; SFTTrainer loads it itself; needs
 bitsandbytes 0.50), padded (masks are made as for rows of unequal length; sizes are as without), padding_free (SFTTrainer's), activation_offloading
 (null, or {hooks (save_on_cpu: compute_loss runs under it | streams: SFTConfig's activation_offloading, or its context round a Trainer's step, as Axolotl has it), pin_memory}), fsdp1 (null, or fields of the Trainer's fsdp_config for version 1: the model is loaded on the host, but a quantized one on the GPU, which is
 stored in the weights' dtype), kernels (fms-acceleration's, by its names: foak.py says where its sources are found). Phases: load, between, forward, loss, forward_tail, backward, clip, optimizer.

    measure_trainer.py --stub --lib libtonnage_phantom.so --cases trainer_cases.json --out truth.json
"""
import copy
import tempfile

import measure_rl as harness
import packed_checkpoint

from fake_ranks import start_ranks
from measure_dpo import lora_config, run_steps

DEFAULTS = dict(
    id="case", kind="trainer", framework="trainer", model={"family": "qwen2"}, task="causal_lm", precision="fp32", micro_batch=4,
    seq_len=128, steps=3, grad_accum=1, tp=False, gradient_checkpointing=False, use_reentrant=False, optimizer=None, optim_args="", optim_target_modules=[], weight_decay=0.0, lora=None, clip_grad_norm=1.0,
    attn="sdpa", use_liger_kernel=False, loss="full", keep_outputs=False, use_cache=False, world=1,
    quantization=None, padded=False, padding_free=False, activation_offloading=None, fsdp1=None, kernels=[], target_len=128, freeze_encoder=False)
PRECISIONS = {"fp32": ("float32", {}), "amp_bf16": ("float32", {"bf16": True}), "amp_fp16": ("float32", {"fp16": True}),
              "bf16": ("bfloat16", {}), "fp16": ("float16", {}), "fp16_amp": ("float16", {"fp16": True}), "bf16_amp": ("bfloat16", {"bf16": True})}

# peft's task types, by which it trains a head in full.
PEFT = {"contrastive": None, "sequence_classification": "SEQ_CLS", "token_classification": "TOKEN_CLS", "seq2seq_lm": "SEQ_2_SEQ_LM"}


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def answer(phases, padded=False, padding_free=False):
    """Whether the mask of an encoder hides something, which is asked on the host; and where losses begin and end is noted."""
    import sys

    import liger_kernel.transformers.monkey_patch  # noqa: its models' modules
    import torch
    import torch.nn.functional as functional
    import transformers.masking_utils as masks

    def ignores(padding_mask, kv_length, local_attention_size=None):
        if padding_mask is not None:
            padding_mask.all()
            if padded:
                return False
        return local_attention_size is None or kv_length < local_attention_size
    masks._ignore_bidirectional_mask_sdpa = ignores
    nonzero = torch.Tensor.nonzero
    torch.Tensor.nonzero = lambda mask: torch.nonzero_static(mask, size=mask.numel()) if mask.is_cuda else nonzero(mask)

    def packed_sequences(position_ids):
        first = position_ids[:, :1] - 1
        different = torch.diff(position_ids, prepend=first, dim=-1)
        packed = (different != 1).cumsum(-1)
        (packed[:, -1] == 0).all()
        return packed
    if padding_free:
        masks.find_packed_sequence_indices = packed_sequences

    def noted(loss):
        def call(*args, **options):
            if phases.name != "forward":
                return loss(*args, **options)
            phases.set("loss")
            result = loss(*args, **options)
            phases.set("forward_tail")
            return result
        return call
    functional.cross_entropy = noted(functional.cross_entropy)
    for name, module in list(sys.modules.items()):
        if name.startswith("liger_kernel.transformers.model.") and hasattr(module, "LigerForCausalLMLoss"):
            module.LigerForCausalLMLoss = noted(module.LigerForCausalLMLoss)
    return noted


def take_targets_whole():
    """Whether the mask of an encoder-decoder's own tokens hides something: it is made of ones."""
    import transformers.masking_utils as masks

    def fast_all(mask):
        mask.sum() == mask.numel()
        return True
    masks.fast_all = fast_all


def images(case, count):
    """As many images as the model's config has pixels for, all in the same memory."""
    import torch
    from transformers import AutoConfig
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    size = config.image_size if isinstance(config.image_size, (list, tuple)) else (config.image_size,) * 2
    return [{"pixel_values": torch.zeros(config.num_channels, *size), "labels": 0}] * count


def pairs(case, count):
    """As many images with their texts as are asked for, all in the same memory."""
    import torch
    from transformers import AutoConfig
    fields = dict(case["model"])
    vision = AutoConfig.for_model(fields.pop("family"), **fields).vision_config
    pixels, tokens = torch.zeros(vision.num_channels, vision.image_size, vision.image_size), [10] * case["seq_len"]
    return [{"pixel_values": pixels, "input_ids": tokens, "attention_mask": [1] * case["seq_len"]}] * count


def collate_pairs(examples):
    """In the order of run_clip.py's."""
    import torch
    ids = [torch.tensor([example[name] for example in examples]) for name in ("input_ids", "attention_mask")]
    pixels = torch.stack([example["pixel_values"] for example in examples])
    return {"pixel_values": pixels, "input_ids": ids[0], "attention_mask": ids[1], "return_loss": True}


def recordings(case, targets, count):
    """As many recordings as the model's config has frames for, all in the same memory."""
    import torch
    from transformers import AutoConfig
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    dtype, options = PRECISIONS[case["precision"]]
    frames = torch.zeros(config.num_mel_bins, 2 * config.max_source_positions, dtype=torch.float32 if options else getattr(torch, dtype))
    return [{"input_features": frames, "labels": targets}] * count


def rows(case):
    from datasets import Dataset
    count = case["micro_batch"] * case["grad_accum"] * case["steps"] * case["world"]
    if case["task"] == "image_classification":
        return images(case, count)
    if case["task"] == "contrastive":
        return pairs(case, count)
    targets = (list(range(10, 74)) * (case["target_len"] // 64 + 1))[:case["target_len"]]
    if case["model"]["family"] == "whisper":
        return recordings(case, targets, count)
    tokens = [list(range(10, 10 + 64)) * (case["seq_len"] // 64 + 1) for _ in range(count)]
    tokens = [row[:case["seq_len"]] for row in tokens]
    columns = {"input_ids": tokens}
    if case["framework"] == "trainer":
        labels = [0] * count if case["task"] == "sequence_classification" else tokens
        if case["task"] == "seq2seq_lm":
            labels = [targets] * count
        columns |= {"attention_mask": [[1] * case["seq_len"]] * count, "labels": labels}
    return Dataset.from_dict(columns)


def quantization_config(case):
    import torch
    from transformers import BitsAndBytesConfig
    asked = {"double": False, "compute": "float32", **case["quantization"]}
    if asked["weights"] == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    storage = {"bnb_4bit_quant_storage": getattr(torch, PRECISIONS[case["precision"]][0])} if case["fsdp1"] is not None else {}
    return BitsAndBytesConfig(
        load_in_4bit=True, **storage, bnb_4bit_quant_type=asked["weights"], bnb_4bit_use_double_quant=asked["double"],
        bnb_4bit_compute_dtype=getattr(torch, asked["compute"]))


def pack_experts(asked):
    """Has `from_pretrained` pack each stack of experts when it is there, and the module unpack it at each access."""
    import torch
    import transformers.core_model_loading as loading
    import transformers.modeling_utils as modeling
    from bitsandbytes.functional import int8_vectorwise_dequant, int8_vectorwise_quant
    from bitsandbytes.nn.parametrize import replace_parameter_4bit
    from torch.nn.utils import parametrize

    class Unpacks(torch.nn.Module):
        def __init__(self, row_stats):
            super().__init__()
            self.register_buffer("row_stats", row_stats)

        @torch.no_grad()
        def forward(self, packed):
            rows = packed.reshape(-1, packed.shape[-1])
            return int8_vectorwise_dequant(rows, self.row_stats).reshape(packed.shape)

    def caches(_module, _inputs):
        parametrize._cache_enabled += 1

    def forgets(_module, _inputs, _output):
        parametrize._cache_enabled -= 1
        if not parametrize._cache_enabled:
            parametrize._cache = {}

    def pack_in_8_bits(module, name):
        packed, row_stats, _ = int8_vectorwise_quant(getattr(module, name).data.to(torch.float16))
        setattr(module, name, torch.nn.Parameter(packed, requires_grad=False))
        parametrize.register_parametrization(module, name, Unpacks(row_stats), unsafe=True)
        if not hasattr(module, "caches_unpacked"):
            module.register_forward_pre_hook(caches)
            module.register_forward_hook(forgets)
            module.caches_unpacked = True
    placed = loading.set_param_for_module

    def place(model, target, value, *args, **options):
        placed(model, target, value, *args, **options)
        if value.ndim < 3 or "expert" not in target or not value.is_cuda:
            return
        path, _, name = target.rpartition(".")
        if asked["weights"] == "int8":
            pack_in_8_bits(model.get_submodule(path), name)
        else:
            replace_parameter_4bit(model.get_submodule(path), name, compress_statistics=asked.get("double", False), quant_type=asked["weights"])
        value.data = torch.empty(0)
        torch.cuda.empty_cache()
    loading.set_param_for_module = place
    modeling.caching_allocator_warmup = lambda *args, **options: None


def is_packed(case):
    return case["quantization"]["weights"] in ("gptqmodel", "awq")


def written(case, dtype, folder):
    """The model with random weights in a folder, as a user has it; how many parameters it has."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    if is_packed(case):
        return packed_checkpoint.write(case, dtype, folder)
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    return harness.count(model)[0]


def quantized(case, dtype, folder, stub):
    """What `from_pretrained` makes of it on the GPU, with adapters as peft's guide adds them."""
    if case["quantization"]["weights"] == "gptq":
        import foak
        return foak.gptq_model(case, dtype, lora_config(case))
    from peft import get_peft_model, prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM
    packs = case["quantization"].get("experts", False)
    if packs:
        pack_experts(case["quantization"])
    if is_packed(case):
        model = packed_checkpoint.load(case, dtype, folder, stub)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=quantization_config(case), dtype=dtype, attn_implementation=case["attn"])
    if case["quantization"].get("prepared", True) and not packs:
        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=case["gradient_checkpointing"],
            gradient_checkpointing_kwargs={"use_reentrant": False} if case["gradient_checkpointing"] else None)
    model = get_peft_model(model, lora_config(case))
    if case["quantization"].get("recast"):
        from trl.experimental.utils import peft_module_casting_to_bf16
        peft_module_casting_to_bf16(model)
    if case["gradient_checkpointing"]:
        model.enable_input_require_grads()
    return model


def build(case, dtype, stub):
    if case.get("fsdp1") is not None:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        fields = dict(case["model"])
        config = AutoConfig.for_model(fields.pop("family"), **fields)
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), attn_implementation=case["attn"])
    if case["task"] == "causal_lm":
        return harness.build(case["model"], dtype, real=not stub, attn=case["attn"])[0]
    import torch
    from transformers import (AutoConfig, AutoModel, AutoModelForImageClassification, AutoModelForMaskedLM, AutoModelForSeq2SeqLM,
                              AutoModelForSequenceClassification, AutoModelForSpeechSeq2Seq, AutoModelForTokenClassification)
    from transformers.initialization import no_init_weights
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    with no_init_weights(), torch.device("meta"):
        kind = {"masked_lm": AutoModelForMaskedLM, "contrastive": AutoModel, "seq2seq_lm": AutoModelForSeq2SeqLM, "sequence_classification": AutoModelForSequenceClassification,
                "token_classification": AutoModelForTokenClassification,
                "image_classification": AutoModelForImageClassification}[case["task"]]
        if case["model"]["family"] == "whisper":
            kind = AutoModelForSpeechSeq2Seq
        model = kind.from_config(config, dtype=getattr(torch, dtype), attn_implementation=case["attn"])
    model.tie_weights()
    if case["task"] == "seq2seq_lm" and case["model"].get("tie_word_embeddings") is False and hasattr(model, "shared"):
        # As from_pretrained leaves a head that a checkpoint has apart.
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    model = harness.materialize(model, case.get("device", "cuda"))
    if case.get("freeze_encoder"):
        model.model.encoder._freeze_parameters()
    return model


def liger_options(case):
    if case["loss"] == "liger":
        import inspect
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
        apply = MODEL_TYPE_TO_APPLY_LIGER_FN[case["model"]["family"]]
        switches = set(inspect.signature(apply).parameters) - {"model", "fused_linear_cross_entropy"}
        config = {"fused_linear_cross_entropy": True, **{name: False for name in switches}}
        return {"use_liger_kernel": True, "liger_kernel_config": config}
    return {"use_liger_kernel": case["use_liger_kernel"]}


def hooks_of(offloading):
    return offloading["hooks"] if offloading else None


def saving(offloading):
    """What a loss is computed under."""
    from contextlib import nullcontext

    from torch.autograd.graph import save_on_cpu
    return save_on_cpu(offloading["pin_memory"]) if hooks_of(offloading) == "save_on_cpu" else nullcontext()


def collator(case, model):
    from transformers import DataCollatorForSeq2Seq, default_data_collator
    if case["task"] == "contrastive":
        return collate_pairs
    if case["task"] == "seq2seq_lm" and case["model"]["family"] != "whisper":
        return DataCollatorForSeq2Seq(harness.byte_tokenizer(), model=model)
    return default_data_collator


def of_optimizers():
    """testdata/optimizers/measure.py"""
    import pathlib
    import sys
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "optimizers"))
    import measure
    return measure


def made(case, phases, model, folder, stub):
    """The trainer, which notes where its loss is computed."""
    options = dict(
        output_dir=folder, per_device_train_batch_size=case["micro_batch"], max_steps=case["steps"],
        gradient_accumulation_steps=case["grad_accum"], gradient_checkpointing=case["gradient_checkpointing"],
        gradient_checkpointing_kwargs={"use_reentrant": case["use_reentrant"]}, report_to=[], logging_steps=1, save_strategy="no",
        max_grad_norm=case["clip_grad_norm"] or 0.0, weight_decay=case["weight_decay"], disable_tqdm=True, use_cache=case["use_cache"], **liger_options(case),
        **PRECISIONS[case["precision"]][1])
    if case.get("fsdp1") is not None:
        options |= dict(fsdp=True, fsdp_config={"version": 1, **case["fsdp1"]})
    if case["task"] == "contrastive":
        options["remove_unused_columns"] = False
    if case["optimizer"]:
        options["optim"] = case["optimizer"]
    if stub and (case["optimizer"] or "").startswith("galore"):
        of_optimizers().let_svd_succeed()
    if case["optimizer"] == "adalomo":
        of_optimizers().let_weights_be_large()
    if case["optimizer"] == "stable_adamw":
        of_optimizers().leave_triton_out()
    if (case["optimizer"] or "").startswith(("galore", "apollo")):
        options |= dict(optim_args=case["optim_args"], optim_target_modules=case["optim_target_modules"] or "all-linear")
    if case["optimizer"] in ("adamw_torch_8bit", "adamw_torch_4bit"):
        of_optimizers().leave_kernels_out()
    kept = []

    def noted(base):
        class Trainer(base):
            def training_step(self, *args, **options):
                if case["framework"] == "trl" or hooks_of(case["activation_offloading"]) != "streams":
                    return super().training_step(*args, **options)
                if not hasattr(self, "offloads"):
                    from trl.models import get_act_offloading_ctx_manager
                    self.offloads = get_act_offloading_ctx_manager(self.model)
                with self.offloads:
                    return super().training_step(*args, **options)

            def compute_loss(self, model, inputs, return_outputs=False, **options):
                with phases.within("forward"), saving(case["activation_offloading"]):
                    if not case["keep_outputs"]:
                        return super().compute_loss(model, inputs, return_outputs, **options)
                    loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **options)
                    kept[:] = [outputs]
                    return (loss, outputs) if return_outputs else loss
        return Trainer
    if case["framework"] == "trl":
        from trl import SFTConfig, SFTTrainer
        streams = hooks_of(case["activation_offloading"]) == "streams"
        config = SFTConfig(max_length=None, padding_free=case["padding_free"], activation_offloading=streams, **{"bf16": False, **options})
        if case["quantization"]:
            config.model_init_kwargs = {"dtype": PRECISIONS[case["precision"]][0], "attn_implementation": case["attn"]}
            return noted(SFTTrainer)(model=model, args=config, train_dataset=rows(case), peft_config=lora_config(case), processing_class=harness.byte_tokenizer(),
                                     quantization_config=packed_checkpoint.asked_for(case, stub) if is_packed(case) else quantization_config(case))
        return noted(SFTTrainer)(model=model, args=config, train_dataset=rows(case), processing_class=harness.byte_tokenizer(),
                                 peft_config=lora_config(case))
    from transformers import Trainer, TrainingArguments
    if case["lora"] and not case["quantization"]:
        from peft import get_peft_model
        kind = None if case["model"]["family"] == "whisper" else PEFT.get(case["task"], "CAUSAL_LM")
        model = get_peft_model(model, lora_config(case, kind))
        if case["gradient_checkpointing"]:
            model.enable_input_require_grads()
    return noted(Trainer)(model=model, args=TrainingArguments(**options), train_dataset=rows(case),
                          data_collator=collator(case, model))


def run_trainer(case, phases, stub):
    if case["world"] > 1:
        start_ranks(case["world"])
    harness.EXPECT.clear()
    scored = case["micro_batch"] * (case["seq_len"] - 1)
    harness.EXPECT[(case["micro_batch"], case["seq_len"] - 1)] = scored
    harness.EXPECT[(1, case["micro_batch"] * case["seq_len"] - 1)] = scored
    phases.set("load", 0)
    noted = answer(phases, case["padded"], case["padding_free"])
    if case["task"] == "seq2seq_lm":
        take_targets_whole()
    dtype, folder = PRECISIONS[case["precision"]][0], tempfile.mkdtemp()
    if case["quantization"]:
        info = dict(param_count=written(case, dtype, folder + "/model"))
        model = folder + "/model"
        if case["framework"] == "trainer":
            model = quantized(case, dtype, model, stub)
            model.get_base_model().loss_function = noted(model.get_base_model().loss_function)
    elif case["tp"]:
        from transformers import AutoModelForCausalLM
        from transformers.distributed import DistributedConfig
        info = dict(param_count=written(case, dtype, folder + "/model"))
        model = AutoModelForCausalLM.from_pretrained(folder + "/model", distributed_config=DistributedConfig(tp_size=case["world"]), dtype=dtype,
                                                     attn_implementation=case["attn"])
        model.loss_function = noted(model.loss_function)
    else:
        model = build(case, dtype, stub)
        if case["task"] == "causal_lm":
            model.loss_function = noted(model.loss_function)
        info = dict(param_count=harness.count(model)[0])
    if case["kernels"]:
        import foak
        foak.put_in(model, case["kernels"], noted)
    trainer = made(case, phases, model, folder, stub)
    if "fused_lora" in case["kernels"] and case["fsdp1"] is not None:
        foak.replicate_adapters(trainer)
    info["optim"] = str(trainer.args.optim)
    return run_steps(trainer, phases, info, folder)


def warm(cases):
    if any(case["quantization"] or case["optimizer"] for case in cases):
        # bitsandbytes, which peft and optimizers import, asks for the GPU at once: no child could use it then.
        return
    import datasets, peft, trl.trainer.sft_trainer, transformers.trainer  # noqa: shared by the children
    import torch.testing._internal.distributed.fake_pg, torch.nn.parallel.distributed  # noqa


harness.RUN["trainer"] = run_trainer

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_trainer, warm)
