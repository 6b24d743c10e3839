#!/usr/bin/env python3
"""Tries PyTorch versions on the phantom and writes docs/phantom-versions.md.

    versions.py --release target/release --results results.json --versions 2.6.0 2.8.0         # installs, probes, removes
    versions.py --release target/release --results results.json --python ENV/bin/python        # an environment that is there
    versions.py --results results.json --write docs/phantom-versions.md --names imports.txt    # of all results
    versions.py --results others.json --pythons docs/phantom-versions.md                       # another Python: that table alone

`--release` is the folder with `tonnage` and `libtonnage_phantom.so`. An environment takes some gigabytes of disk and minutes
of download; one exists at a time.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import probe

HERE = os.path.dirname(os.path.abspath(__file__))
VERSIONS = """
import importlib.metadata, json, torch
def version(name):
    try: return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: return None
major = torch.version.cuda.split(".")[0]
print(json.dumps(dict(torch=torch.__version__, cuda=torch.version.cuda, folder=torch.__path__[0], triton=version("triton"), transformers=version("transformers"),
                      cudnn=version(f"nvidia-cudnn-cu{major}"), nccl=version(f"nvidia-nccl-cu{major}"))))
"""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


#: Scripts of which the peak is told, beside the areas of probe.py.
SCRIPTS = {"nanogpt.py": "a nanoGPT-style script", "hf_trainer.py": "a Hugging Face Trainer"}


def peak(python, tonnage, script):
    """Peak of allocated memory of a whole script on an L4, or what it said."""
    command = [tonnage, "rehearse", "--gpu", "l4", "--json", "--", python, os.path.join(HERE, "scripts", script)]
    with tempfile.TemporaryDirectory() as folder:
        done = run(command, cwd=folder, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    if done.returncode == 0:
        return f"{json.loads(done.stdout)['processes'][0]['devices'][0]['peak_allocated_bytes']:,}"
    said = [line for line in done.stderr.splitlines() if "Error" in line]
    return (said or [f"exit code {done.returncode}"])[-1].strip()[:160]


def tried(python, release):
    library, tonnage = (os.path.abspath(os.path.join(release, name)) for name in ("libtonnage_phantom.so", "tonnage"))
    found = json.loads(run([python, "-c", VERSIONS], check=True).stdout)
    imports = [sys.executable, os.path.join(HERE, "imports.py"), found.pop("folder")]
    imported = run([*imports, "--library", library])
    areas = run([python, os.path.join(HERE, "probe.py"), "--tonnage", tonnage], check=True)
    found["transformers"] = found["transformers"] or "not there"
    return dict(found, python=run([python, "-V"]).stdout.split()[1], imports=imported.stdout.strip(),
                names=run(imports, check=True).stdout.split(), areas=json.loads(areas.stdout),
                peaks={script: peak(python, tonnage, script) for script in SCRIPTS})


def install(version, folder):
    run([sys.executable, "-m", "venv", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    done = run([python, "-m", "pip", "install", "-q", f"torch=={version}", "numpy", "transformers", "accelerate"])
    if done.returncode:
        raise SystemExit(f"torch {version} cannot be installed: {done.stderr[-400:]}")
    return python


def shown(text):
    """An answer in a cell: files without the folders of the machine it was tried on."""
    return re.sub(r"/[^ ']*/", "", text).replace("|", "/")


PYTHONS = ("<!-- pythons -->", "<!-- /pythons -->")


def table(results, pythons):
    rows = sorted(results.values(), key=lambda row: [int(part) for part in row["torch"].split("+")[0].split(".")])
    lines = [
        "# PyTorch versions on the phantom",
        "",
        "What of each version's wheel from PyPI ran under `tonnage rehearse`, by `testdata/rehearse/versions.py`. An area is a small",
        "program in a process of its own (`testdata/rehearse/probe.py`); \"ok\" is an exit without an error. For two whole scripts of",
        "`testdata/rehearse/scripts` the peak of allocated bytes on a phantom L4 is given. *Imports* are the",
        "functions of NVIDIA's libraries that PyTorch's libraries name: those that the phantom answers itself, and those that",
        "nobody answers safely (the rest goes to the wheel's own libraries, as `testdata/rehearse/imports.py` lists).",
        "",
        "| | " + " | ".join(f"{row['torch']}" for row in rows) + " |",
        "|---|" + "---|" * len(rows),
    ]
    for key in ("cuda", "cudnn", "nccl", "triton", "transformers", "python"):
        lines.append(f"| {key} | " + " | ".join(str(row[key]) for row in rows) + " |")
    lines.append("| imports | " + " | ".join(row["imports"] for row in rows) + " |")
    for area in probe.AREAS:
        lines.append(f"| {area.replace('_', ' ')} | " + " | ".join(shown(row["areas"].get(area, "not tried")) for row in rows) + " |")
    for script, words in SCRIPTS.items():
        lines.append(f"| {words}, `{script}` | " + " | ".join(shown(row["peaks"][script]) for row in rows) + " |")
    lines += [
        "",
        "Builds without CUDA, for ROCm and for CUDA 11 are turned away when PyTorch is imported (status 2); versions outside of this",
        "table run with a note in the record. In every version the same does not work: recurrent networks through cuDNN (they run on",
        "PyTorch's own kernels, and the record says so), attention through cuDNN when it is demanded (PyTorch's own is chosen",
        "otherwise), tensors of the device sent to another process (`operation not supported`), semi-structured sparsity, GPUDirect",
        "Storage, symmetric memory, green contexts, and the profiler's device side.",
        "",
        "## Other versions of Python",
        "",
        "The same, whole, with other Pythons (`versions.py` run by them).",
        "",
        PYTHONS[0],
        pythons,
        PYTHONS[1],
    ]
    return "\n".join(lines) + "\n"


def of_other_pythons(results, kept=""):
    """The table of versions that were tried with another Python than the page's first table; of Pythons that were not tried this time
    the lines that it had."""
    head = ["| Python | PyTorch | transformers | areas that ran | what did not | `nanogpt.py` | `hf_trainer.py` |", "|---|---|---|---|---|---|---|"]
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in kept.splitlines() if line[2:3].isdigit()}
    for row in results.values():
        ran = sum(row["areas"].get(area) == "ok" for area in probe.AREAS)
        rest = "; ".join(f"{area}: {shown(row['areas'].get(area, 'not tried'))}" for area in probe.AREAS if row["areas"].get(area) != "ok")
        peaks = " | ".join(shown(row["peaks"][script]) for script in SCRIPTS)
        lines[row["python"]] = f"| {row['python']} | {row['torch']} | {row['transformers']} | {ran} of {len(probe.AREAS)} | {rest or 'nothing'} | {peaks} |"
    return "\n".join(head + [lines[python] for python in sorted(lines, key=lambda python: [int(part) for part in python.split(".")])])


def kept_pythons(document):
    """That table as the document has it."""
    page = open(document).read() if os.path.exists(document) else ""
    return page.split(PYTHONS[0])[1].split(PYTHONS[1])[0].strip() if PYTHONS[0] in page else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release")
    parser.add_argument("--results", required=True, help="JSON by version; new ones are added")
    parser.add_argument("--versions", nargs="*", default=[])
    parser.add_argument("--python", nargs="*", default=[])
    parser.add_argument("--write", help="the document")
    parser.add_argument("--pythons", help="the document, of which only the table of other Pythons is written")
    parser.add_argument("--names", help="the list of all versions' imports, which a test of the library reads")
    arguments = parser.parse_args()
    results = json.load(open(arguments.results)) if os.path.exists(arguments.results) else {}

    def note(row):
        results[row["torch"]] = row
        with open(arguments.results, "w") as file:
            json.dump(results, file, indent=1)
        print(json.dumps(row, indent=1), flush=True)
    for python in arguments.python:
        note(tried(python, arguments.release))
    for version in arguments.versions:
        folder = tempfile.mkdtemp(prefix="phantom-versions-", dir=os.environ.get("TMPDIR"))
        try:
            note(tried(install(version, folder), arguments.release))
        finally:
            shutil.rmtree(folder)
    if arguments.write:
        page = table(results, kept_pythons(arguments.write))
        with open(arguments.write, "w") as file:
            file.write(page)
    if arguments.pythons:
        page, rows = open(arguments.pythons).read(), of_other_pythons(results, kept_pythons(arguments.pythons))
        before, after = page.split(PYTHONS[0])[0], page.split(PYTHONS[1])[1]
        with open(arguments.pythons, "w") as file:
            file.write(f"{before}{PYTHONS[0]}\n{rows}\n{PYTHONS[1]}{after}")
    if arguments.names:
        names = {name for row in results.values() for name in row["names"]}
        with open(arguments.names, "w") as file:
            file.write("\n".join(sorted(names)) + "\n")


if __name__ == "__main__":
    main()
