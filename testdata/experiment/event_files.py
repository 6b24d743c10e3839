"""Event files as TensorBoard's own writer makes them: a scalar as `simple_value`, one as a tensor, three steps each.

    python testdata/experiment/event_files.py testdata/experiment/tensorboard

Needs tensorboard 2.21; nothing else.
"""

import os
import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT
from tensorboard.summary.writer.record_writer import RecordWriter


def write(folder, seed):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"events.out.tfevents.1700000000.host.{seed}.0"), "wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=1_700_000_000, file_version="brain.Event:2").SerializeToString())
        for n in range(1, 4):
            accuracy = Summary.Value(tag="eval/accuracy", simple_value=0.25 * n + 0.01 * (seed - 1))
            loss = Summary.Value(tag="loss_tensor", tensor=TensorProto(dtype=DT_FLOAT, float_val=[2.0 / n]))
            event = Event(wall_time=1_700_000_000 + 60 * n, step=10 * n, summary=Summary(value=[accuracy, loss]))
            writer.write(event.SerializeToString())


for seed in (1, 2):
    write(os.path.join(sys.argv[1], f"seed{seed}"), seed)
