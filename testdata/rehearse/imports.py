#!/usr/bin/env python3
"""Which functions of NVIDIA's libraries PyTorch imports, and who answers them when the phantom is preloaded.

    imports.py TORCH_FOLDER                                  # the names, one a line
    imports.py TORCH_FOLDER --library libtonnage_phantom.so  # fails when a name is answered by nobody that is safe

TORCH_FOLDER is the installed package `torch`. Names that the phantom does not have go to the real library of the wheel;
LEFT lists those for which that is safe without a GPU, with the reason. Needs `nm` (binutils).
"""
import argparse
import glob
import os
import re
import subprocess
import sys

#: What NVIDIA's libraries call their functions.
OURS = re.compile(r"^(__cuda|cuda|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|cuFile|cuobj|nccl|nvml|nvrtc|nvshmem|nvJitLink|nvtx|cu[A-Z])")
#: Left to the real library: pattern and why that is safe.
LEFT = {
    r"nvrtc": "the run-time compiler works on the host and needs no device",
    r"nvJitLink": "the linker works on the host and needs no device",
    r"nvtx": "marks for profilers, without effect",
    r"nvshmem": "symmetric memory: initializing fails without a device; nothing else is called before",
    r"cudnnGet(Version|CudartVersion|Property|ErrorString|LastErrorString|MaxDeviceVersion)": "constants and texts",
    r"cublasLtGet(Version|CudartVersion)|cublasGetStatus(Name|String)|cublasGetVersion|cublasGetProperty": "constants and texts",
    r"cusparseGet(ErrorName|Version|Property)|cusolverGet(Version|Property)|cufftGet(Version|Property)": "constants and texts",
    r"ncclGetVersion": "a constant",
}


def symbols(library, kind):
    listed = subprocess.run(["nm", "-D", f"--{kind}-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.split()}


def imports(folder):
    names = set()
    for library in sorted(glob.glob(os.path.join(folder, "lib", "*.so*"))):
        if os.path.basename(library).startswith(("libtorch", "libc10", "libcaffe2", "libshm")):
            names |= {name for name in symbols(library, "undefined") if OURS.match(name)}
    own = set()
    for library in glob.glob(os.path.join(folder, "lib", "*.so*")):
        own |= {name for name in symbols(library, "defined") if OURS.match(name)}
    return sorted(names - own)


def left(name):
    return next((reason for pattern, reason in LEFT.items() if re.match(pattern, name)), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--library")
    arguments = parser.parse_args()
    names = imports(arguments.folder)
    if not arguments.library:
        print("\n".join(names))
        return
    answered = symbols(arguments.library, "defined")
    nobody = [name for name in names if name not in answered and not left(name)]
    print(f"{len(names)} imports, {sum(name in answered for name in names)} answered here, {len(nobody)} unanswered", *nobody)
    sys.exit(bool(nobody))


if __name__ == "__main__":
    main()
