"""Rows for pandas or polars: micro-batches by GPUs, on all cores."""

import tonnage

rows = tonnage.sweep("gpt2", micro_batch_size=[1, 2, 4], gpu=["l4", "t4"], seq_len=512)
for row in rows:
    print(row["micro_batch_size"], row["gpu"], row["verdict"], row["total_bytes"])

try:
    tonnage.estimate("gpt2", seq_lenn=512)
except tonnage.TonnageError as error:
    print(error.problem, "->", error.hint)
