#!/usr/bin/env bash
# One run's trace replayed within several sizes, and a run at each of these sizes: the two must agree.
#   PATH=/env/bin:$PATH testdata/rehearse/sizes.sh target/release/tonnage hf_trainer 1700 1860 1900 1960 2000
set -euo pipefail
tonnage=$1 script="$(dirname "$0")/scripts/$2.py"
shift 2
show() { python -c '
import json, sys
for gpu in json.load(sys.stdin)["gpus"][-int(sys.argv[2]):]:
    oom = gpu["out_of_memory"] or {}
    moment = [oom.get(name) for name in ("phase", "allocated_bytes", "reserved_bytes")]
    print(sys.argv[1], gpu["usable_bytes"] >> 20, "MiB", gpu["verdict"], gpu["num_alloc_retries"], "retries", *moment)
' "$@"; }
sizes=()
for mebibytes in "$@"; do sizes+=("${mebibytes}MiB,sm_90,multiprocessors=132"); done
"$tonnage" rehearse --gpu "h100,$(IFS=,; echo "${sizes[*]}")" --json -- python "$script" 2>/dev/null | show replay $# || true
for size in "${sizes[@]}"; do
    { "$tonnage" rehearse --gpu "$size" --json -- python "$script" 2>/dev/null || true; } | show "run   " 1
done
