"""What the scripts share: a small model from a config, with random weights, and a tokenizer of bytes. No network."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def config(**changes):
    """About 30 million parameters."""
    sizes = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8)
    return Qwen2Config(**{**sizes, "num_key_value_heads": 4, "vocab_size": 16000, **changes})


def model(**changes):
    """A language model that ends no text by itself."""
    made = AutoModelForCausalLM.from_config(config(**changes))
    made.generation_config.eos_token_id = None
    return made


def tokenizer():
    """Every byte is a token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=bytes_only, pad_token="!", eos_token='"', padding_side="left")


def text(length, number=0):
    """A text of so many bytes."""
    return (LETTERS[number % 26] + str(number % 10) + LETTERS * (length // 26 + 1))[:length]
