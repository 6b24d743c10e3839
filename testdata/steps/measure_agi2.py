"""Measures steps of the small-GPT trainer in agi2.py as measure_rl.py measures its own, whose harness this imports: put that
script's folder on PYTHONPATH. With `--agi2 FOLDER`, a checkout of roby2358/agi2 at 6e54453, its own model and `train_epoch` are
measured in its place (without the cases that it has no switch for), and every figure must be the same.

Fields of a case (kind `agi2`): id, vocab_size, n_embd, n_layer, n_head, dropout, tied, batch, seq_len (tokens of a row of data; the model
sees one fewer), precision (fp32 | amp_fp16 | amp_bf16), clip_grad_norm (null: none), gradient_checkpointing, grad_accum, optimizer
(adamw | adamw_fused | sgd), steps. Phases: load, input, zero_grad, forward, loss, forward_tail, backward, clip, optimizer.

    measure_agi2.py --stub --lib libtonnage_phantom.so --cases agi2_cases.json --out truth.json
    measure_agi2.py ... --timelines FOLDER      # every allocation and free as well
"""
import copy
import gzip
import json
import os
import sys

import measure_rl as harness

DEFAULTS = dict(
    id="case", kind="agi2", vocab_size=50257, n_embd=384, n_layer=6, n_head=6, dropout=0.1, tied=True, batch=4, seq_len=512, precision="fp32",
    clip_grad_norm=1.0, gradient_checkpointing=False, grad_accum=1, optimizer="adamw", steps=3)
AUTOCAST = {"fp32": None, "amp_fp16": "float16", "amp_bf16": "bfloat16"}
REPOSITORY, TIMELINES = os.environ.get("AGI2_REPOSITORY"), os.environ.get("AGI2_TIMELINES")


def full_case(case):
    unknown = set(case) - set(DEFAULTS) - {"note"}
    if unknown:
        raise SystemExit(f"unknown case fields: {sorted(unknown)}")
    return {**copy.deepcopy(DEFAULTS), **case}


def own_trainer(case):
    """The model of agi2.py, and its loop over batches."""
    import torch
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import agi2
    model = agi2.SmallGpt(
        case["vocab_size"], case["seq_len"], case["n_embd"], case["n_layer"], case["n_head"], case["dropout"],
        tied=case["tied"],
        checkpoints=case["gradient_checkpointing"])
    autocast = AUTOCAST[case["precision"]]

    def train(*arguments):
        agi2.train_epoch(
            *arguments, clip_grad_norm=case["clip_grad_norm"] or 0.0, amp=getattr(torch, autocast) if autocast else None,
            accumulate=case["grad_accum"])
    return model, train


def repositorys_trainer(case):
    """The same of the repository itself."""
    if case["precision"] == "amp_bf16" or case["gradient_checkpointing"] or case["grad_accum"] > 1:
        raise SystemExit(f"{case['id']}: the trainer has no switch for this")
    sys.path.insert(0, REPOSITORY)
    from src.config import AGI2Config
    from src.model import AGI2Model
    from src.training import train_epoch
    model = AGI2Model(AGI2Config(
        vocab_size=case["vocab_size"], n_positions=case["seq_len"], n_ctx=case["seq_len"], n_embd=case["n_embd"],
        n_layer=case["n_layer"], n_head=case["n_head"], resid_pdrop=case["dropout"], embd_pdrop=case["dropout"],
        attn_pdrop=case["dropout"], tie_word_embeddings=case["tied"]))

    def train(*arguments):
        train_epoch(*arguments, clip_grad_norm=case["clip_grad_norm"] or 0.0, use_amp=case["precision"] == "amp_fp16")
    return model, train


def optimizer_of(case, parameters):
    import torch
    kind = {"adamw": torch.optim.AdamW, "adamw_fused": torch.optim.AdamW, "sgd": torch.optim.SGD}[case["optimizer"]]
    fused = {"fused": True} if case["optimizer"] == "adamw_fused" else {}
    return kind(parameters, lr=1e-4, **fused)


