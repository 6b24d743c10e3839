"""What the module costs: its import, a call, and calls in threads. `python crates/python/measure.py` where it is installed.

Times are of the processor where that is what is asked (other programs may run beside), the least of several tries. What threads gain by the
clock stands beside what as many processes gain, which share nothing: a busy machine takes the same from both.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time

import tonnage

CALLS = 1000
JOB = {"micro_batch_size": 8, "seq_len": 1024, "gpu": "a100-80"}


def estimate(calls):
    for _ in range(calls):
        tonnage.estimate("gpt2", **JOB)


def least(times, seconds):
    return min(seconds() for _ in range(times))


def import_seconds():
    """What `import tonnage` adds to an interpreter, of its processor."""
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


def main():
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


def median(ratios):
    ratios = sorted(ratios)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    main()
