"""What a job needs, and the largest micro-batch that fits a GPU."""

import tonnage

answer = tonnage.estimate("gpt2", micro_batch_size=8, seq_len=1024, precision="bf16", gpu="l4")
print(answer)
print(f"{answer.total_bytes:,} bytes, highest in {answer.peak_phase}")

table = tonnage.fit("gpt2", gpus=["l4", "a100-80"], precision="bf16")
for gpu, largest in zip(("l4", "a100-80"), table.largest, strict=True):
    print(gpu, largest.micro_batch_size if largest else "nothing fits")
