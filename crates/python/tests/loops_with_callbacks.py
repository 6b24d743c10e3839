"""Run by test_torch.py over the phantom GPU: Lightning's Trainer and a loop of accelerate with their callbacks; prints what was logged
as JSON.

loops_with_callbacks.py lightning|accelerate FOLDER
"""

import json
import sys

import tonnage
import torch
from transformers import GPT2Config, GPT2LMHeadModel

ROW = {"input_ids": torch.ones(64, dtype=torch.long), "labels": torch.ones(64, dtype=torch.long)}
logged = []


def model():
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, n_positions=64))


def job(model):
    return tonnage.Job(model, micro_batch_size=4, seq_len=64)


def lightning(folder):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.loggers import Logger

    class Kept(Logger):
        name = "kept"
        version = 0

        def log_metrics(self, metrics, step=None):
            logged.append({**metrics, "step": step})

        def log_hyperparams(self, *_, **__):
            pass

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model()

        def training_step(self, batch, _):
            return self.model(**batch).loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    module = Module()
    callback = tonnage.LightningCallback(job(module.model))
    options = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False, "default_root_dir": folder}
    trainer = Trainer(accelerator="gpu", devices=1, max_steps=5, accumulate_grad_batches=2, logger=Kept(), callbacks=[callback], **options)
    trainer.fit(module, torch.utils.data.DataLoader([ROW] * 64, batch_size=4))
    return callback.watch


def accelerate(folder):
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker

    class Kept(GeneralTracker):
        name = "kept"
        requires_logging_directory = False
        tracker = None

        def store_init_configuration(self, values):
            pass

        def log(self, values, step=None, **_):
            logged.append({**values, "step": step})

    accelerator = Accelerator(log_with=Kept(), gradient_accumulation_steps=2)
    accelerator.init_trackers("tonnage")
    plain = model()
    optimizer = torch.optim.AdamW(plain.parameters())
    batches = torch.utils.data.DataLoader([ROW] * 40, batch_size=4)
    prepared, optimizer, batches = accelerator.prepare(plain, optimizer, batches)
    seen = tonnage.AccelerateCallback(accelerator, job(plain))
    for batch in batches:
        with accelerator.accumulate(prepared):
            accelerator.backward(prepared(**batch).loss)
            optimizer.step()
            seen.step()
            optimizer.zero_grad()
    return seen.watch


watch = {"lightning": lightning, "accelerate": accelerate}[sys.argv[1]](sys.argv[2])
# What the tracker was told, and the allocator at the end.
print(json.dumps({"logged": logged, "warned": watch.is_warned, "peak": torch.cuda.max_memory_reserved()}))
