"""Does the training step still fit? Tests that are rehearsed over the phantom GPU, each in a process of its own.

    @pytest.mark.gpu_memory(gpu="l4", max="20GiB")
    def test_step():
        ...                     # any PyTorch code on "cuda": no GPU is needed

`pytest --gpu h100` names the GPU of tests that name none. With `--memory-baseline FILE` a test fails when it takes more than the file
says (`--memory-tolerance PERCENT`); `--memory-update` writes it anew.
"""

# pyright: basic
# What this reads has no types of its own.
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Set in the process in which a test runs over the phantom.
INSIDE = "TONNAGE_PYTEST_INSIDE"
FIXTURE = "gpu_memory"
GPU = "h100"
"""The GPU of a test where nobody names one."""
VERSION = 1
SIZES = {"b": 1, "mib": 2**20, "mb": 10**6, "gib": 2**30, "gb": 10**9}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tonnage", "GPU memory, without a GPU")
    group.addoption("--gpu", default=None, metavar="GPU", help=f"the GPU of gpu_memory tests that name none (default: {GPU})")
    group.addoption("--memory-baseline", default=None, metavar="FILE", help="what gpu_memory tests took: fails where one takes more")
    group.addoption("--memory-tolerance", default=0.0, type=float, metavar="PERCENT", help="by how much they may take more")
    group.addoption("--memory-update", action="store_true", help="writes what they take now into the baseline")
    parser.addini("memory_baseline", "the file of --memory-baseline")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'gpu_memory(gpu=None, max=None): rehearses the test on a phantom GPU; it fails above `max` ("20GiB")')


@pytest.fixture
def gpu_memory() -> GpuMemory:
    """What the test took so far; a test that asks for it is rehearsed like one that is marked."""
    return GpuMemory()


class GpuMemory:
    """The allocator of the test's own process."""

    @property
    def peak_allocated_bytes(self) -> int:
        """`torch.cuda.max_memory_allocated()`"""
        return int(sys.modules["torch"].cuda.max_memory_allocated())

    @property
    def peak_reserved_bytes(self) -> int:
        """`torch.cuda.max_memory_reserved()`"""
        return int(sys.modules["torch"].cuda.max_memory_reserved())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs the test in a process of its own where it asks for a phantom GPU; True keeps pytest from running it here."""
    marker = pyfuncitem.get_closest_marker(FIXTURE)
    if os.environ.get(INSIDE) or (marker is None and FIXTURE not in pyfuncitem.fixturenames):
        return None
    asked = dict(marker.kwargs) if marker else {}
    unknown = set(asked) - {"gpu", "max"}
    if unknown or (marker and marker.args):
        raise pytest.UsageError(f"gpu_memory takes gpu= and max=, not {sorted(unknown) or marker.args}")  # type: ignore[union-attr]
    gpu = asked.get("gpu") or pyfuncitem.config.getoption("--gpu") or GPU
    seen = rehearsed(pyfuncitem, gpu)
    _check(pyfuncitem, gpu, asked.get("max"), seen)
    return True


def rehearsed(item: pytest.Function, gpu: str) -> dict[str, Any]:
    """The answer of `tonnage rehearse` about a process that runs this test alone."""
    beside = os.path.dirname(sys.executable)
    program = shutil.which("tonnage", path=beside) or shutil.which("tonnage")
    if program is None:
        pytest.fail(f"the program `tonnage` is neither in {beside} nor on PATH", pytrace=False)
    test = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", item.nodeid]
    words = [program, "rehearse", "--gpu", gpu, "--whole", "--json", "--", *test]
    environment = {**os.environ, INSIDE: "1"}
    answer = subprocess.run(words, capture_output=True, text=True, cwd=item.config.rootpath, env=environment, check=False)
    if not answer.stdout.startswith("{"):
        pytest.fail(f"the test failed over the phantom GPU, or used none:\n{answer.stderr.strip()}", pytrace=False)
    found: dict[str, Any] = json.loads(answer.stdout)
    if found.get("exit_code") not in (0, None):
        pytest.fail(f"the test failed over the phantom GPU:\n{answer.stderr.strip()}", pytrace=False)
    return found


def _check(item: pytest.Function, gpu: str, most: str | None, seen: dict[str, Any]) -> None:
    answer = seen["gpus"][0]
    now = _taken(seen, answer)
    if answer["verdict"] == "does_not_fit":
        pytest.fail(f"does not fit {gpu}: {_gib(now['total_bytes'])} in all\n{_table({}, now)}", pytrace=False)
    if most is not None and now["total_bytes"] > size(most):
        pytest.fail(f"takes {_gib(now['total_bytes'])} on {gpu}, more than {most}\n{_table({}, now)}", pytrace=False)
    path = item.config.getoption("--memory-baseline") or item.config.getini("memory_baseline")
    if path:
        _against(item, Path(item.config.rootpath, path), now)


def _against(item: pytest.Function, path: Path, now: dict[str, Any]) -> None:
    """Holds the test against the baseline, or writes it."""
    update = item.config.getoption("--memory-update")
    if not path.exists() and not update:
        pytest.fail(f"there is no {path}: --memory-update writes it", pytrace=False)
    file: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"version": VERSION, "tests": {}}
    if file.get("version") != VERSION:
        pytest.fail(f"{path} is of version {file.get('version')}, this plugin writes {VERSION}", pytrace=False)
    tests = file.setdefault("tests", {})
    if update:
        tests[item.nodeid] = now
        path.write_text(json.dumps(file, indent=2, sort_keys=True) + "\n")
        return
    before = tests.get(item.nodeid)
    if before is None:
        pytest.fail(f"{path} does not have {item.nodeid}: --memory-update writes it", pytrace=False)
    percent = float(item.config.getoption("--memory-tolerance") or 0)
    grew = [name for name in ("peak_allocated_bytes", "total_bytes") if now[name] > before[name] * (1 + percent / 100)]
    if grew:
        pytest.fail(f"takes more than {path.name} allows (+{percent:g} %)\n{_table(before, now)}", pytrace=False)


def _taken(seen: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The figures of the fullest device."""
    devices = [device for process in seen["processes"] for device in process["devices"]]
    device = max(devices, key=lambda one: one["peak_reserved_bytes"])
    return {
        "gpu": answer["id"],
        "peak_allocated_bytes": device["peak_allocated_bytes"],
        "peak_reserved_bytes": device["peak_reserved_bytes"],
        "total_bytes": answer["total_bytes"],
        "peak_per_phase": device["peak_per_phase"],
        "bytes_by_category_at_peak": device["bytes_by_category_at_peak"],
    }


