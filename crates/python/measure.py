"""What program and module cost: a start, an import, a call, and calls in threads. `python crates/python/measure.py` where they are installed;
`--program target/release/tonnage` measures that program alone.

Times are of the processor where that is what is asked (other programs may run beside), the least of several tries. What threads gain by the
clock stands beside what as many processes gain, which share nothing: a busy machine takes the same from both.
"""

import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

CALLS = 1000
JOB = {"micro_batch_size": 8, "seq_len": 1024, "gpu": "a100-80"}


def estimate(calls):
    import tonnage

    for _ in range(calls):
        tonnage.estimate("gpt2", **JOB)


def least(times, seconds):
    return min(seconds() for _ in range(times))


def program_seconds(words):
    """What a program takes of a processor and of the clock from its start to its end, the least of each."""
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]

    def once():
        began = time.perf_counter()
        used = os.wait4(os.posix_spawn(words[0], words, os.environ, file_actions=nowhere), 0)[2]
        return used.ru_utime + used.ru_stime, time.perf_counter() - began

    rounds = [once() for _ in range(200)]
    return [min(column) for column in zip(*rounds, strict=True)]


def print_starts(program):
    for words in (["true"], [program, "--version"], [program, "gpus"], [program, "estimate", "gpt2"]):
        words[0] = shutil.which(words[0]) or words[0]
        processor, clock = program_seconds(words)
        name = " ".join([os.path.basename(words[0]), *words[1:]])
        print(f"{name}: {processor * 1e3:.1f} ms of a processor, {clock * 1e3:.1f} ms by the clock")


def import_seconds():
    """What `import tonnage` adds to an interpreter, of its processor."""
    import tonnage

    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(tonnage.__file__))}

    def once(line):
        child = subprocess.Popen([sys.executable, "-S", "-c", line], env=environment)
        used = os.wait4(child.pid, 0)[2]
        child.returncode = 0
        return used.ru_utime + used.ru_stime

    return least(20, lambda: once("import tonnage")) - least(20, lambda: once("pass"))


def call_seconds(calls=100):
    def once():
        began = time.process_time()
        estimate(calls)
        return (time.process_time() - began) / calls

    return least(10, once)


def clock_seconds(kind, count):
    """Seconds of the clock for all calls, by so many threads or processes."""
    workers = [kind(target=estimate, args=(CALLS // count,)) for _ in range(count)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - began


def processor_seconds(count):
    """Seconds of all processors for all calls, by so many threads."""
    began = time.process_time()
    clock_seconds(threading.Thread, count)
    return time.process_time() - began


def scheduled():
    """Nanoseconds that this thread was on a processor, and in line for one (Linux)."""
    with open("/proc/thread-self/schedstat") as file:
        return [int(number) for number in file.read().split()[:2]]


def waiting_share(count):
    """How long threads wait for one another, neither on a processor nor in line for one, beside the time on processors: what else
    the machine does is not in it."""
    spent = []

    def work():
        began, before = time.perf_counter_ns(), scheduled()
        estimate(CALLS // count)
        running, in_line = (after - before for after, before in zip(scheduled(), before, strict=True))
        spent.append((running, time.perf_counter_ns() - began - running - in_line))

    workers = [threading.Thread(target=work) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    running, waiting = map(sum, zip(*spent, strict=True))
    return waiting / running


def main():
    if sys.argv[1:2] == ["--program"]:
        print_starts(sys.argv[2])
        return
    print_starts(os.path.join(os.path.dirname(sys.executable), "tonnage"))
    estimate(20)
    print(f"import tonnage: {import_seconds() * 1e3:.1f} ms of a processor")
    print(f"estimate of GPT-2: {call_seconds() * 1e3:.3f} ms of a processor")
    cores = min(os.cpu_count() or 1, 8)
    process = multiprocessing.get_context("fork").Process
    # One after the other, so that what else the machine does meets all.
    rounds = [(clock_seconds(threading.Thread, 1), clock_seconds(threading.Thread, cores), clock_seconds(process, cores)) for _ in range(7)]
    print(f"{CALLS} calls in {cores} threads: {median(one / threads for one, threads, _ in rounds)} times as fast as in one")
    print(f"{CALLS} calls in {cores} processes: {median(one / processes for one, _, processes in rounds)} times as fast as in one")
    more = median(processor_seconds(cores) / processor_seconds(1) for _ in range(7))
    print(f"{CALLS} calls in {cores} threads: {more} times the processor time of one")
    if os.path.exists("/proc/thread-self/schedstat"):
        waiting = median(waiting_share(cores) for _ in range(7))
        print(f"{CALLS} calls in {cores} threads: waiting for one another {waiting} times as long as on processors")


def median(ratios):
    ratios = sorted(ratios)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
