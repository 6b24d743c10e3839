"""Sparse tensors, whose size only values decide: how many elements are not zero, how many indices are there twice."""

import functools

from .. import caveats
from . import known
from .follow import _compiling, replace
from .known import Answered
from .sizes import answer_within, elements, is_of_device


def install(torch):
    """Wraps what makes them, and the products in which PyTorch's own code makes their indices unique."""
    for name in ("to_sparse", "to_sparse_coo", "to_sparse_csr"):
        replace(torch, (torch.Tensor,), name, _sparse)
    replace(torch, (torch.Tensor,), "coalesce", _coalesced)
    replace(torch, (torch,), "spmm", _multiplied)
    replace(torch, (torch.sparse,), "mm", _multiplied)
    for name in ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_compressed_tensor"):
        replace(torch, (torch,), name, _made)


@functools.cache
def watch_products():
    """From the first sparse tensor on: most scripts have none, and multiply at every turn."""
    torch = known._torch()
    for name in ("mm", "matmul", "__matmul__"):
        replace(torch, (torch, torch.Tensor), name, _product)


def _made(original, name):
    def made(*args, **kwargs):
        watch_products()
        return original(*args, **kwargs)

    return made


def _product(original, name):
    def product(self, other, *args, **kwargs):
        if not _compiling() and hasattr(other, "layout"):
            tell_product(self, other)
        return original(self, other, *args, **kwargs)

    return product


def tell_product(one, other):
    """Of two sparse tensors: the library that multiplies asks the device for its size within itself, and finds it empty."""
    dense = known._torch().strided
    if one.layout is not dense and other.layout is not dense and is_of_device(one):
        text = "the product of two sparse tensors has a size that only data decides; it was answered as empty, so it is not known whether it fits"
        caveats.tell_of_value("sparse_product", text)


def _sparse(original, name):
    def sparse(self, *args, **kwargs):
        watch_products()
        if not is_of_device(self) or self.layout is not known._torch().strided:
            return original(self, *args, **kwargs)
        with Answered(elements(self, name)[0]):
            return original(self, *args, **kwargs)

    return sparse


def _coalesced(original, name):
    def coalesce(self):
        if not _has_twins(self):
            return original(self)
        with _as_many(self, name):
            return original(self)

    return coalesce


def _multiplied(original, name):
    def multiplied(self, other, *args):
        tell_product(self, other)
        if not _has_twins(self):
            return original(self, other, *args)
        answered = _as_many(self, "coalesce")
        with answered:
            out = original(self, other, *args)
        if out.grad_fn is not None:
            answer_within(out.grad_fn, answered)
        return out

    return multiplied


def _has_twins(tensor):
    torch = known._torch()
    return is_of_device(tensor) and tensor.layout is torch.sparse_coo and not tensor.is_coalesced()


def _as_many(tensor, name):
    """No index is another's twin, as far as anybody knows."""
    count = tensor._nnz()
    caveats.tell_of_value(name, f"`{name}` of a device tensor has a size that only data decides; it was answered with all {count} elements")
    return Answered(count)
