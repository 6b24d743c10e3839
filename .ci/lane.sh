# What lanes share; each sources it first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

TARGET=${CARGO_TARGET_DIR:-target}
# Every lane compiles once: what a later build could reuse would only fill the disk.
export CARGO_INCREMENTAL=0
# Tools that are made once lie outside the checkout.
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/tonnage-ci

step() { printf '\n== %s\n' "$*"; "$@"; }

# A part that cannot be done on this machine: said here, and in the table at the end.
skip() {
    echo "skipped: $*"
    [ -z "${CI_SKIPS:-}" ] || echo "skipped: $*" >>"$CI_SKIPS"
}

# The same for the whole lane.
skip_lane() { skip "$@"; exit 77; }

# Program, library and developers' commands as people download them.
BUILT=$TARGET/download
build_downloads() { step cargo build --profile download --workspace; }

# python_environment NAME PACKAGES...: a virtual environment with exactly these; prints its Python.
python_environment() {
    local folder=$TOOLS/$1
    shift
    if [ "$(cat "$folder/installed.txt" 2>/dev/null)" != "$*" ]; then
        rm -rf "$folder"
        python3 -m venv "$folder" >&2
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" >&2 || return 1
        echo "$*" >"$folder/installed.txt"
    fi
    echo "$folder/bin/python"
}
