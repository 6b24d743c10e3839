#!/usr/bin/env bash
# Outside judges of `tonnage watch`: nvitop and gpustat on the scripted library, promtool and Chromium where they are.
#   lanes.sh BINARY LIBRARY
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tonnage-ci/nvml
packages="nvidia-ml-py==13.615.71 nvitop==1.7.2 gpustat==1.1.1"

if [ "$(cat "$folder/installed.txt" 2>/dev/null)" != "$packages" ]; then
    rm -rf "$folder"
    python3 -m venv "$folder"
    # shellcheck disable=SC2086
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check $packages
    echo "$packages" >"$folder/installed.txt"
fi
"$folder/bin/python" "$here/judge.py" "$1" "$2"
if command -v chromium >/dev/null; then
    python3 "$here/page.py" "$1"
else
    echo "page: no chromium on the path, left out"
fi
