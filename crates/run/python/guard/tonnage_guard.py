"""What a training script can tell `tonnage run`, and be told by it. All of it is optional; no dependencies.

    import tonnage_guard                                 # peaks into the record at exit, a snapshot when memory runs out
    trainer.add_callback(tonnage_guard.Callback())       # prints the estimate, and the measured peak after warm-up

    @tonnage_guard.guard                                 # retries in this process, at a batch that is predicted to fit
    def train(micro_batch_size, gradient_accumulation_steps): ...

    data = tonnage_guard.longest_first(data)             # in a probe, the longest rows come first; else nothing changes

    tonnage_guard.log(step, loss=0.3, **{"eval/accuracy": 0.9})   # a point of the run's records, for `tonnage report`

    with tonnage_guard.lease():                          # of a swarm's nodes, only so many are in here at once
        loss.backward()
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import subprocess
import sys
import time

WARM_UP_STEPS = 3


def attempt_folder():
    """The attempt's folder; None where no `tonnage run` started this process."""
    return os.environ.get("TONNAGE_ATTEMPT_DIR")


def told(name, default=None):
    """A number that this attempt was told: `told("micro_batch_size")`."""
    value = os.environ.get("TONNAGE_" + name.upper())
    return default if value is None else int(value)


def longest_first(dataset, length=None):
    """In a probe (`tonnage probe`), the dataset with its longest rows first: a list. Else the dataset itself.

    `length(row)` tells a row's length; without it, that of its `input_ids`, or of the row."""
    if "TONNAGE_PROBE" not in os.environ:
        return dataset
    rows = [dataset[index] for index in range(len(dataset))]
    return sorted(rows, key=length or _row_length, reverse=True)


def _row_length(row):
    try:
        return len(row["input_ids"])
    except (KeyError, TypeError, IndexError):
        return len(row)


def _torch():
    # A script that has not imported PyTorch has no peaks, and is not made to import it.
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def peaks():
    """Peak bytes of this process's allocator on its busiest GPU, or None before the first use of CUDA."""
    torch = _torch()
    if torch is None:
        return None
    devices = range(torch.cuda.device_count())
    pairs = [(torch.cuda.max_memory_reserved(d), torch.cuda.max_memory_allocated(d)) for d in devices]
    reserved, allocated = max(pairs)
    return {"peak_allocated_bytes": allocated, "peak_reserved_bytes": reserved, "rank": os.environ.get("RANK")}


def _write(name, value):
    folder = attempt_folder()
    if folder is None:
        return
    path = os.path.join(folder, name)
    with open(path + ".tmp", "w") as file:
        json.dump(value, file)
    os.replace(path + ".tmp", path)


def log(step, seconds=None, gpu_hours=None, tokens_generated=None, tokens_trained=None, flops=None, **metrics):
    """Metrics at a step, as a line of the file that a suite names (docs/report.md); of several ranks the first writes.

    Everything counts from the beginning of the run; `seconds` is the time since then where nobody says another. Does nothing where
    nobody asked for metrics.
    """
    path = os.environ.get("TONNAGE_METRICS")
    if path is None or os.environ.get("RANK", "0") != "0":
        return
    began = os.environ.get("TONNAGE_BEGAN_MS")
    if seconds is None and began is not None:
        seconds = max(0.0, time.time() - int(began) / 1e3)
    axes = {
        "seconds": seconds,
        "gpu_hours": gpu_hours,
        "tokens_generated": tokens_generated,
        "tokens_trained": tokens_trained,
        "flops": flops,
    }
    point = {"record": "point", "step": step, **{name: value for name, value in axes.items() if value is not None}}
    point["metrics"] = {name: float(value) for name, value in metrics.items()}
    # One write of a whole line: others may write too.
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(point) + "\n")


def _at_exit():
    found = peaks()
    if found is not None:
        _write("allocator-%d.json" % os.getpid(), found)


def _on_out_of_memory(*_):
    torch, folder = _torch(), attempt_folder()
    if torch is not None and folder is not None:
        torch.cuda.memory._dump_snapshot(os.path.join(folder, "out-of-memory-%d.pickle" % os.getpid()))


def watch_out_of_memory(max_entries=100000):
    """Records the allocator's history, and writes a snapshot into the attempt's folder when memory runs out."""
    import torch

    torch.cuda.memory._record_memory_history(max_entries=max_entries)
    torch._C._cuda_attach_out_of_memory_observer(_on_out_of_memory)


def estimate():
    """What `tonnage run` predicted for this attempt, or None."""
    folder = attempt_folder()
    if folder is None:
        return None
    with open(os.path.join(folder, "predicted.json")) as file:
        return json.load(file)


try:
    from transformers import TrainerCallback as _Base
except ImportError:
    _Base = object


