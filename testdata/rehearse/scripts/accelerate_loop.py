"""A training loop of one's own with accelerate: bf16, two micro-batches a step."""

import torch
from accelerate import Accelerator
from tiny import model

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
net = model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
data = torch.utils.data.DataLoader(torch.randint(0, 1000, (512, 256)), batch_size=8, shuffle=True)
net, optimizer, data = accelerator.prepare(net, optimizer, data)
net.train()
for epoch in range(4):
    for ids in data:
        with accelerator.accumulate(net):
            loss = net(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}")
