"""Asks a device for values that the host wrote, and for others: every answer must be the true one, or a valid one."""
import copy
import io

import torch
import torch.nn.functional as F
import yaml

small = torch.tensor([3, 1, 6, 2]).cuda()
assert small.tolist() == [3, 1, 6, 2] and small.max().item() == 6 and int(small.sum()) == 12
assert F.one_hot(small).shape == (4, 7) and torch.bincount(small).shape == (7,)
assert torch.full((1,), 7, device="cuda").item() == 7 and torch.arange(4, device="cuda").tolist() == [0, 1, 2, 3]
assert small.new_full((2, 1), 7).tolist() == [[7], [7]] and torch.full_like(small, 7).tolist() == [7] * 4
assert torch.repeat_interleave(small, small).tolist() == [3] * 3 + [1] + [6] * 6 + [2] * 2
assert (small >= 0).all() and torch.equal(small, small) and 6 in small and 5 not in small
table = torch.arange(6000).cuda()
assert table[table > 2].shape == (5997,) and torch.masked_select(table, table > 5000).shape == (999,)
assert torch.nonzero(small > 1).tolist() == [[0], [2], [3]] and torch.where(small > 1)[0].tolist() == [0, 2, 3]
values, counts = torch.unique(torch.tensor([1, 1, 5]).cuda(), return_counts=True)
assert (values.tolist(), counts.tolist()) == ([1, 5], [2, 1]) and torch.zeros(counts.max(), 2, device="cuda").shape == (2, 2)
assert [part.shape[0] for part in torch.randn(12, 2, device="cuda").split(small.tolist())] == [3, 1, 6, 2]

alike = (small[:, None] == small[None]).fill_diagonal_(False)
assert not alike.any() and small.outer(small).pow_(2).diagonal().tolist() == [81, 1, 1296, 16] and alike.logical_not_().sum() == 16

# What is turned keeps what is known of it, and lengths of segments are asked within PyTorch.
table = torch.tensor([[1, 0], [0, 1], [1, 1]]).cuda()
assert table.T.tolist() == table.mT.tolist() == table.H.tolist() == [[1, 0, 1], [0, 1, 1]] and table.T.nonzero().shape == (4, 2)
assert torch.segment_reduce(torch.randn(8, 2, device="cuda"), "sum", lengths=torch.tensor([3, 1, 4]).cuda()).shape == (3, 2)

small[1] = 9
small.add_(1)
tail = small[1:]
tail.zero_()
assert small.tolist() == [4, 0, 0, 0] and small.cumsum(0).tolist() == [4, 4, 4, 4]
# What the host does not know any more is zero, and never what the memory held before.
small.random_()
assert small.tolist() == [0, 0, 0, 0]
# What is drawn between bounds lies there: a crop by a mask of drawn centers is as large as any.
assert sorted(small.random_(5, 9).tolist()) == [5, 6, 7, 8] and small.random_(1).tolist() == [0] * 4
away = torch.arange(9, device="cuda") - torch.empty(6, dtype=torch.long, device="cuda").random_(2, 6).view(-1, 1)
assert torch.masked_select(torch.randn(6, 9, device="cuda"), (away >= -2) * (away <= 2)).view(6, 5).shape == (6, 5)
for _ in range(50):
    torch.tensor([-1]).cuda()
    assert torch.randn(1, device="cuda").item() == 0

# exp(0) is one, of which five are five.
assert torch.randn(3, 5, device="cuda").exp().ceil().sum(1).long().tolist() == [5] * 3
# But no less than what it is clamped to: lengths that a model predicts are at least one.
lengths = torch.clamp_min(torch.randn(3, 5, device="cuda").ceil().sum(1), 1).long()
assert lengths.tolist() == [1] * 3 and torch.zeros(lengths.max(), device="cuda").shape == (1,)
assert torch.randn(2, device="cuda").clamp(min=2.0).tolist() == [2.0] * 2 and torch.randn(2, device="cuda").clamp(0.5).tolist() == [0.0] * 2

