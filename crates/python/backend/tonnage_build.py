"""How `pip install .` makes the wheel: cargo compiles the program, maturin the module, and both go into one wheel. Maturin packs
either; a program beside a module goes into the wheel's scripts, from `crates/python/tonnage.data`, which pyproject.toml names."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import maturin
from maturin import get_requires_for_build_editable, get_requires_for_build_sdist, get_requires_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "crates" / "python" / "tonnage.data" / "scripts"


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    # Maturin wants the folder to be there, whatever is in it.
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    compile_program()
    # Packed once, downloaded often.
    os.environ["MATURIN_PEP517_ARGS"] = f"{os.environ.get('MATURIN_PEP517_ARGS', '')} --compression-level 9".strip()
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    repack_wheel(Path(wheel_directory) / name)
    return name


def repack_wheel(wheel):
    """The same files, deflated by zopfli where it is installed: 3 % less to download, for a minute once."""
    try:
        from zopfli import zlib as zopfli
    except ImportError:
        return

    class Compressor:
        def __init__(self):
            self.parts = []

        def compress(self, data):
            self.parts.append(bytes(data))
            return b""

        def flush(self):
            # Without zlib's head and checksum: a wheel has raw deflate. A megabyte of a program is better split into more than 15
            # blocks, zopfli's default: 0.8 % less of a program's first 6 MB with 5 iterations, for three quarters more time.
            return zopfli.compress(b"".join(self.parts), numiterations=15, blocksplittingmax=60)[2:-4]

    # zipfile takes no compressor of others.
    own = zipfile._get_compressor
    zipfile._get_compressor = lambda *_: Compressor()
    smaller = wheel.with_suffix(".smaller")
    try:
        with zipfile.ZipFile(wheel) as packed, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as out:
            for entry in packed.infolist():
                out.writestr(entry, packed.read(entry))
    finally:
        zipfile._get_compressor = own
    smaller.replace(wheel)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    compile_program()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.build_sdist(sdist_directory, config_settings)


def compile_program():
    """The program of this machine, or the one that `TONNAGE_BUILT_PROGRAM` names, for another machine say."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    built = os.environ.get("TONNAGE_BUILT_PROGRAM")
    name = "tonnage.exe" if os.name == "nt" else "tonnage"
    if built is None:
        # A source distribution lacks xtask, which the lock file has: cargo takes it out, and keeps every version.
        locked = [] if (ROOT / "PKG-INFO").exists() else ["--locked"]
        # With the module's package beside it, whose libraries have a feature more: maturin then finds them all compiled.
        packages = ["--package", "tonnage", "--package", "tonnage-python"]
        subprocess.run(["cargo", "build", "--profile", "download", *locked, *packages, "--bin", "tonnage"], cwd=ROOT, check=True)
        folder = Path(os.environ.get("CARGO_TARGET_DIR") or "target")
        built = ROOT / folder / "download" / name
    program = SCRIPTS / Path(built).name
    shutil.copy2(built, program)
    # A build whose profile keeps symbols makes a wheel of twice the size.
    if sys.platform == "linux" and shutil.which("strip"):
        subprocess.run(["strip", program], check=True)
