#!/usr/bin/env bash
# Makes the environment of requirements.txt outside the checkout, or finds it there; prints its Python's path.
#   environment.sh [FOLDER]        default: ${XDG_CACHE_HOME:-~/.cache}/tonnage-ci/rehearse
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/tonnage-ci/rehearse}
python=$folder/bin/python

# Two that ask at once make it once.
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
if ! cmp -s "$here/requirements.txt" "$folder/installed.txt"; then
    rm -rf "$folder"
    python3 -m venv "$folder" >&2
    if ! "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2; then
        echo "environment.sh: PyTorch could not be installed from PyPI (no network, or no wheel for $(python3 -V))" >&2
        exit 1
    fi
    cp "$here/requirements.txt" "$folder/installed.txt"
fi
echo "$python"
