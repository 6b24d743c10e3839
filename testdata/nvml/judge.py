"""Compares what `tonnage watch` says with nvitop and gpustat, all three on the scripted NVML library; and has `promtool
check metrics` look at its metrics, where Prometheus' tool is on the path.

    python testdata/nvml/judge.py target/debug/tonnage target/debug/libtonnage_phantom.so

Needs a Python with nvidia-ml-py, nvitop and gpustat. The processes of the script are children of this program, since both
judges leave out processes that do not exist. Ends with 1 at the first difference.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

MIB = 1 << 20
GIB = 1 << 30

NVITOP = """
import json
from nvitop import Device
def process(p): return [p.pid, p.gpu_memory()]
print(json.dumps([{
    "name": d.name(), "uuid": d.uuid(), "total": d.memory_total(), "used": d.memory_used(), "free": d.memory_free(),
    "utilization": d.gpu_utilization(), "temperature": d.temperature(), "power": d.power_usage(),
    "limit": d.power_limit(), "sm_clock": d.sm_clock(), "fan": d.fan_speed(),
    "processes": sorted(process(p) for p in d.processes().values()),
} for d in Device.all()], default=lambda other: None))
"""


def device(index, pids):
    processes = [{"pid": pid, "used": (3 + i) * GIB + i * MIB, "sm": 10 + i, "mem": 3, "name": "python"} for i, pid in enumerate(pids)]
    return {
        "device": index, "name": "NVIDIA H100 80GB HBM3", "total": 85520809984, "reserved": 566231040,
        "used": sum(p["used"] for p in processes) + 480 * MIB, "utilization": 70 + index, "memory_utilization": 30,
        "temperature": 50 + index, "power": 300 + index, "power_limit": 700, "graphics_clock": 1900, "sm_clock": 1905,
        "memory_clock": 2619, "max_sm_clock": 1980, "fan": None if index % 2 else 40 + index, "processes": processes,
    }


def output(command, environment):
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def tonnage(binary, library, environment):
    lines = output([binary, "watch", "--json", "--samples", "1", "--nvml", library], environment)
    return [
        {
            "name": d["name"], "uuid": d["uuid"], "total": d["memory_total_bytes"], "used": d["memory_used_bytes"],
            "free": d["memory_free_bytes"], "utilization": d["utilization_percent"], "temperature": d["temperature_celsius"],
            "power": d["power_watts"], "limit": d["power_limit_watts"], "sm_clock": d["sm_clock_mhz"], "fan": d["fan_percent"],
            "processes": sorted([p["pid"], p["memory_used_bytes"]] for p in d["processes"]),
        }
        for d in json.loads(lines)["devices"]
    ]


def nvitop(environment):
    found = json.loads(output([sys.executable, "-c", NVITOP], environment))
    for d in found:
        d["power"], d["limit"] = d["power"] / 1000, d["limit"] / 1000
        # What is not supported is text there.
        d["fan"] = d["fan"] if isinstance(d["fan"], int) else None
    return found


def gpustat(environment):
    found = json.loads(output([sys.executable, "-m", "gpustat", "--json"], environment))["gpus"]
    return [
        {
            "name": d["name"], "uuid": d["uuid"], "total": d["memory.total"], "used": d["memory.used"],
            "utilization": d["utilization.gpu"], "temperature": d["temperature.gpu"], "power": d["power.draw"],
            "limit": d["enforced.power.limit"], "fan": d["fan.speed"],
            "processes": sorted([p["pid"], p["gpu_memory_usage"]] for p in d["processes"]),
        }
        for d in found
    ]


def promtool(binary, library, environment):
    if not shutil.which("promtool"):
        print("promtool: not on the path, left out")
        return
    command = [binary, "watch", "--nvml", library, "--prometheus", "127.0.0.1:0", "--metrics-processes", "--metrics-dcgm"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = server.stderr.readline().split("http://")[1].strip()
            page = b""
            for _ in range(100):
                page = urllib.request.urlopen(f"http://{address.split('/')[0]}/metrics").read()
                if b"tonnage_process_memory_used_bytes" in page:
                    break
                time.sleep(0.05)
        finally:
            server.kill()
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    complaints = [line for line in (checked.stdout + checked.stderr).decode().splitlines() if not line.startswith("DCGM_")]
    # What it says of NVIDIA's own names is NVIDIA's.
    assert not complaints, complaints
    print(f"promtool: no complaint about {page.count(b'# TYPE')} families")


def in_mib(d):
    whole = {**d, "total": d["total"] // MIB, "used": d["used"] // MIB, "power": int(d["power"]), "limit": int(d["limit"])}
    return {**whole, "processes": [[pid, used // MIB] for pid, used in d["processes"]]}


def compare(judge, ours, theirs):
    assert len(ours) == len(theirs), f"{judge}: {len(theirs)} devices, {len(ours)} of ours"
    count = 0
    for index, (one, other) in enumerate(zip(ours, theirs)):
        for key, value in other.items():
            assert one[key] == value, f"GPU {index}, {key}: {one[key]} of ours, {value} of {judge}"
            count += 1 + (2 * len(value) if key == "processes" else 0)
    print(f"{judge}: {count} figures of {len(ours)} devices agree")


def main():
    binary, library = (os.path.abspath(path) for path in sys.argv[1:3])
    children = [subprocess.Popen(["sleep", "300"]) for _ in range(32)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.jsonl")
            pids = [child.pid for child in children]
            with open(script, "w", encoding="utf-8") as file:
                for line in [{"driver": "580.95.05", "cuda": 13000}, *(device(i, pids[4 * i : 4 * i + 4]) for i in range(8))]:
                    file.write(json.dumps(line) + "\n")
            os.symlink(library, os.path.join(folder, "libnvidia-ml.so.1"))
            environment = {
                **os.environ, "LD_LIBRARY_PATH": folder, "TONNAGE_NVML_SCRIPT": script, "TONNAGE_PHANTOM_QUIET": "1",
                "TONNAGE_PHANTOM_ALLOW_REAL_DRIVER": "1",
            }
            ours = tonnage(binary, library, environment)
            compare("nvitop", ours, nvitop(environment))
            compare("gpustat", [in_mib(d) for d in ours], gpustat(environment))
            promtool(binary, library, environment)
    finally:
        for child in children:
            child.kill()


if __name__ == "__main__":
    main()
