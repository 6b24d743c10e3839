"""How fast `tonnage doctor` reads logs, and in how much memory: a gigabyte of each kind, through the binary.

    python testdata/ordinary/speed.py target/release/tonnage [MEBIBYTES]

Each kind is a log of about a megabyte, over and over, in which nothing failed; its last line is a failure that must be found.
Beside it, in turns, what it takes to read the file and count its lines: on a machine that others use too the ratio says
more than either.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

BLOCK = 1 << 20
FAILURE = b"RuntimeError: CUDA error: out of memory\n"

ORDINARY = [
    "{{'loss': 1.{n:04}, 'grad_norm': 0.8412, 'learning_rate': 1.9e-05, 'epoch': 0.{p:02}}}",
    " {p:>2}%|##1       | {n}/121300 [01:11<1:10:03,  3.52s/it]",
    "[rank{r}]: step {n} tokens/s 11423.1 mfu 0.41 memory 41.20 GiB",
    "node1:534:1763 [3] NCCL INFO Channel 01 : 2[1040] -> 0[1020] via SHM/direct/direct",
    "[INFO|trainer.py:2314] 2026-03-02 10:11:12,131 >> Saving model checkpoint to out/checkpoint-{n}",
]
TRACEBACK = [
    "\x1b[31mERROR\x1b[0m \x1b[1mstep {n}\x1b[22m: the batch is skipped",
    "[rank{r}]: Traceback (most recent call last):",
    "[rank{r}]:   File \x1b[35m\"/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py\"\x1b[0m, line \x1b[35m1739\x1b[0m, in _wrapped_call_impl",
    "[rank{r}]:     return self._call_impl(*args, **kwargs)",
    "[rank{r}]:            \x1b[1;31m^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\x1b[0m",
    "[rank{r}]: \x1b[1;35mValueError\x1b[0m: \x1b[35mexpected sequence of length 512 at dim 1 (got 498)\x1b[0m",
]
NEAR_MISSES = [
    "WARNING: step {n}: if you run out of memory, lower the batch size",
    "INFO: {n} workers were Killed and came back, no CUDA error: all is well",
    "    if \"CUDA out of memory. Tried to allocate\" in message: retry({n})",
    "[INFO] NCCL error in: {n} ranks? none; No space left on device? there is",
]


def block(lines, change=lambda line: line):
    """A megabyte of whole lines, each with numbers of its own."""
    text, length, n = [], 0, 0
    while length < BLOCK:
        line = change(lines[n % len(lines)].format(n=n, p=n % 100, r=n % 8).encode() + b"\n")
        text.append(line)
        length += len(line)
        n += 1
    return b"".join(text)


def broken(line):
    """Cut, doubled, with bytes that are no UTF-8, as ranks leave it that write at once."""
    at = random.randrange(len(line))
    kind = random.randrange(8)
    if kind == 0:
        return line[:at]
    if kind == 1:
        return line[:at] + b"\xff\xfe\x80" + line[at:]
    if kind == 2:
        return line[:at] + line
    return line.replace(b"\n", b"\r\n") if kind == 3 else line


def run(binary, path):
    begun = time.monotonic()
    with subprocess.Popen([binary, "doctor", path, "--json"], stdout=subprocess.PIPE) as child:
        answer = json.load(child.stdout)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
    assert answer["cause"]["class"] == "gpu_memory" and not answer["others"], answer
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


COUNT = "import sys\nwith open(sys.argv[1], 'rb') as file:\n    while piece := file.read(1 << 20):\n        piece.count(b'\\n')"


def count_lines(path):
    """Seconds of a processor that reading a file and counting its lines takes (memchr, in C), less Python's start."""

    def processor(of):
        with subprocess.Popen([sys.executable, "-S", "-c", COUNT, of]) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = status
        assert status == 0
        return usage.ru_utime + usage.ru_stime

    return max(processor(path) - processor(os.devnull), 1e-3)


def main():
    binary = os.path.abspath(sys.argv[1])
    mebibytes = next((int(word) for word in sys.argv[2:] if word.isdigit()), 1024)
    random.seed(7)
    kinds = {
        "ordinary": block(ORDINARY),
        "tracebacks in colour": block(TRACEBACK),
        "broken, interleaved": block(ORDINARY + TRACEBACK, broken),
        "near misses": block(NEAR_MISSES),
    }
    print(f"{'log of ' + str(mebibytes) + ' MiB':<22} {'wall':>10} {'processor':>12} {'counting lines':>16} {'memory':>9}")
    for name, text in kinds.items():
        with tempfile.NamedTemporaryFile(suffix=".log") as file:
            for _ in range(mebibytes):
                file.write(text)
            file.write(b"\n" + FAILURE)
            file.flush()
            size = os.path.getsize(file.name) / 1e6
            turns = [(run(binary, file.name), count_lines(file.name)) for _ in range(5)]
        wall, cpu, memory = min(turn for turn, _ in turns)
        count = min(count for _, count in turns)
        rates = f"{size / wall:>5.0f} MB/s {size / cpu:>7.0f} MB/s {size / count:>11.0f} MB/s"
        print(f"{name:<22} {rates} {memory:>5.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
