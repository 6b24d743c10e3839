"""Measures steps of sentence-transformers' SentenceTransformerTrainer (the real class, trainer.train() for a few steps) as measure_rl.py
measures those of GRPOTrainer, whose harness this imports: put that script's folder on PYTHONPATH, and sentence-transformers 6.2.

Fields of a case (kind `embedding`): id, framework (trainer | loop: the loss in a loop of its own, as measure_torch.py has it), model, pooling
(mean | cls | lasttoken), normalize (a Normalize module behind it), precision (fp32 | amp_bf16 | amp_fp16 | bf16 | bf16_amp), batch (anchors:
per_device_train_batch_size), anchor_len, seq_len (tokens of positives and negatives), negatives (hard negatives of each anchor), mini_batch
(null: MultipleNegativesRankingLoss, else the mini_batch_size of CachedMultipleNegativesRankingLoss), steps, grad_accum, gradient_checkpointing,
optim, lora {r, alpha, dropout, targets}, attn, max_grad_norm, padded (masks are made as for rows of unequal length; sizes are as without). The model
is written to a folder and loaded from there. Phases: load, between, forward, backward, clip, optimizer.

    measure_embedding.py --stub --lib libtonnage_phantom.so --cases embedding_cases.json --out truth.json
"""
import copy
import json
import tempfile

import measure_rl as harness

from measure_dpo import lora_config, run_steps
from measure_trainer import PRECISIONS, answer

DEFAULTS = dict(
    id="case", kind="embedding", framework="trainer", model={"family": "qwen2"}, pooling="mean", normalize=True, precision="fp32", batch=8,
    anchor_len=32, seq_len=128, negatives=0, mini_batch=None, steps=2, grad_accum=1, gradient_checkpointing=False, optim=None, lora=None,
    attn="sdpa", max_grad_norm=1.0, padded=False)

# Whose tokenizer says of which text a token is.
TYPED = ("bert", "electra")
LOSSES = ("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss")


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def write_model(case, dtype, folder):
    """The base model with a byte tokenizer, in the dtype that it is trained in."""
    import torch
    from transformers import AutoConfig, AutoModel
    from transformers.initialization import no_init_weights
    fields = dict(case["model"])
    config = AutoConfig.for_model(fields.pop("family"), **fields)
    with no_init_weights():
        model = AutoModel.from_config(config, dtype=getattr(torch, dtype))
    model.save_pretrained(folder)
    harness.byte_tokenizer().save_pretrained(folder)
    if case["model"]["family"] in TYPED:
        with open(folder + "/tokenizer_config.json") as file:
            config = json.load(file)
        config["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        with open(folder + "/tokenizer_config.json", "w") as file:
            json.dump(config, file)


def embedder(case, folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    dtype = PRECISIONS[case["precision"]][0]
    write_model(case, dtype, folder + "/model")
    transformer = Transformer(folder + "/model", model_kwargs={"dtype": dtype, "attn_implementation": case["attn"]})
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=case["pooling"])]
    model = SentenceTransformer(modules=modules + [Normalize()] * case["normalize"], device="cuda")
    if case["lora"]:
        model.add_adapter(lora_config(case, "FEATURE_EXTRACTION"))
    return model


def loss_of(case, model):
    from sentence_transformers.sentence_transformer import losses
    if case["mini_batch"] is None:
        return losses.MultipleNegativesRankingLoss(model)
    return losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=case["mini_batch"])


def know_padding():
    """What the cached loss reads of a mask: that rows are as long as the batch is wide."""
    import torch
    from sentence_transformers.base.losses import gradcache
    create = gradcache._create_minibatch

    def known(features, begin, end):
        read, holds = torch.Tensor.item, torch.Tensor.__bool__
        width = features["attention_mask"].shape[1]
        torch.Tensor.item, torch.Tensor.__bool__ = lambda self: width - 1, lambda self: True
        try:
            return create(features, begin, end)
        finally:
            torch.Tensor.item, torch.Tensor.__bool__ = read, holds
    gradcache._create_minibatch = known


