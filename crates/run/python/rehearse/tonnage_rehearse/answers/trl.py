"""TRL: completions run to their full length."""

import functools

from .. import imports
from . import batch
from .transformers import Generating

TRAINERS = {"trl.trainer.grpo_trainer": "GRPOTrainer", "trl.trainer.rloo_trainer": "RLOOTrainer"}


def install():
    """For the trainers that generate."""
    for module, trainer in TRAINERS.items():
        imports.after(module, functools.partial(_trainer, name=trainer))


def _trainer(module, name):
    trainer = getattr(module, name)
    _wrap(trainer, "_generate_single_turn", _full_length)
    _wrap(trainer, "_get_per_token_logps_and_entropies", _expect_completions)


def _wrap(trainer, name, wrapper):
    function = getattr(trainer, name, None)
    if function is not None:
        setattr(trainer, name, functools.wraps(function)(functools.partialmethod(wrapper, function)))


def _full_length(self, generate, *args, **kwargs):
    """Completions come back cut short, because the mask after the first end-of-text token is computed on the device."""
    made = generate(self, *args, **kwargs)
    length = Generating.last_length or self.max_completion_length
    token = _ordinary_token(self)
    if _is_rows_of_tokens(made):
        # RLOO of TRL 1.16 gives completions alone.
        return [[token] * length for _ in made]
    result = list(made)
    # Prompts may come back too, before the completions.
    at = [index for index, value in enumerate(result) if _is_rows_of_tokens(value)]
    if at:
        result[at[-1]] = [[token] * length for _ in result[at[-1]]]
    return tuple(result)


def _is_rows_of_tokens(value):
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(row, list) and (not row or isinstance(row[0], int)) for row in value)


def _ordinary_token(self):
    """One that neither ends nor pads."""
    tokenizer = getattr(self.processing_class, "tokenizer", self.processing_class)
    special = set(getattr(tokenizer, "all_special_ids", ()))
    return next(token for token in range(5, 1_000_000) if token not in special)


def _expect_completions(self, logps, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs):
    """Log-probabilities are taken of completions only: the mask over next tokens selects these."""
    batch.expect_per_row(input_ids.shape[1] - 1, logits_to_keep)
    return logps(self, model, input_ids, attention_mask, logits_to_keep, *args, **kwargs)