class Batches:
    """Rows of tokens on the host; what comes after one is asked for is the next batch's input."""

    def __init__(self, case, phases):
        self.case, self.phases = case, phases

    def __len__(self):
        return self.case["steps"] * self.case["grad_accum"]

    def __iter__(self):
        import torch
        for index in range(len(self)):
            self.phases.set("input", index // self.case["grad_accum"] + 1)
            yield torch.zeros(self.case["batch"], self.case["seq_len"], dtype=torch.long)
        self.phases.set("end")


def note_phases(model, criterion, optimizer, phases):
    """Notes a phase wherever the loop calls PyTorch; the loop itself is unchanged."""
    import torch
    scaler = torch.amp.GradScaler
    model.register_forward_pre_hook(lambda *_: phases.set("forward"))
    criterion.register_forward_pre_hook(lambda *_: phases.set("loss"))
    criterion.register_forward_hook(lambda *_: phases.set("forward_tail"))

    def before(owner, name, phase):
        plain = getattr(owner, name)

        def noted(*arguments, **options):
            if phases.name != phase:
                phases.set(phase)
            return plain(*arguments, **options)
        setattr(owner, name, noted)
    before(optimizer, "zero_grad", "zero_grad")
    before(scaler, "scale", "backward")
    before(torch.Tensor, "backward", "backward")
    before(scaler, "unscale_", "clip")
    before(torch.nn.utils, "clip_grad_norm_", "clip")
    before(scaler, "step", "optimizer")
    before(optimizer, "step", "optimizer")


def run_agi2(case, phases, _stub):
    import torch
    model, train = repositorys_trainer(case) if REPOSITORY else own_trainer(case)
    phases.set("load", 0)
    device = torch.device("cuda")
    model = model.to(device)
    info = dict(param_count=harness.count(model)[0], after_load_bytes=torch.cuda.memory_allocated())
    phases.mark(model.parameters(), "parameter")
    optimizer, criterion = optimizer_of(case, model.parameters()), torch.nn.CrossEntropyLoss()
    note_phases(model, criterion, optimizer, phases)
    train(model, Batches(case, phases), optimizer, criterion, device)
    phases.close()
    if phases.traced and TIMELINES:
        write_timeline(case)
    return info


def write_timeline(case):
    """Every allocation and free, with the phase it falls in; an event of autograd's thread is of the phase of the one before."""
    import torch
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    ids, count, label = {}, 0, None
    os.makedirs(TIMELINES, exist_ok=True)
    with gzip.open(os.path.join(TIMELINES, f"{case['id']}.jsonl.gz"), "wt") as file:
        def line(value):
            file.write(json.dumps(value, separators=(",", ":")) + "\n")
        line({"case": case})
        for event in trace:
            if event["action"] not in ("alloc", "free_completed"):
                continue
            said = (event.get("user_metadata") or "").partition("|")[2]
            if said and said != label:
                label = said
                step, name = label.split(":")
                line(["p", name, int(step)])
            if event["action"] == "alloc":
                count += 1
                ids[event["addr"]] = count
                line(["a", count, event["size"], "?", "", "parameter" if name == "load" else "temporary"])
            elif event["addr"] in ids:
                line(["f", ids.pop(event["addr"])])


def warm(_cases):
    pass


harness.RUN["agi2"] = run_agi2

if __name__ == "__main__":
    for flag, variable in (("--agi2", "AGI2_REPOSITORY"), ("--timelines", "AGI2_TIMELINES")):
        if flag in sys.argv:
            at = sys.argv.index(flag)
            os.environ[variable] = os.path.abspath(sys.argv[at + 1])
            del sys.argv[at:at + 2]
    REPOSITORY, TIMELINES = os.environ.get("AGI2_REPOSITORY"), os.environ.get("AGI2_TIMELINES")
    harness.main(full_case, lambda case: run_agi2, warm)
