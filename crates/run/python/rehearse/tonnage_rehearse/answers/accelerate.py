"""accelerate moves batches to the device: the place to look at them."""

from .. import imports
from . import batch


def install():
    """Looks at every batch that is sent."""
    imports.after("accelerate.utils.operations", _operations)


def _operations(module):
    send = module.send_to_device

    def send_to_device(tensor, *args, **kwargs):
        batch.note(tensor)
        return send(tensor, *args, **kwargs)

    module.send_to_device = send_to_device
