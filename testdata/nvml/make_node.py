"""Writes node.jsonl: a node of eight H100s with four training processes on each, as the measurements of `tonnage watch` use it."""

import json
import sys

GIB = 1 << 30


def device(index):
    processes = [
        {"pid": 40000 + 10 * index + rank, "used": (12 + rank) * GIB, "sm": 20 + rank, "mem": 10 + rank, "name": "python"}
        for rank in range(4)
    ]
    return {
        "t": 0, "device": index, "name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0",
        "total": 85520809984, "reserved": 566231040, "used": sum(p["used"] for p in processes) + 480 * (1 << 20),
        "bar1_total": 128 * GIB, "bar1_used": 1 << 20,
        "utilization": 90 + index, "memory_utilization": 40 + index, "temperature": 55 + index,
        "power": 400 + 20 * index, "power_limit": 700, "energy": {"at": 1000, "per_second": 500},
        "graphics_clock": 1980, "sm_clock": 1980, "memory_clock": 2619, "video_clock": 1545,
        "max_graphics_clock": 1980, "max_sm_clock": 1980, "max_memory_clock": 2619, "max_video_clock": 1545,
        "throttle": 0, "performance_state": 0, "persistence": 1, "compute_mode": 0, "display_active": 0,
        "display_mode": 0, "mig_mode": 0, "encoder": 0, "decoder": 0, "ecc_corrected": 0, "ecc_uncorrected": 0,
        "remapped_corrected": 0, "remapped_uncorrected": 0, "remapped_pending": 0, "remapped_failed": 0,
        "slowdown_temperature": 87, "shutdown_temperature": 92, "processes": processes,
    }


def main():
    print(json.dumps({"driver": "580.95.05", "cuda": 13000}))
    for index in range(int(sys.argv[1]) if len(sys.argv) > 1 else 8):
        print(json.dumps(device(index)))


if __name__ == "__main__":
    main()
