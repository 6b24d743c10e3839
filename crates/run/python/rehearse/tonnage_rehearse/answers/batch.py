"""What is known of the batch on its way to the device: where labels count, and whether rows are padded."""

_counts = {}
_rows = {}


class Latest:
    """The batch that was sent last."""

    is_padded = False
    """Whether the latest with an attention mask has padding."""


def note(batch):
    """Looks at a batch that is still in the host's memory."""
    if not hasattr(batch, "items"):
        return
    for name, value in batch.items():
        if getattr(value, "ndim", 0) != 2 or value.device.type != "cpu":
            continue
        if name == "attention_mask":
            Latest.is_padded = not bool(value.bool().all())
        elif name == "labels":
            _count(value != -100)
        elif name == "completion_mask":
            _count(value.bool())


def _count(mask):
    """For masks of this shape, and of this shape less the first column (next tokens)."""
    _counts[tuple(mask.shape)] = int(mask.sum())
    _counts[(mask.shape[0], mask.shape[1] - 1)] = int(mask[:, 1:].sum())


def expect_per_row(length, count):
    """Masks with rows of `length` have `count` true elements in each."""
    _rows[length] = count


def is_known(shape, by_row_alone=False):
    """Whether it was told how many elements of such a mask are true."""
    shape = tuple(shape)
    return (shape in _counts and not by_row_alone) or (len(shape) == 2 and shape[1] in _rows)


def expected(shape, by_row_alone=False):
    """True elements of a mask of this shape: as told, or all of them. `by_row_alone`: labels in the host's memory are no witness."""
    shape = tuple(shape)
    if shape in _counts and not by_row_alone:
        return _counts[shape]
    if len(shape) == 2 and shape[1] in _rows:
        return shape[0] * _rows[shape[1]]
    count = 1
    for size in shape:
        count *= size
    return count
