"""torchvision: its suppression of boxes counts on the device what it keeps, within its own code."""

import functools

from .. import caveats, imports
from ..values import known
from ..values.follow import Computing, Spent, _compiling


def install():
    """Where models and scripts take it from."""
    imports.after("torchvision.ops.boxes", _suppression)


def _suppression(module):
    keep = module.nms

    @functools.wraps(keep)
    def nms(boxes, scores, iou_threshold):
        if _compiling() or Spent.depth or not known.is_plain(boxes):
            return keep(boxes, scores, iou_threshold)
        value, certainty = _kept(keep, boxes, scores, iou_threshold)
        with known.Answered(value.numel()):
            out = keep(boxes, scores, iou_threshold)
        known.give(out, value, certainty)
        return out

    module.nms = nms


def _kept(keep, boxes, scores, iou_threshold):
    """As the values say; of boxes that nobody knows all, which is told."""
    found = known.of(boxes), known.of(scores)
    with Computing():
        if all(one is not None and one.certainty < known.Certainty.CHOSEN for one in found):
            return keep(found[0].value.float(), found[1].value.float(), iou_threshold), known.Certainty.WRITTEN
        every = known._torch().arange(boxes.shape[0], device="cpu")
    text = f"`nms` of a device's boxes has a size that only data decides; it was answered with all {every.numel()} boxes"
    caveats.tell_of_value("nms", text)
    return every, known.Certainty.UNKNOWN
