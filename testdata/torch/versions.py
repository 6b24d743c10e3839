#!/usr/bin/env python3
"""Tries the engine of crates/torch with versions of PyTorch and writes docs/torch-versions.md.

    versions.py --results results.json --versions 2.7.1 2.8.0           # fetches each without CUDA's libraries, tests, removes
    versions.py --results results.json --write docs/torch-versions.md   # of all results

What it fetches is what `Download` of crates/torch/src/get.rs fetches. A version takes about a gigabyte of disk while it is tried.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
#: The two libraries of CUDA that libtorch_cpu of a CUDA build is linked with, as in crates/torch/src/get.rs.
NEEDED = ["nvidia-cuda-runtime", "nvidia-cuda-cupti"]


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def install(folder, *packages):
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--no-cache-dir", "--quiet", "--target", folder]
    run([*pip, *packages], check=True)


def fetch(folder, version):
    """Installs a version and the two libraries; returns its full name, as 2.11.0+cu130."""
    install(folder, f"torch=={version}")
    with open(os.path.join(folder, "torch", "version.py")) as file:
        text = file.read()
    full = re.search(r"__version__ = '([^']+)'", text).group(1)
    cuda = re.search(r"^cuda.*= '([^']+)'", text, re.MULTILINE)
    if cuda:
        major = cuda.group(1).split(".")[0]
        ending = "" if int(major) >= 13 else f"-cu{major}"
        install(folder, *[f"{name}{ending}=={cuda.group(1)}.*" for name in NEEDED])
    return full


def test_program():
    """The compiled tests of the engine."""
    done = run(["cargo", "test", "-p", "tonnage-torch", "--test", "torch", "--no-run", "--message-format=json"], cwd=ROOT, check=True)
    found = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return [path for path in found if path][-1]


def tried(program, version):
    with tempfile.TemporaryDirectory() as folder:
        full = fetch(os.path.join(folder, "site"), version)
        cache = os.path.join(folder, "cache")
        environment = {**os.environ, "TONNAGE_TORCH": os.path.join(folder, "site"), "TONNAGE_TORCH_CACHE": cache}
        # The first test compiles the shim, the second run only tests.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        first = run([program, "--include-ignored", "scopes_end"], env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run([program, "--include-ignored"], env=environment)
        passed = re.search(r"(\d+) passed; (\d+) failed", done.stdout)
        if passed is None or first.returncode != 0:
            said = [line for line in (first.stdout + first.stderr).splitlines() if "error:" in line or "does not" in line]
            return {"torch": full, "passed": None, "said": (said or ["no answer"])[0][:200]}
        library = [os.path.join(path, name) for path, _, names in os.walk(cache) for name in names if name == "libtonnage_torch.so"][0]
        return {
            "torch": full,
            "passed": int(passed.group(1)),
            "failed": int(passed.group(2)),
            "compile_cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
            "shim_bytes": os.path.getsize(library),
            "said": "",
        }


def table(results):
    def key(result):
        return [int(part) for part in result["torch"].split("+")[0].split(".")]

    lines = [
        "# Versions of PyTorch under the engine",
        "",
        "`crates/torch` finds libtorch at run time and compiles a small shim for it once. Each version's wheel from PyPI, without CUDA's",
        "libraries (as `Download` fetches it), ran the engine's tests by `testdata/torch/versions.py`. Compilation is in processor seconds.",
        "",
        "| PyTorch | tests passed | failed | shim compiled in | shim |",
        "|---|---|---|---|---|",
    ]
    for one in sorted(results.values(), key=key):
        if one["passed"] is None:
            lines.append(f"| {one['torch']} | none: {one['said']} | | | |")
        else:
            lines.append(f"| {one['torch']} | {one['passed']} | {one['failed']} | {one['compile_cpu_seconds']} s | {one['shim_bytes'] // 1024} KiB |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", required=True)
    parser.add_argument("--versions", nargs="*", default=[])
    parser.add_argument("--write")
    arguments = parser.parse_args()
    results = {}
    if os.path.exists(arguments.results):
        with open(arguments.results) as file:
            results = json.load(file)
    program = test_program() if arguments.versions else None
    for version in arguments.versions:
        results[version] = tried(program, version)
        print(version, results[version], flush=True)
        with open(arguments.results, "w") as file:
            json.dump(results, file, indent=1)
    if arguments.write:
        with open(arguments.write, "w") as file:
            file.write(table(results))


if __name__ == "__main__":
    main()
