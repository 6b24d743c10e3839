"""What data loaders give: with `--longest` the longest rows of the data in every other batch, with `--row-length N` rows of N.

Every loader of transformers, TRL, accelerate and Lightning is one of PyTorch's, and asks it for the order of its rows.
"""

import functools
import time

from . import caveats, imports

LOOKED_AT = 10.0
"""Seconds for looking at rows one by one."""
COLUMNS = ("length", "lengths")
"""Columns that say how long a row is."""
MASKS = ("attention_mask", "attn_mask")


def install(wanted):
    """Changes loaders as far as the command asks for it."""
    if wanted.longest or wanted.row_length:
        imports.after("torch.utils.data.dataloader", functools.partial(_loaders, wanted=wanted))


def _loaders(module, wanted):
    if wanted.longest:
        order = module.DataLoader._index_sampler
        module.DataLoader._index_sampler = property(functools.partial(_longest_first, order.fget))
    if wanted.row_length:
        given = module._BaseDataLoaderIter.__next__

        @functools.wraps(given)
        def next_batch(self):
            return as_long(given(self), wanted.row_length)

        module._BaseDataLoaderIter.__next__ = next_batch


class Order:
    """The order of a loader's rows with the longest ones in every other batch: the optimizer's state is in memory from the
    second step on, and batches of other sizes leave their holes in the memory between."""

    def __init__(self, sampler, rows):
        self.sampler, self.rows = sampler, rows

    def __iter__(self):
        for number, batch in enumerate(self.sampler):
            is_batch = isinstance(batch, (list, tuple))
            if number % 2:
                yield batch
            else:
                yield self.rows[: len(batch)] if is_batch else self.rows[0]

    def __len__(self):
        return len(self.sampler)

    def __getattr__(self, name):
        return getattr(self.sampler, name)


def _longest_first(order, loader):
    sampler = order(loader)
    rows = _longest_rows(loader)
    return Order(sampler, rows) if rows else sampler


def _longest_rows(loader):
    """The numbers of the longest rows, a batch of them; none where their lengths cannot be seen. Looked up once a loader."""
    known = loader.__dict__.get("_tonnage_longest")
    if known is None:
        known = _look(loader)
        # A loader refuses some of its own names after it was made; it knows nothing of this one.
        loader.__dict__["_tonnage_longest"] = known
    return known


def _look(loader):
    data = loader.dataset
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        text = "gives its rows one after another, so that the longest cannot be found; they came in their own order"
        caveats.tell_of_run("longest_unknown", f"--longest: {type(data).__name__} {text}")
        return []
    lengths, whole = row_lengths(data)
    if not lengths:
        caveats.tell_of_run("longest_unknown", f"--longest: how long the rows of {type(data).__name__} are cannot be seen; they came in their own order")
        return []
    size = getattr(loader.batch_sampler, "batch_size", None) or loader.batch_size or 64
    rows = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    # As many as there are, again and again: a batch of nothing but the longest is the largest there can be.
    rows = (rows * -(-size // len(rows)))[:size]
    _tell(lengths, whole, len(data))
    return rows


def _tell(lengths, whole, count):
    of = f"all {count:,} rows" if whole else f"the first {len(lengths):,} of {count:,} rows, for more took too long"
    if min(lengths) == max(lengths):
        text = f"--longest: {of} are of the same size ({max(lengths):,} elements)"
    else:
        text = f"--longest: every other batch was of the longest rows (up to {max(lengths):,} elements; the shortest has {min(lengths):,}), of {of}"
    caveats.tell_of_run("longest" if whole else "longest_of_some", text)


def row_lengths(data):
    """How many elements each row has, and whether all rows were looked at: the columns of `datasets` at once, others row by row for a while."""
    lengths = _column_lengths(data)
    if lengths is not None:
        return lengths, True
    lengths, began = [], time.monotonic()
    try:
        for row in range(len(data)):
            if time.monotonic() - began > LOOKED_AT:
                return lengths, False
            lengths.append(elements(data[row]))
    except Exception:
        # Whatever stands in the way: the loader meets it itself, or asks otherwise.
        return [], False
    return lengths, True


def _column_lengths(data):
    """Of `datasets.Dataset`: lists of numbers by their lengths, in Arrow's own table."""
    table = getattr(data, "data", None)
    if getattr(type(data), "__module__", "").split(".")[0] != "datasets" or not hasattr(table, "column"):
        return None
    import pyarrow.compute as compute

    for name in COLUMNS:
        if name in data.column_names:
            return _in_order(data, [int(value) for value in table.column(name).to_pylist()])
    total = None
    for name in data.column_names:
        column = table.column(name)
        kind = str(column.type)
        if kind.startswith(("list", "large_list")):
            lengths = compute.list_value_length(column).to_pylist()
        elif kind in ("string", "large_string"):
            lengths = compute.utf8_length(column).to_pylist()
        else:
            continue
        lengths = [length or 0 for length in lengths]
        total = lengths if total is None else list(map(sum, zip(total, lengths, strict=True)))
    return None if total is None else _in_order(data, total)


def _in_order(data, lengths):
    """Rows may be chosen by a table of their numbers."""
    indices = getattr(data, "_indices", None)
    return lengths if indices is None else [lengths[row] for row in indices.column(0).to_pylist()]


def elements(row):
    """Elements of all tensors, lists and texts of a row."""
    if hasattr(row, "numel"):
        return row.numel()
    if isinstance(row, (str, bytes)):
        return len(row)
    if hasattr(row, "size") and isinstance(row.size, int):
        return row.size
    if hasattr(row, "items"):
        return sum(elements(value) for _, value in row.items())
    if isinstance(row, (list, tuple)):
        return sum(elements(value) if isinstance(value, (str, list, tuple, dict)) or hasattr(value, "numel") or hasattr(value, "size") else 1 for value in row)
    return 1


def as_long(batch, length):
    """The batch with rows of this length: all tensors of whole numbers that are as long as its tokens, with the longest row's."""
    named = batch if hasattr(batch, "items") else dict(enumerate(batch)) if isinstance(batch, (list, tuple)) else {0: batch}
    tables = {name: value for name, value in named.items() if _is_table(value)}
    if not tables:
        caveats.tell_of_run("row_length_unknown", "--row-length: a batch has no tables of tokens; it was left as it was")
        return batch
    tokens = tables.get("input_ids")
    tokens = next(iter(tables.values())) if tokens is None else tokens
    for name, value in tables.items():
        if value.shape[-1] == tokens.shape[-1]:
            named[name] = _stretched(value, tables, length)
    if hasattr(batch, "items"):
        return batch
    return type(batch)(named.values()) if isinstance(batch, (list, tuple)) else named[0]


def _is_table(value):
    return hasattr(value, "numel") and value.dim() == 2 and not value.dtype.is_floating_point and value.numel() > 0


def _stretched(value, tables, length):
    """Every row becomes the longest one, over and over."""
    import torch

    mask = next((tables[name] for name in MASKS if name in tables and tables[name].shape == value.shape), None)
    row, real = 0, torch.arange(value.shape[-1])
    if mask is not None:
        row = int(mask.bool().sum(-1).argmax())
        real = mask[row].bool().nonzero().flatten()
    places = real[torch.arange(length) % max(len(real), 1)] if len(real) else torch.zeros(length, dtype=torch.long)
    return value[row, places].expand(value.shape[0], length).contiguous()
