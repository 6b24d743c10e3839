"""torch.distributed over phantom ranks: collectives move nothing, so objects go through the store instead, and what the
other ranks sent is not compared.
"""

import ctypes
import functools
import pickle
import time
import weakref

from .. import caveats, imports
from ..values import known
from ..values.follow import Computing, _compiling, tensors_in

WATCHDOG = 0.3
"""Seconds after which NCCL's watchdog, which looks every 100 ms, has let go of what was sent."""


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
    kind = module.DistributedDataParallel
    if hasattr(kind, "_pre_forward"):
        kind._pre_forward = _settling(kind._pre_forward)


def _settling(original):
    """Before its second pass DDP makes its buckets anew. The watchdog holds those that were sent until it looks again, by when a step of a
    GPU is mostly over: not so here, where steps take no time, and one rank would have both and another not."""
    sends = weakref.WeakKeyDictionary()

    @functools.wraps(original)
    def _pre_forward(self, *inputs, **kwargs):
        if not _compiling() and known._torch().is_grad_enabled() and sends.get(self) is not False:
            if sends.get(self):
                time.sleep(WATCHDOG)
                _tell_of_buckets(self)
            # Whether this pass is sent; False once the buckets are made.
            sends[self] = False if sends.get(self) else self.require_backward_grad_sync or None
        return original(self, *inputs, **kwargs)

    return _pre_forward


def _tell_of_buckets(wrapped):
    size = sum(one.numel() * one.element_size() for one in wrapped.parameters() if one.requires_grad)
    caveats.tell_of_run(
        "buckets",
        f"DDP made its buckets anew after the first backward pass; the old ones were gone by then: where a pass takes less than the 100 ms "
        f"between two looks of NCCL's watchdog they may still be there, {size / 2**20:.1f} MiB more at that moment",
    )


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
