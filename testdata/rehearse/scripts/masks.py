"""Takes rows by a mask, trains through them and puts them back: a mask is answered with all its elements where nobody knows
its values, so that with and without `--no-values` the same is allocated. PyTorch keeps the mask for the backward pass, not the
places that it found."""
import torch

rows, tokens, width = 4, 250, 512
labels = torch.arange(rows * tokens).reshape(rows, tokens).cuda()
weight = torch.nn.Parameter(torch.randn(width, width, device="cuda"))
optimizer = torch.optim.SGD([weight], 0.1)
for _ in range(2):
    hidden = torch.randn(rows, tokens, width, device="cuda") @ weight
    mask = labels != -100
    before = torch.cuda.memory_allocated()
    kept, wanted = hidden[mask], labels[mask]
    grown = torch.cuda.memory_allocated() - before
    assert kept.shape == (rows * tokens, width) and wanted.shape == (rows * tokens,)
    assert kept.grad_fn._saved_indices[0] is not None and kept.grad_fn._saved_indices[0].dtype == torch.bool
    assert grown == kept.nbytes + -(-wanted.nbytes // 512) * 512, grown
    spread = hidden.new_zeros(mask.shape).masked_scatter(mask, kept.sum(-1))
    assert spread.isfinite().all() and not spread.isnan().any() and (kept.isfinite().cpu().all())
    spread.sum().backward()
    assert weight.grad.shape == weight.shape
    optimizer.step()
    optimizer.zero_grad()
    del hidden, mask, kept, wanted, spread
