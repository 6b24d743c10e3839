"""True values for a rehearsed script: beside every operator on the phantom the same operator runs on the CPU, on tensors that hold
what a GPU's would, and whatever the script asks a device tensor is answered by them. Where values decide sizes, branches or
what runs, the peaks are then those of a GPU, without any rule of the rehearsal. Slow, and for small scripts: `public.py --forced`.

`TONNAGE_FORCED=nothing` looks at every operator in the same way and computes nothing: the rehearsal as it is, for comparison. Looked at,
operators that are made of others keep some tensors longer.

An operator that the CPU has not, or that would take it too long, gives random fractions; `told` counts these. `TONNAGE_FORCED=light` is for
scripts whose memory the host has not: of tensors of more than a million fractions none is kept, each is random wherever it is asked for.
"""

import collections
import ctypes
import functools
import json
import os
import sys

LARGEST = 3e9
"""Products of one operator that the CPU is asked for."""
KEPT = 4 << 30
"""Bytes of twins after which those of freed memory are dropped."""
VAST = 1 << 20
"""Fractions of a tensor that `light` keeps."""
MOST = 1 << 25
"""Random fractions that it makes at once, for an operator that decides something by them."""
DECIDES = frozenset(
    "gt lt ge le eq ne isnan isinf isfinite any all max min amax amin argmax argmin topk sort multinomial nonzero where index masked_select"
    " unique_dim _unique2 unique_consecutive bincount histc searchsorted select slice _local_scalar_dense equal is_nonzero".split()
)
"""Operators that `light` computes of random fractions, because whole numbers, truth values or few fractions come of them."""
READS = ("_local_scalar_dense", "equal", "is_nonzero")


def arm():
    """In place of the rehearsal's own values; to be called before it starts."""
    from tonnage_rehearse import starts, values
    from tonnage_rehearse.answers import transformers, trl
    from tonnage_rehearse.values import known

    if os.environ["TONNAGE_FORCED"] != "nothing":
        values.install = lambda torch, wanted: setattr(known.Values, "is_on", False)
        transformers.install = trl.install = lambda: None
    there = starts.device_is_there

    def device_is_there(wanted, named):
        there(wanted, named)
        mode = twin_mode()
        mode.__enter__()
        from tonnage_rehearse.record import Record

        write = Record._write

        def _write(self, stop):
            write(self, stop)
            print("forced:", json.dumps(mode.told()), file=sys.stderr, flush=True)

        Record._write = _write

    starts.device_is_there = device_is_there


@functools.cache
def _answer():
    function = ctypes.CDLL(None).tonnagePhantomAnswer
    function.argtypes = (ctypes.c_int, ctypes.c_int64)
    return function


