"""What `tonnage rehearse` adds to a Python process: it watches PyTorch's allocator, names phases, answers questions
that only data could answer, and stops when nothing new is to be seen. The user's script is not changed.
"""

from . import answers, imports, loaders, settings, starts
from .named import Named


def start():
    """Arranges for everything to be set up as the modules concerned are imported."""
    wanted = settings.read()
    if wanted is None:
        return
    named = Named()
    named.install()
    answers.install()
    loaders.install(wanted)
    imports.after("torch", lambda torch: starts.torch_is_there(torch, wanted, named))
