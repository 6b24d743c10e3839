"""bitsandbytes: its native functions launch kernels and allocate nothing of PyTorch's, so they do nothing here.

Paged optimizers take managed memory from the driver by its native library; they cannot be rehearsed and say so.
"""

from .. import imports


class NativeLibrary:
    """In place of the library, whether it could be loaded or not."""

    compiled_with_cuda = True

    def __getattr__(self, name):
        if name == "cget_managed_ptr":
            raise NotImplementedError("tonnage rehearse: paged optimizers of bitsandbytes need managed memory of a real driver")
        return _nothing

    __getitem__ = __getattr__


def _nothing(*_args):
    return 0


def install():
    """Before anyone takes the library by its name."""
    imports.after("bitsandbytes.cextension", _replace)


def _replace(module):
    module.lib = NativeLibrary()
