"""What `tonnage rehearse` adds to a Python process: it watches PyTorch's allocator, names phases, answers questions
that only data could answer, and stops when nothing new is to be seen. The user's script is not changed.
"""

from . import answers, imports, named, settings, starts


def start():
    """Arranges for everything to be set up as the modules concerned are imported."""
    if settings.read() is None:
        return
    named.install()
    answers.install()
    imports.after("torch", starts.torch_is_there)
