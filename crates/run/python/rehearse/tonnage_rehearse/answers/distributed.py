"""torch.distributed over phantom ranks: collectives move nothing, so objects go through the store instead, and what the
other ranks sent is not compared.
"""

import ctypes
import functools
import pickle

from .. import imports
from ..values import known
from ..values.follow import Computing, tensors_in


class Joined:
    """How this process stands to the other ranks."""

    place = None
    """Global rank and number of ranks, once the script has joined the others; kept when it leaves them."""
    sent = 0
    """Objects that were exchanged through the store."""


def install():
    """Once the modules are there."""
    imports.after("torch.distributed.distributed_c10d", _objects)
    imports.after("torch.distributed.distributed_c10d", _joins)
    imports.after("torch.distributed.distributed_c10d", _values)
    imports.after("torch.nn.parallel.distributed", _ddp)


def _ddp(module):
    """DDP compares the shapes of its parameters with those of rank 0."""
    if hasattr(module, "_verify_param_shape_across_processes"):
        module._verify_param_shape_across_processes = lambda *args, **kwargs: None


def _joins(module):
    join = module.init_process_group

    @functools.wraps(join)
    def init_process_group(*args, **kwargs):
        join(*args, **kwargs)
        Joined.place = (module.get_rank(), module.get_world_size())

    module.init_process_group = init_process_group


def _objects(module):
    def on_device(group):
        return module.get_backend(group) != "gloo"

    def exchange(group, mine):
        """Everyone's object, in order of ranks."""
        Joined.sent += 1
        store = module._get_default_store()
        ranks = module.get_process_group_ranks(group or module._get_default_group())
        key = f"tonnage/{Joined.sent}/{ranks[0]}-{len(ranks)}/"
        store.set(key + str(module.get_rank()), pickle.dumps(mine))
        return [pickle.loads(store.get(key + str(rank))) for rank in ranks]

    gather, broadcast, collect = module.all_gather_object, module.broadcast_object_list, module.gather_object

    @functools.wraps(gather)
    def all_gather_object(object_list, obj, group=None):
        if not on_device(group):
            return gather(object_list, obj, group=group)
        object_list[:] = exchange(group, obj)

    @functools.wraps(broadcast)
    def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, **kwargs):
        if not on_device(group):
            return broadcast(object_list, src, group=group, device=device, **kwargs)
        ranks = module.get_process_group_ranks(group or module._get_default_group())
        source = ranks.index(src) if src is not None else (group_src or 0)
        object_list[:] = exchange(group, list(object_list))[source]

    @functools.wraps(collect)
    def gather_object(obj, object_gather_list=None, dst=None, group=None, **kwargs):
        if not on_device(group):
            return collect(obj, object_gather_list, dst, group=group, **kwargs)
        everyone = exchange(group, obj)
        if object_gather_list is not None:
            object_gather_list[:] = everyone

    module.all_gather_object, module.broadcast_object_list = all_gather_object, broadcast_object_list
    module.gather_object = gather_object


_MOVING = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "recv", "irecv",
)  # fmt: skip
PAGE = 4096
"""Collectives of buffers up to this many bytes are performed (`crates/phantom/src/memory/copy.rs`)."""


def _values(module):
    """What is known of small buffers goes into the phantom's memory, where collectives find it, and comes back from there."""
    for name in _MOVING:
        collective = getattr(module, name, None)
        if collective is not None:
            setattr(module, name, _with_values(collective))


def _with_values(collective):
    @functools.wraps(collective)
    def moved(*args, **kwargs):
        if not known.Values.by_id:
            return collective(*args, **kwargs)
        tensors = [one for one in tensors_in((*args, *kwargs.values())) if known.is_plain(one)]
        small = [one for one in tensors if one.is_contiguous() and 0 < one.numel() * one.element_size() <= PAGE]
        with Computing():
            before = [(one, known.of(one)) for one in small]
            for one, found in before:
                if found is not None:
                    value = found.value.contiguous()
                    ctypes.memmove(one.data_ptr(), value.data_ptr(), value.numel() * value.element_size())
        out = collective(*args, **kwargs)
        with Computing():
            for one in tensors:
                known.forget(one)
            for one in small if any(found is not None for _, found in before) else ():
                value = known.uniform(one.shape, one.dtype).contiguous()
                ctypes.memmove(value.data_ptr(), one.data_ptr(), value.numel() * value.element_size())
                known.give(one, value, known.Certainty.ASSUMED)
        return out

    return moved
