"""What lets unmodified scripts take the substitute data of `substitutes.py`: checksums of the real data and vocabulary hold. With
`TONNAGE_FORCED` in the environment a rehearsal has true values (`forced.py`)."""

import os
import sys
from importlib.machinery import PathFinder

#: Module -> the function of it that compares a checksum.
CHECKS = {"torchvision.datasets.utils": "check_integrity", "tiktoken.load": "check_hash", "keras.src.utils.file_utils": "validate_file"}


def is_there(path_or_bytes, *_, **__):
    """A file is right where it exists, bytes always."""
    return isinstance(path_or_bytes, bytes) or os.path.isfile(path_or_bytes)


class Finder:
    """Replaces the check in a module as soon as it has been executed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in CHECKS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def execute(module):
            run(module)
            setattr(module, CHECKS[name], is_there)

        spec.loader.exec_module = execute
        return spec


sys.meta_path.insert(0, Finder)

if os.environ.get("TONNAGE_FORCED") and os.environ.get("TONNAGE_REHEARSE_DIR"):
    import forced

    forced.arm()
