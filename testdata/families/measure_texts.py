#!/usr/bin/env python3
"""Measures text models that only stand within multimodal ones: `AutoModelForCausalLM` gets their classes, all else is measure_torch.py's.

    python testdata/families/measure_texts.py --stub --lib libtonnage_phantom.so --cases testdata/families/mistral4_cases.json --out out.json

A text model without a class for language models (Qwen3-VL's) is measured with Qwen3's head on it.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "rehearse", "reference"))
import measure_torch


def register():
    from torch import nn
    from transformers import AutoModelForCausalLM
    from transformers.models.mistral4.modeling_mistral4 import Mistral4Config, Mistral4ForCausalLM
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeForCausalLM
    from transformers.models.qwen3_vl_moe.modeling_qwen3_vl_moe import Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel

    class Qwen3VLMoeTextForCausalLM(Qwen3MoeForCausalLM):
        config_class = Qwen3VLMoeTextConfig
        # By its file a class is known to have experts in forms that can be chosen.
        __module__ = Qwen3VLMoeTextModel.__module__

        def __init__(self, config):
            super(Qwen3MoeForCausalLM, self).__init__(config)
            self.model = Qwen3VLMoeTextModel(config)
            self.vocab_size = config.vocab_size
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            config.output_router_logits = False
            self.router_aux_loss_coef = 0.001
            self.num_experts = config.num_experts
            self.num_experts_per_tok = config.num_experts_per_tok
            self.post_init()

    # `register` passes over classes of transformers itself.
    known = AutoModelForCausalLM._model_mapping._extra_content
    known.update({Mistral4Config: Mistral4ForCausalLM, Qwen3VLMoeTextConfig: Qwen3VLMoeTextForCausalLM})


build = measure_torch.build


def registered_build(case):
    register()
    return build(case)


measure_torch.build = registered_build

if __name__ == "__main__":
    measure_torch.main()
