"""What is written by a mask: PyTorch counts the mask on the device, and keeps as many places as it counted."""

from . import known
from .follow import Spent, _compiling, change, replace
from .known import Answered
from .sizes import answer_backward, elements, host_index, is_mask, is_of_device


def install(torch):
    """Wraps every way to write by an index."""
    replace(torch, (torch.Tensor,), "__setitem__", _assigned)
    replace(torch, (torch, torch.Tensor), "index_put", _put)
    replace(torch, (torch, torch.Tensor), "index_put_", _put)


def _assigned(original, name):
    def setitem(self, index, value):
        if _compiling() or Spent.depth or not self.is_cuda:
            original(self, index, value)
            return
        index = host_index(index)
        parts = index if isinstance(index, tuple) else (index,)
        masks = [one for one in parts if is_mask(one)]
        before, count = known.of(self), None
        if masks and _counts(parts, value):
            count = _rows_of(self, index, value)
            with Answered(count):
                original(self, index, value)
            answer_backward(self, count)
        else:
            original(self, index, value)
        if count is not None and getattr(value, "shape", ()):
            known.forget(self)
        elif before is not None:
            change(original, self, before, (index, value), {})

    return setitem


def _put(original, name):
    def put(self, indices, values, *args, **kwargs):
        if not is_of_device(self) or not any(is_mask(one) for one in indices) or not _counts(indices, values):
            return original(self, indices, values, *args, **kwargs)
        count = _rows_of(self, tuple(indices), values)
        with Answered(count):
            out = original(self, indices, values, *args, **kwargs)
        answer_backward(out, count)
        return out

    return put


def _counts(parts, value):
    """Whether PyTorch counts the mask: it fills by a mask alone where one number of the host is written."""
    if isinstance(value, known._torch().Tensor) and (value.dim() or value.is_cuda):
        return True
    return sum(isinstance(one, (list, known._torch().Tensor)) for one in parts) > 1


def _rows_of(target, index, value):
    """Elements of the mask: as many as there are rows to write, where there is one for each."""
    mask = next(one for one in (index if isinstance(index, tuple) else (index,)) if is_mask(one))
    dimensions = len(getattr(value, "shape", ()))
    rest = target.dim() - mask.dim() if not isinstance(index, tuple) else dimensions
    if dimensions == rest + 1 and value.shape[0] != 1:
        return value.shape[0]
    return elements(mask, "mask")[0]