class Callback(_Base):
    """Prints the estimate at the start and the measured peak after warm-up, beside each other."""

    def on_train_begin(self, args, state, control, **_):
        predicted = estimate()
        if predicted and state.is_world_process_zero:
            print("tonnage: predicted %s" % _gib(predicted["peak_reserved_bytes"]), flush=True)

    def on_step_end(self, args, state, control, **_):
        found = peaks()
        if found and state.global_step == WARM_UP_STEPS and state.is_world_process_zero:
            predicted = estimate() or {}
            beside = predicted.get("peak_reserved_bytes")
            text = "tonnage: measured %s reserved" % _gib(found["peak_reserved_bytes"])
            print(text + (", predicted %s" % _gib(beside) if beside else ""), flush=True)


def _gib(size):
    return "%.2f GiB" % (size / 2**30)


@contextlib.contextmanager
def lease():
    """Waits for one of the run's leases (`swarm.lease`); without a lease in the job it lets everyone in."""
    import fcntl

    folder, count = os.environ.get("TONNAGE_LEASES"), told("lease", 0)
    if not folder or count == 0:
        yield
        return
    slots = [open(os.path.join(folder, "lease-%d" % slot), "w") for slot in range(count)]  # noqa: SIM115
    try:
        held = _first_free(slots, fcntl)
        try:
            yield
        finally:
            # The next node counts on what this one no longer needs.
            torch = _torch()
            if torch is not None:
                torch.cuda.empty_cache()
            fcntl.flock(held, fcntl.LOCK_UN)
    finally:
        for slot in slots:
            slot.close()


def _first_free(slots, fcntl):
    # A lock of the kernel: a node that dies in here gives its lease back by dying.
    while True:
        for slot in slots:
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return slot
            except OSError:
                time.sleep(0.005)


def guard(function):
    """Calls `function(micro_batch_size, gradient_accumulation_steps, ...)`; out of memory, again with the largest equal
    batch that is predicted to fit what the GPU has. The sizes are those the attempt was told, or keyword arguments."""

    @functools.wraps(function)
    def guarded(*args, micro_batch_size=None, gradient_accumulation_steps=None, **kwargs):
        rows = told("micro_batch_size", micro_batch_size)
        passes = told("gradient_accumulation_steps", gradient_accumulation_steps)
        if rows is None or passes is None:
            raise TypeError("guard: no micro_batch_size and gradient_accumulation_steps: pass them, or use tonnage run")
        batches = []
        while True:
            try:
                return function(
                    *args, micro_batch_size=rows, gradient_accumulation_steps=passes, **kwargs
                )
            except RuntimeError as error:
                # Ranks must agree on a batch: only the supervisor, which starts all of them again, can see to that.
                if "out of memory" not in str(error) or int(os.environ.get("WORLD_SIZE", "1")) > 1:
                    raise
                needed = _needed()
                smaller = next_batch(rows, passes, needed)
                if smaller is None:
                    raise
                text = str(error).split(". ")[0]
            # Outside `except`, so that the traceback no longer holds the tensors of its frames.
            print("tonnage: %s; again with %d x %d" % (text, smaller[0], smaller[1]), file=sys.stderr, flush=True)
            rows, passes = smaller
            batches.append([rows, passes])
            _write("batches.json", batches)
            _clear()

    return guarded


def _clear():
    gc.collect()
    torch = _torch()
    if torch is not None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _needed():
    """Bytes in use when memory ran out, and bytes of the GPU: the least that was needed, and what there is."""
    torch = _torch()
    if torch is None:
        return None
    free, total = torch.cuda.mem_get_info()
    return total - free, total


def next_batch(rows, passes, needed):
    """The largest smaller batch with equal `rows * passes` that is predicted to fit; None where there is none.

    With a job, by `tonnage fit`, corrected by what the failure showed; without one, the next divisor."""
    effective = rows * passes
    smaller = [r for r in range(rows - 1, 0, -1) if effective % r == 0]
    if not smaller:
        return None
    totals = _predicted([*smaller, rows])
    if totals and needed:
        # What was in use is less than what was needed.
        offset = max(0, needed[0] - totals.get(rows, 0))
        smaller = [r for r in smaller if r in totals and totals[r] + offset <= needed[1]]
    return (smaller[0], effective // smaller[0]) if smaller else None


def _predicted(sizes):
    """Predicted bytes for each number of rows, by the `tonnage` that started this process; empty where it cannot say."""
    folder, program = attempt_folder(), os.environ.get("TONNAGE_PROGRAM")
    job = os.path.join(folder, "job.toml") if folder else None
    if not program or not job or not os.path.exists(job):
        return {}
    words = [program, "fit", job, "--rows", ",".join(map(str, sorted(sizes))), "--no-largest", "--json"]
    with open(os.path.join(folder, "job.args.json")) as file:
        words[3:3] = json.load(file)
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if not answer.stdout.startswith("{"):
        return {}
    found = {}
    for row in json.loads(answer.stdout).get("rows", []):
        for cell in row.get("gpus", []):
            if cell.get("total_bytes"):
                found[row["micro_batch_size"]] = cell["total_bytes"]
    return found


if attempt_folder() is not None:
    atexit.register(_at_exit)
