"""What watching costs: CPU, memory and the time to the first picture of `tonnage watch`, nvitop and gpustat, each in a
terminal of 120 x 40 at one picture a second, on the scripted library with 8 devices and 32 processes that exist.

    python testdata/nvml/cost.py target/release/tonnage target/release/libtonnage_phantom.so [SECONDS]

Needs a Python with nvidia-ml-py, nvitop and gpustat.
"""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

from make_node import device

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_and_memory(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / TICKS, resident / 1024


def run(command, environment, seconds):
    begun = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen, first, written, start = b"", None, 0, None
    warm = begun + 5
    while time.monotonic() < warm + seconds:
        if select.select([terminal], [], [], 0.05)[0]:
            part = os.read(terminal, 1 << 16)
            seen = (seen + part)[-65536:]
            written += len(part)
            # Whoever asks where the cursor is, is told.
            if b"\x1b[6n" in part:
                os.write(terminal, b"\x1b[1;1R")
            if first is None and b"H100" in seen:
                first = time.monotonic() - begun
        if start is None and time.monotonic() >= warm:
            start = (*cpu_and_memory(pid), written)
    end = (*cpu_and_memory(pid), written)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return first, 100 * (end[0] - start[0]) / seconds, start[1], end[1], (end[2] - start[2]) / seconds


def first_picture(command, environment, runs=9):
    return sorted(run_first(command, environment) for _ in range(runs))[runs // 2]


def run_first(command, environment):
    begun = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = b""
    while b"H100" not in seen:
        seen += os.read(terminal, 1 << 16)
    took = time.monotonic() - begun
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return took


def main():
    binary, library = (os.path.abspath(path) for path in sys.argv[1:3])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 60
    children = [subprocess.Popen(["sleep", "100000"]) for _ in range(32)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.jsonl")
            with open(script, "w", encoding="utf-8") as file:
                file.write(json.dumps({"driver": "580.95.05", "cuda": 13000}) + "\n")
                for index in range(8):
                    line = device(index)
                    for rank, process in enumerate(line["processes"]):
                        process["pid"] = children[4 * index + rank].pid
                        process["used"] = {"at": process["used"], "per_second": 1 << 20}
                    del line["used"]
                    file.write(json.dumps(line) + "\n")
            os.symlink(library, os.path.join(folder, "libnvidia-ml.so.1"))
            environment = {
                **os.environ, "LD_LIBRARY_PATH": folder, "TONNAGE_NVML_SCRIPT": script, "TONNAGE_PHANTOM_QUIET": "1",
                "TONNAGE_PHANTOM_ALLOW_REAL_DRIVER": "1", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8",
            }
            tools = {
                "tonnage watch": [binary, "watch", "--nvml", library],
                "nvitop": [sys.executable, "-m", "nvitop", "-m", "full", "--interval", "1"],
                "gpustat": [sys.executable, "-m", "gpustat", "-i", "1", "-p"],
            }
            print(f"{'tool':<14} {'first picture':>13} {'CPU':>7} {'memory':>17} {'terminal':>10}")
            for name, command in tools.items():
                first = first_picture(command, environment)
                _, cpu, before, after, rate = run(command, environment, seconds)
                print(f"{name:<14} {1000 * first:>10.0f} ms {cpu:>5.2f} % {before:>6.1f} to {after:.1f} MiB {rate:>6.0f} B/s", flush=True)
    finally:
        for child in children:
            child.kill()


main()