def twin_mode():
    """The mode; it imports torch."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_flatten, tree_map

    class Twins(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.twins, self.bytes = {}, 0
            self.is_light, self.vast = os.environ["TONNAGE_FORCED"] == "light", set()
            self.computed, self.random, self.sizes, self.unseen = 0, collections.Counter(), collections.Counter(), 0

        def told(self):
            return {"computed": self.computed, "random": dict(self.random), "other_sizes": dict(self.sizes), "unseen": self.unseen}

        def twin(self, tensor):
            """The same tensor in the host's memory: a view of the twin of its memory; of a sparse one, made of its parts."""
            if tensor.layout is not torch.strided:
                return _with_parts(torch, tensor, [self.twin(part) for part in _parts(torch, tensor)])
            if not tensor.numel():
                return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            size, base = tensor.element_size(), _base(tensor)
            if self.is_light and tensor.is_floating_point() and (base in self.vast or (base not in self.twins and tensor.numel() > VAST)):
                return self.made_up(tensor)
            last = tensor.storage_offset() + sum((one - 1) * step for one, step in zip(tensor.size(), tensor.stride()))
            needed, held = (last + 1) * size, self.twins.get(base)
            if held is None or held.numel() < needed:
                self.unseen += held is None
                # Where nothing was seen of it the device's memory has what the host wrote.
                there = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage(), 0, (needed,), (1,))
                memory = there.cpu()
                if held is not None:
                    memory[: held.numel()] = held
                    self.bytes -= held.numel()
                self.bytes += needed
                held = self.twins[base] = memory
            made = torch.empty(0, dtype=tensor.dtype, device="cpu")
            made.set_(held.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
            return made.conj() if tensor.is_conj() else made

        def made_up(self, tensor):
            """Random fractions, of which nothing is kept."""
            if tensor.numel() > MOST:
                raise NotImplementedError
            return torch.randn(tensor.shape, dtype=torch.float32, device="cpu").to(tensor.dtype)

        def born(self, tensor, value):
            """A tensor of memory of its own, with this value or random fractions."""
            if not tensor.numel():
                return
            old = self.twins.pop(_base(tensor), None)
            self.bytes -= 0 if old is None else old.numel()
            self.vast.discard(_base(tensor))
            if self.is_light and tensor.is_floating_point() and tensor.numel() > VAST:
                self.vast.add(_base(tensor))
                return
            unseen, twin = self.unseen, self.twin(tensor)
            self.unseen = unseen
            if value is not None and value.shape == twin.shape:
                twin.copy_(value)
            elif twin.is_floating_point():
                twin.normal_()

        def forget(self, tensor):
            """`torch.tensor` has made and written it out of sight, where memory may be another's twin still."""
            old = self.twins.pop(_base(tensor), None) if tensor.is_cuda else None
            self.bytes -= 0 if old is None else old.numel()

        def drop(self):
            """Twins of memory that is no longer allocated go."""
            alive = {block["address"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"] if block["state"] != "inactive"}
            self.twins = {base: held for base, held in self.twins.items() if base in alive}
            self.vast &= alive
            self.bytes = sum(held.numel() for held in self.twins.values())

        def on_host(self, value):
            if isinstance(value, torch.Tensor):
                return self.twin(value) if value.is_cuda else value
            if isinstance(value, torch.device):
                return torch.device("cpu")
            return None if isinstance(value, torch.Generator) else value

        def computes(self, func, args, kwargs):
            """What the operator gives on the CPU, or None."""
            name = func.overloadpacket.__name__
            if func.namespace == "c10d":
                # Of the other ranks nothing is known here: as if they had the same.
                return None
            state = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags or "dropout" in name else None
            try:
                if state is not None:
                    torch.default_generator.manual_seed(_seed(torch, kwargs))
                if _products(name, args) > LARGEST or (self.is_light and name not in DECIDES and _is_vast(torch, tree_flatten((args, kwargs))[0])):
                    raise NotImplementedError
                made = func(*tree_map(self.on_host, args), **{**tree_map(self.on_host, kwargs), **({"pin_memory": False} if "pin_memory" in kwargs else {})})
                self.computed += 1
                return made
            except Exception:
                self.random[name] += 1
                return None
            finally:
                if state is not None:
                    torch.set_rng_state(state)

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if os.environ["TONNAGE_FORCED"] == "nothing":
                return func(*args, **kwargs)
            flat = tree_flatten((args, kwargs))[0]
            tensors = [one for one in flat if isinstance(one, torch.Tensor)]
            here = [one for one in tensors if one.is_cuda]
            if not here and not any(isinstance(one, torch.device) and one.type == "cuda" for one in flat):
                return func(*args, **kwargs)
            name = func.overloadpacket.__name__
            if name == "lift_fresh":
                self.forget(args[0])
            if name.startswith("_ctc_loss") and func._overloadname == "Tensor":
                # Within itself it copies the lengths to the host, out of sight, and goes on by them as numbers.
                args = tuple(self.on_host(one).tolist() if named.name.endswith("_lengths") else one for named, one in zip(func._schema.arguments, args))
                func = func.overloadpacket.default
            with torch.no_grad():
                if name == "copy_" and not args[0].is_cuda:
                    func(*args, **kwargs)
                    return args[0].copy_(self.twin(args[1]))
                truth = self.computes(func, args, kwargs)
                number = _size(torch, name, args, kwargs, truth, self.twin)
            if number is not None:
                _answer()(1, number)
            try:
                out = func(*args, **kwargs)
            finally:
                _answer()(0, 0)
            if name in READS:
                return out if truth is None else truth
            with torch.no_grad():
                self.bind(name, out, truth, {_base(part) for one in here for part in _parts(torch, one) if part.numel()})
            if self.bytes > KEPT:
                self.drop()
            return out

        def bind(self, name, out, truth, bases):
            outs, truths = ([part for one in tree_flatten(made)[0] for part in _parts(torch, one)] for made in (out, truth))
            truths = truths if len(truths) == len(outs) else [None] * len(outs)
            for one, value in zip(outs, truths):
                if not isinstance(one, torch.Tensor):
                    continue
                value = value if isinstance(value, torch.Tensor) else None
                if value is not None and value.shape != one.shape:
                    self.sizes[name] += 1
                if not one.is_cuda:
                    if value is not None and value.shape == one.shape and value.data_ptr() != one.data_ptr():
                        one.copy_(value)
                elif _base(one) not in bases:
                    self.born(one, value)

    return Twins()


def _is_vast(torch, values):
    """Whether one of them has more fractions than `light` keeps."""
    return any(isinstance(one, torch.Tensor) and one.is_cuda and one.is_floating_point() and one.numel() > VAST for one in values)


def _seed(torch, kwargs):
    """Another one for every number that the device draws, and the same where it draws again from a state that was kept."""
    generator = kwargs.get("generator") or torch.cuda.default_generators[torch.cuda.current_device()]
    return int.from_bytes(bytes(generator.get_state().tolist()), "little") % (2**63 - 1)


def _parts(torch, value):
    """The tensors with memory of which a sparse one is made; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.layout is torch.strided:
        return [value]
    if value.layout is torch.sparse_coo:
        return [value._indices(), value._values()]
    rows = value.layout in (torch.sparse_csr, torch.sparse_bsr)
    return [*((value.crow_indices(), value.col_indices()) if rows else (value.ccol_indices(), value.row_indices())), value.values()]


def _with_parts(torch, sparse, parts):
    """A sparse tensor like this one, made of these parts."""
    if sparse.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(*parts, sparse.shape, is_coalesced=sparse.is_coalesced(), check_invariants=False)
    return torch.sparse_compressed_tensor(*parts, sparse.shape, layout=sparse.layout, check_invariants=False)


def _base(tensor):
    return tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()


def _products(name, args):
    """About how many products an operator computes; halves take the CPU many times as long."""
    shapes = [one.shape for one in args if hasattr(one, "shape")]
    slower = 20 if any(getattr(one, "dtype", None) == sys.modules["torch"].float16 for one in args) else 1
    if name in ("convolution", "convolution_backward") and len(shapes) >= 2:
        # One of the output's places for each of the input's, but for strides.
        weights = shapes[-1] if name == "convolution_backward" else shapes[1]
        places = shapes[0].numel() // max(shapes[0][1], 1)
        return places * weights.numel() * (2 if name == "convolution_backward" else 1) * slower
    if name in ("mm", "addmm", "bmm", "baddbmm") and len(shapes) >= 2:
        return shapes[-2].numel() * shapes[-1][-1] * slower
    return 0


def _size(torch, name, args, kwargs, truth, twin):
    """The number that the operator reads from the device to know how much to allocate, or None."""
    if name in ("normal", "poisson", "binomial"):
        # Are its arguments valid?
        return 1
    if name in ("index", "index_put_", "index_put", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"):
        masks = [one for one in args[1] if one is not None and one.dtype in (torch.bool, torch.uint8) and one.is_cuda]
        return int(twin(masks[0]).count_nonzero()) if masks else None
    if name == "masked_select" and args[1].is_cuda and args[1].numel():
        mask = twin(args[1])
        return int(mask.count_nonzero()) * (torch.broadcast_shapes(args[0].shape, mask.shape).numel() // mask.numel())
    if name == "masked_scatter_backward":
        return int(twin(args[1]).count_nonzero())
    twice = [one for one in args if getattr(one, "layout", None) is torch.sparse_coo and not one.is_coalesced()]
    if twice and (name in ("coalesce", "_coalesce") or "mm" in name):
        return twin(twice[0]).coalesce()._nnz()
    if truth is None:
        return None
    if "to_sparse" in name:
        return truth._nnz()
    first = truth[0] if isinstance(truth, (tuple, list)) and truth else truth
    if name in ("nonzero", "unique_dim"):
        return first.shape[args[1] if name == "unique_dim" else 0]
    if name in ("masked_select", "_unique2", "_unique", "unique_consecutive", "repeat_interleave"):
        return first.numel()
    return first.numel() - 1 if name == "bincount" else None
