"""Several ranks in one process: what torchrun sets, and a process group that moves no data. What NCCL's would allocate on the
GPU for objects is allocated here too."""
import os
import pickle

#: UTF-8 bytes of a token of text, as objects that hold completions are gathered: more than English takes.
TEXT_BYTES_OF_TOKEN = 4


def start_ranks(world):
    """What torchrun sets, and the group: accelerate finds both. The reducer's bucket is handed on as it is."""
    import torch
    import torch.distributed as dist
    import torch.nn.parallel.distributed as ddp
    from torch.testing._internal.distributed.fake_pg import FakeStore
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    torch.cuda.set_device(0)
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    # The fake group's own copies to parts of the output, which must have the shape of what is sent; NCCL's writes bytes. DeepSpeed
    # names its arguments and sends parts that are alike.
    gathers = dist.all_gather_into_tensor
    dist.all_gather_into_tensor = lambda *sent, **options: None if sent else gathers(**options)
    dist.all_gather_object = all_gather_object
    # NCCL's barrier sends a byte on the device, whoever asks.
    barrier = dist.barrier
    dist.barrier = lambda group=None, async_op=False, device_ids=None: barrier(group, async_op, device_ids or [0])
    ddp._verify_param_shape_across_processes = lambda *args, **options: None
    made = ddp.DistributedDataParallel.__init__

    def hook(_state, bucket):
        dist.all_reduce(bucket.buffer(), async_op=True)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def init(self, *args, **options):
        made(self, *args, **options)
        self.register_comm_hook(None, hook)
    ddp.DistributedDataParallel.__init__ = init


def all_gather_object(objects, own, group=None):
    """Under NCCL objects travel as bytes on the GPU; those of every rank are as long as this one's. One character of the byte
    tokenizer's texts is one token."""
    import torch
    import torch.distributed as dist
    world = dist.get_world_size(group)
    texts = [text for text in own if isinstance(text, str)] if isinstance(own, list) else []
    length = TEXT_BYTES_OF_TOKEN * sum(map(len, texts)) if texts else len(pickle.dumps(own))
    data, size = torch.zeros(length, dtype=torch.uint8).to("cuda"), torch.LongTensor([length]).to("cuda")
    sizes = torch.zeros(world, dtype=torch.long, device="cuda")
    each = [sizes[rank].unsqueeze(dim=0) for rank in range(world)]
    dist.all_gather(each, size, group=group)
    max(each).item()
    gathered = torch.empty(data.numel() * world, dtype=torch.uint8, device="cuda")
    dist.all_gather(list(gathered.chunk(world)), data, group=group)
    objects[:] = [own] * world