x = torch.randn(8, 8, device="cuda", requires_grad=True)
assert (x >= 0).all() and bool((x.min() >= 0).all()) and not x.isnan().any() and x.isfinite().all()
assert all(0 <= place < 8 for row in x.topk(2)[1].tolist() for place in row)
assert all(0 <= place < 8 for place in torch.multinomial(x.softmax(-1), 1).flatten().tolist())
assert sorted(x[0].argsort().tolist()) == list(range(8)) and sorted(torch.randperm(5, device="cuda").tolist()) == list(range(5))
for drawn in (
    torch.distributions.Normal(x, x.exp()), torch.distributions.Categorical(logits=x), torch.distributions.Beta(x.exp(), x.exp()),
    torch.distributions.Bernoulli(probs=x.sigmoid()),
):
    assert drawn.log_prob(drawn.sample()).shape in ((8,), (8, 8))

# A mask is counted where a number of the device is written by it, or where it stands beside other places: never by what the memory held before.
torch.full((64,), 1.0, device="cuda")
mask, table = torch.randn(64, device="cuda") > 0, torch.randn(64, 4, device="cuda")


def written(index, value):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    table[index] = value
    return torch.cuda.max_memory_allocated() - before


places = torch.arange(64, device="cuda")
assert written(mask, table.new_ones(4)) <= written(mask, torch.ones((), device="cuda")) <= written((mask, places % 4), 1) and written(mask, 1) == 0
# Neither is a size that PyTorch would read itself.
torch.tensor([7] * 64, device="cuda")
number = torch.randn(64, device="cuda").sum().long()
assert torch.nn.functional.pad(table, (0, number)).shape == table.tile((number + 1, 1)).shape == table.unflatten(0, (number + 64, 1)).squeeze(1).shape == (64, 4)
assert table.select(0, number).shape == (4,) and table.topk(number + 1).values.shape == (64, 1) and torch.rand((number + 2, 3), device="cuda").shape == (2, 3)
assert torch.repeat_interleave(table, torch.tensor(2).cuda(), 0).shape == (128, 4)
# Columns that were chosen of a table that is filled up are valid in what it was filled from.
owners = torch.arange(4).repeat_interleave(torch.tensor([2, 3, 1, 2])).cuda()
order = torch.randn(4, 3, device="cuda").argsort(1)
assert torch.bincount(owners[torch.cat([order[at, :1] + 7 for at in range(4)])]).sum().item() == 4

# Shares that are added up reach one at their last place, so that whoever cuts off the likeliest tokens (top-p) by hand keeps all of them, in every form.
shares, order = torch.softmax(torch.randn(4, 1000, device="cuda"), -1).sort(-1, descending=True)
sums = shares.cumsum(-1)
kept, most = (sums[0] < 0.9).sum() + 1, (sums <= 0.9).sum(-1).max().item() + 1
assert shares[0].topk(kept).values.shape == shares[0].topk(kept.item()).values.shape == shares[0, : int(kept)].shape == (1000,)
assert order.narrow(1, 0, most).shape == (4, 1000) and torch.zeros(most, device="cuda").copy_(shares[0, :most]).shape == (1000,)
# A place is one that there is.
assert shares[0][kept].shape == shares[0, kept].shape == () and shares[0][kept.item() - 1].shape == () and shares[:, kept.item()].shape == (4,)
# Those above the share are all, as any that nobody knows.
assert order[sums > 0.9].shape == (4000,) and shares.masked_fill(sums > 0.9, 0).shape == (4, 1000)

# The first place that is above the share is the last that there is, however it is asked for: the small end would be too low.
above = sums[0] > 0.9
for first in (
    above.nonzero()[0], torch.nonzero(sums[0].ge(0.9)).min(), torch.where(above)[0][0], torch.argwhere(above).squeeze(-1)[0], above.int().argmax(),
    above.to(torch.float32).argmax(-1), (sums[0] < 0.9).long().argmin(0), above.max(-1).indices, torch.searchsorted(sums[0], 0.9),
    (~above).nonzero()[-1] + 1, 1000 - above.sum() + 999, (sums[0].cpu() > 0.9).nonzero()[0], above.cpu().int().argmax(),
    torch.as_tensor((sums[0].cpu().numpy() > 0.9).argmax()), torch.nonzero(sums[0] > 1.5)[0],
):
    assert shares[0, : first.item() + 1].shape == (1000,), first
