"""Answers to questions that a script asks of device data, which always reads as zero here.

A file a library. Each says what a run at full length and without padding would say, or what is known from the batch
before it went to the device.
"""

from . import accelerate, bitsandbytes, distributed, inductor, torchvision, transformers, triton, trl
from . import torch as torch_answers


def install():
    """Arranges for the answers as libraries are imported."""
    for library in (accelerate, bitsandbytes, distributed, inductor, torchvision, transformers, triton, trl):
        library.install()


def torch_is_there(module):
    """PyTorch's own questions."""
    torch_answers.install(module)
    from . import convolutions

    convolutions.install(module)
