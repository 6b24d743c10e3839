"""Values of device tensors, as far as the host can know them: what it wrote itself and what follows from that is computed
beside the device; what only a kernel would compute reads as zero, and choices of a kernel (experts, tokens) as valid ones.

`known` keeps values, `follow` computes them, `births`, `choices`, `sizes` (and `assigned`, `lengths`) and `reads` are where they begin, are made up,
decide a size, and reach the host.
"""

from . import added, assigned, births, branches, choices, compiled, follow, kinds, known, lengths, reads, rules, running, sizes, sparse


def install(torch, wanted):
    """Wraps PyTorch's functions; everything is as it was where no value is known."""
    known.Values.is_on = wanted is None or wanted.values
    choices.Experts.worst = wanted is not None and wanted.worst_experts
    follow.install(torch)
    added.install(torch)
    running.install(torch)
    branches.install(torch)
    births.install(torch)
    choices.install(torch)
    compiled.install(torch)
    sizes.install(torch)
    assigned.install(torch)
    sparse.install(torch)
    lengths.install(torch)
    rules.install(torch)
    reads.install(torch)
    kinds.install(torch)
