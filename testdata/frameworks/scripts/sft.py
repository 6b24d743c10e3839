"""TRL's SFTTrainer as it comes, on rows that are tokens already; it loads a model by its name in fp32."""

import torch
from datasets import Dataset
from model import ROWS, model
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

words = Tokenizer(models.WordLevel(vocab={"<pad>": 0, "</s>": 1}, unk_token="<pad>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="</s>")
arguments = SFTConfig(output_dir="out", max_steps=3, report_to=[], save_strategy="no")
SFTTrainer(
    model=model(torch.float32), args=arguments, train_dataset=Dataset.from_list(ROWS), processing_class=tokenizer
).train()