def _table(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What it takes, beside what it took; what grew most first."""
    rows = [(name.removesuffix("_bytes").replace("_", " "), before.get(name, 0), now[name]) for name in ("total_bytes", "peak_allocated_bytes")]
    parts: list[tuple[str, int, int]] = []
    for table in ("bytes_by_category_at_peak", "peak_per_phase"):
        old, new = before.get(table, {}), now[table]
        parts += [(name, old.get(name, 0), new.get(name, 0)) for name in {**new, **old}]
    parts = [row for row in parts if row[1] != row[2]]
    rows += sorted(parts, key=lambda row: row[1] - row[2])
    if not before:
        return "\n".join(f"  {name:<24}{_gib(bytes_now):>12}" for name, _, bytes_now in rows)
    lines = [f"  {'':<24}{'baseline':>12}{'now':>12}{'change':>13}"]
    lines += [f"  {name:<24}{_gib(then):>12}{_gib(bytes_now):>12}{_signed(bytes_now - then):>13}" for name, then, bytes_now in rows]
    return "\n".join(lines)


def size(text: str | int) -> int:
    """The bytes of `20GiB`, `500MiB` or a whole number."""
    plain = str(text).strip().lower().replace(" ", "")
    number = plain.rstrip("bgim")
    unit = plain[len(number) :] or "b"
    try:
        return int(float(number) * SIZES[unit])
    except (KeyError, ValueError):
        raise pytest.UsageError(f'max={text!r} is no size: write it as "20GiB"') from None


def _gib(bytes_: int) -> str:
    return f"{bytes_ / 2**30:.2f} GiB" if bytes_ >= 2**30 else f"{bytes_ / 2**20:.1f} MiB"


def _signed(bytes_: int) -> str:
    return ("+" if bytes_ >= 0 else "-") + _gib(abs(bytes_))
