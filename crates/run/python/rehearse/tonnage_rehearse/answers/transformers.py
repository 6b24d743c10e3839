"""Hugging Face transformers: when `generate` has finished, whether masks are needed, whether sequences are packed."""

import functools

from .. import imports, settings
from . import batch

_generating = []
"""A state for every `generate` that runs."""


class Generating:
    """How far a call of `generate` is."""

    last_length = 0
    """Tokens that the last call made."""

    def __init__(self):
        self.made, self.finished = 0, False


def install():
    """Arranges for all of it."""
    imports.after("transformers.generation.utils", _generation)
    imports.after("transformers.generation.stopping_criteria", _stopping)
    imports.after("transformers.masking_utils", _masking)


def _generation(module):
    mixin = module.GenerationMixin
    generate, unfinished = mixin.generate, mixin._has_unfinished_sequences

    @functools.wraps(generate)
    def counted(self, *args, **kwargs):
        _generating.append(Generating())
        try:
            return generate(self, *args, **kwargs)
        finally:
            Generating.last_length = _generating.pop().made

    @functools.wraps(unfinished)
    def has_unfinished(self, *args, **kwargs):
        # The question itself reads the device, and with ZeRO-3 allocates.
        unfinished(self, *args, **kwargs)
        return _goes_on()

    mixin.generate, mixin._has_unfinished_sequences = counted, has_unfinished
    beams = getattr(mixin, "_beam_search_has_unfinished_sequences", None)
    if beams is not None:

        def beams_unfinished(*args, **kwargs):
            beams(*args, **kwargs)
            return _goes_on()

        mixin._beam_search_has_unfinished_sequences = staticmethod(beams_unfinished)


def _goes_on():
    if not _generating:
        return False
    state, bound = _generating[-1], settings.read().generate_length
    if state.finished or (bound and state.made >= bound):
        return False
    state.made += 1
    return True


def _stopping(module):
    call = module.MaxLengthCriteria.__call__

    @functools.wraps(call)
    def counted(self, input_ids, *args, **kwargs):
        if _generating and input_ids.shape[-1] >= self.max_length:
            _generating[-1].finished = True
        return call(self, input_ids, *args, **kwargs)

    module.MaxLengthCriteria.__call__ = counted


def _masking(module):
    _answer(module, "find_packed_sequence_indices", lambda: None)
    # transformers 5: whether a mask has no padding.
    _answer(module, "fast_all", lambda: not batch.Latest.is_padded)


def _answer(module, name, answer):
    """The function runs, for what it allocates, and the answer is another."""
    function = getattr(module, name, None)
    if function is None:
        return

    @functools.wraps(function)
    def answered(*args, **kwargs):
        function(*args, **kwargs)
        return answer()

    setattr(module, name, answered)