assert (sums > 0.9).nonzero()[:, 1].min() == (sums > 0.9).int().argmax(-1).max() == (sums > 0.9).nonzero(as_tuple=True)[1].min() == 999
assert order.gather(1, (sums > 0.9).int().argmax(-1, keepdim=True)).shape == (4, 1) and shares[0][above.nonzero()].shape == (1000, 1)
for at, one in enumerate(sums[0, 900:]):
    if one > 0.9:
        break
assert at == 99
on_host = shares[0].cpu().cumsum(-1)
assert (on_host < 0.9).sum() + 1 == 1000 and (on_host > 0.9).nonzero()[0] == 999
# Who keeps the one that reaches it moves the mask by one; what is left is all.
removed = sums > 0.9
removed[..., 1:] = removed[..., :-1].clone()
removed[..., 0] = False
assert order[~removed].shape == (4000,) and shares.masked_fill(removed, 0).shape == (4, 1000)

# An optimizer's steps are counted on the device where that is the place of all new tensors, and read there.
torch.set_default_device("cuda")
for many in False, True:
    weight = torch.nn.Parameter(torch.randn(4, 4))
    optimizer = torch.optim.Adam([weight], foreach=many)
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
    assert optimizer.state[weight]["step"].item() == 2
torch.set_default_device(None)

# Who asks for the exact type of a number is told the ordinary one.
mean, number, counted = torch.randn(3, device="cuda").mean().item(), torch.randn(3, device="cuda").sum().long().item(), (sums[0] < 0.9).sum().item()
assert type(mean) is float and type(number) in (int, str) and type(counted) == int and type(mean) is not int
# A checkpoint with such numbers is loaded, and YAML writes them.
saved = io.BytesIO()
torch.save({"best": mean, "seen": number, "kept": counted}, saved)
saved.seek(0)
assert torch.load(saved) == {"best": mean, "seen": number, "kept": counted} and yaml.safe_load(yaml.safe_dump({"best": mean, "kept": counted}))["best"] == mean
assert yaml.dump(number) == yaml.dump(0)

# What is nobody's is all there, however small, and so is what only data would leave out of a sparse tensor.
assert torch.argwhere(x > 0).shape == (64, 2) and x[x.sigmoid() > 0.5].shape == (64,) and x.relu().to_sparse()._nnz() == 64
twins = torch.sparse_coo_tensor(torch.tensor([[0, 0, 5], [1, 1, 2]]), torch.ones(3), (8, 8)).cuda()
assert torch.sparse.mm(twins, x).shape == (8, 8) and twins.coalesce()._nnz() == 3
assert torch.combinations(torch.arange(5, device="cuda")).tolist()[-1] == [3, 4]


class Labels(torch.Tensor):
    """A kind of tensor as fastai and torchvision have them."""


# What was copied, or has another type, is what it was; what is written into `.data` is the tensor's.
table = torch.tensor([3, 1, -100]).cuda()
alike = (copy.deepcopy(table), table.as_subclass(Labels), table.data)
assert all(one.tolist() == [3, 1, -100] and one[one != -100].shape == (2,) for one in alike)
table.data.fill_(4)
assert table.tolist() == [4, 4, 4]

# A mask by which rows are chosen is counted again in the backward pass.
labels = torch.tensor([0, -100, 2, -100, 4, 5, 6, 7]).cuda()
kept = x[labels != -100]
assert kept.shape == (6, 8)
back = torch.zeros_like(x).index_put_((labels != -100,), kept)
(kept.square() + back[labels != -100]).sum().backward()
assert x.grad.shape == (8, 8)

# While a model is traced nothing of ours is recorded, and its sizes, which are tensors then, are not noted.
picture = torch.zeros(1, 3, 8, 8, device="cuda")
assert torch.jit.trace(torch.nn.Conv2d(3, 4, 3).cuda(), picture)(picture).shape == (1, 4, 6, 6)
print(x, small)