def texts(case):
    """Anchors, positives and negatives of constant length."""
    from datasets import Dataset
    rows = case["batch"] * case["grad_accum"] * case["steps"]
    text = "abcdefghijklmnopqrstuvwxyz" * 2000

    def column(length):
        return [text[:length]] * rows
    candidates = ["positive"] + [f"negative_{at}" for at in range(case["negatives"])]
    return Dataset.from_dict({"anchor": column(case["anchor_len"]), **{name: column(case["seq_len"]) for name in candidates}})


def run_embedding(case, phases, stub):
    phases.set("load", 0)
    answer(phases, case["padded"])
    know_padding()
    harness.EXPECT.clear()
    folder = tempfile.mkdtemp()
    model = embedder(case, folder)
    info = dict(param_count=harness.count(model)[0])
    return (run_loop if case["framework"] == "loop" else run_trainer)(case, phases, model, info, folder)


def run_trainer(case, phases, model, info, folder):
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    optim = {"optim": case["optim"]} if case["optim"] else {}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder, per_device_train_batch_size=case["batch"], max_steps=case["steps"], gradient_accumulation_steps=case["grad_accum"],
        gradient_checkpointing=case["gradient_checkpointing"], report_to=[], logging_steps=1, save_strategy="no",
        max_grad_norm=case["max_grad_norm"], disable_tqdm=True, **PRECISIONS[case["precision"]][1], **optim)

    class Trainer(SentenceTransformerTrainer):
        """The same methods, with the phase noted."""

        def compute_loss(self, *args, **kwargs):
            with phases.within("forward"):
                return super().compute_loss(*args, **kwargs)
    trainer = Trainer(model=model, args=arguments, train_dataset=texts(case), loss=loss_of(case, model))
    info["optim"] = str(trainer.args.optim)
    return run_steps(trainer, phases, info, folder)


def run_loop(case, phases, model, info, folder):
    """Batches of a step in turn: moved to the device, embedded, backward; then clipping, the optimizer and zero_grad."""
    import shutil

    import torch
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    info.update(trainable_params=harness.count(model)[1], after_load_bytes=torch.cuda.memory_allocated())
    phases.mark(list(model.parameters()), "parameter")
    if case["gradient_checkpointing"]:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    phases.set("between", 1)
    optimizer = {None: torch.optim.AdamW, "sgd": torch.optim.SGD}[case["optim"]](parameters, lr=1e-4)
    autocast = {"amp_bf16": torch.bfloat16, "amp_fp16": torch.float16, "bf16_amp": torch.bfloat16}.get(case["precision"])
    scaler = torch.amp.GradScaler("cuda") if case["precision"] == "amp_fp16" else None
    loss_function = loss_of(case, model)
    rows, columns = texts(case), {}
    model.train()
    for step in range(1, case["steps"] + 1):
        for _ in range(case["grad_accum"]):
            phases.set("input", step)
            columns = [{key: value.to("cuda") for key, value in model.preprocess(rows[name][:case["batch"]]).items() if hasattr(value, "to")} for name in rows.column_names]
            phases.set("forward", step)
            with torch.autocast("cuda", autocast, enabled=autocast is not None):
                loss = loss_function(columns, None)
            if case["grad_accum"] > 1:
                loss = loss / case["grad_accum"]
            phases.set("backward", step)
            (scaler.scale(loss) if scaler else loss).backward()
        if case["max_grad_norm"]:
            phases.set("clip", step)
            if scaler:
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, case["max_grad_norm"])
        phases.set("optimizer", step)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        phases.set("zero_grad", step)
        optimizer.zero_grad()
    phases.set("end", case["steps"])
    phases.close()
    shutil.rmtree(folder, ignore_errors=True)
    return info


def warm(_cases):
    import datasets, peft, sentence_transformers, transformers.trainer  # noqa: shared by the children


harness.RUN["embedding"] = run_embedding

if __name__ == "__main__":
    harness.main(full_case, lambda case: run_embedding, warm, ("sentence-transformers", "peft", "accelerate"))
