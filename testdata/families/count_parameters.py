#!/usr/bin/env python3
"""Counts the parameters of a default config and of three odd ones of each family with transformers itself, on the meta device.

    python testdata/families/count_parameters.py > testdata/families/parameters.json

Sizes are drawn where nothing is round: odd vocabularies, few heads, every switch once. crates/core/tests/parameters.rs counts the same.
"""
import copy
import json
import sys

import torch
import transformers
from transformers import (AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForImageTextToText, AutoModelForMaskedLM,
                          AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoModelForSpeechSeq2Seq, AutoModelForTokenClassification)

ODD = dict(vocab_size=1009, hidden_size=144, intermediate_size=331, num_hidden_layers=3, num_attention_heads=6, max_position_embeddings=77)
GROUPED = dict(ODD, num_key_value_heads=2)
NEO = dict(ODD, rotary_pct=0.5)
CODE = dict(vocab_size=1009, n_embd=144, n_inner=331, n_layer=3, n_head=6, n_positions=77)
LATENT = dict(ODD, num_key_value_heads=6, q_lora_rank=50, kv_lora_rank=34, qk_nope_head_dim=18, qk_rope_head_dim=10, v_head_dim=22)
#: Rows of grouped products begin at multiples of 16 bytes.
ROUTED = dict(moe_intermediate_size=56, n_routed_experts=12, num_experts_per_tok=3, n_group=3, topk_group=2)
FEW = dict(intermediate_size=328, num_experts=7, num_experts_per_tok=3)
#: Layers with the gated delta rule; hidden sizes of grouped products begin at multiples of 16 bytes.
DELTA = dict(head_dim=24, num_hidden_layers=5, linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=14)
SPARSE = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=56, shared_expert_intermediate_size=33)
SHARED = dict(decoder_sparse_step=2, moe_intermediate_size=56, shared_expert_intermediate_size=33, num_experts=7, num_experts_per_tok=3)
#: Of DeepSeek-V2, whose class cannot run by its defaults: no experts of a token, and rows of experts that no grouped product takes.
RUNS = dict(num_experts_per_tok=6, experts_implementation="batched_mm")
CHUNKED = dict(GROUPED, head_dim=24, intermediate_size_mlp=57, num_local_experts=5)
#: Layers with a short convolution, and state spaces.
CONVOLVED = dict(GROUPED, layer_types=["conv", "full_attention", "conv"])
SHORT = dict(CONVOLVED, num_dense_layers=1, moe_intermediate_size=56, num_experts=7, num_experts_per_tok=3)
STATES = dict(num_heads=6, head_dim=48, n_groups=3, state_size=10)
SPACES = dict(GROUPED, mamba_n_heads=6, mamba_d_head=48, mamba_n_groups=3, mamba_d_state=10)
BLOCKS = dict(GROUPED, head_dim=24, hybrid_override_pattern="M-M*-", mamba_num_heads=6, mamba_head_dim=48, n_groups=3, ssm_state_size=10)
PLACED = dict(SPACES, layer_types=["mamba", "attention", "mamba"], shared_intermediate_size=57)
JAMBA = dict(GROUPED, attn_layer_period=3, attn_layer_offset=1, mamba_d_state=10, **FEW)
LOOPED = dict(ODD, state_size=10)
SHARING = dict(ODD, num_hidden_layers=4, layers_block_type=["hybrid", "mamba", "hybrid", "hybrid"], n_mamba_heads=6, mamba_d_state=10, mamba_ngroups=3, adapter_rank=7)
ENCODERS = {"bert", "deberta-v2", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta"}
IMAGES = {"dinov2", "vit"}
ENCODER_DECODERS = {"bart", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "whisper"}
DISTILLED = dict(vocab_size=1009, dim=144, hidden_dim=331, n_layers=3, n_heads=6, max_position_embeddings=77)
SEQUENCES, TOKENS = dict(architectures=["ForSequenceClassification"], num_labels=5), dict(architectures=["ForTokenClassification"], num_labels=11)
PIXELS = dict(hidden_size=144, num_hidden_layers=3, num_attention_heads=6, image_size=70, patch_size=14)
#: Token ids of the config class lie beyond so few tokens.
ROTARY = dict(ODD, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
DISTANT = dict(ODD, relative_attention=True, position_buckets=32, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"],
               position_biased_input=False)
FIVE = dict(vocab_size=1009, d_model=144, d_ff=331, d_kv=22, num_layers=3, num_heads=7)
HALVES = dict(vocab_size=1009, d_model=144, encoder_layers=3, decoder_layers=2, encoder_attention_heads=6, decoder_attention_heads=9, encoder_ffn_dim=331,
              decoder_ffn_dim=77, max_position_embeddings=77, encoder_layerdrop=0.0, decoder_layerdrop=0.0)
HEARD = dict(HALVES, max_source_positions=33, max_target_positions=21, pad_token_id=7)
APART = dict(HALVES, tie_word_embeddings=False)
MIXED = ["sliding_attention", "full_attention"] * 2
UNIFIED = dict(GROUPED, head_dim=24, global_head_dim=40)
WIDE = dict(UNIFIED, hidden_size_per_layer_input=10, vocab_size_per_layer_input=900)
NESTED = dict(GROUPED, head_dim=24, num_hidden_layers=4, layer_types=MIXED, num_kv_shared_layers=2, laurel_rank=7, hidden_size_per_layer_input=10,
              vocab_size_per_layer_input=900)
FAMILIES = {
    "bamba": [SPACES, dict(SPACES, attn_layer_indices=[1], attention_bias=True, mamba_conv_bias=False), dict(SPACES, attn_layer_indices=[0, 2], mamba_proj_bias=True, tie_word_embeddings=True)],
    "bart": [HALVES, APART, dict(HALVES, encoder_layers=1, scale_embedding=True)],
    "m2m_100": [HALVES, APART, dict(HALVES, max_position_embeddings=1)],
    "marian": [dict(HALVES, pad_token_id=5), dict(APART, pad_token_id=5), dict(HALVES, pad_token_id=5, decoder_layers=4)],
    "mbart": [HALVES, APART, dict(HALVES, decoder_layers=1)],
    "mt5": [FIVE, dict(FIVE, feed_forward_proj="relu", num_decoder_layers=5), dict(FIVE, relative_attention_num_buckets=10)],
    "pegasus": [HALVES, APART, dict(HALVES, decoder_layers=3)],
    "t5": [FIVE, dict(FIVE, feed_forward_proj="gated-silu", num_decoder_layers=1), dict(FIVE, relative_attention_num_buckets=10, d_kv=3)],
    "whisper": [HEARD, dict(HEARD, tie_word_embeddings=False), dict(HEARD, num_mel_bins=17)],
    "bert": [ODD, dict(ODD, **SEQUENCES), dict(ODD, **TOKENS, type_vocab_size=3), dict(ODD, tie_word_embeddings=False)],
    "cohere": [GROUPED, dict(ODD, use_qk_norm=True), dict(GROUPED, attention_bias=True, tie_word_embeddings=False)],
    "cohere2": [GROUPED, dict(ODD, sliding_window=16), dict(GROUPED, attention_bias=True, tie_word_embeddings=False)],
    "deberta-v2": [DISTANT, dict(DISTANT, **SEQUENCES, share_att_key=False, position_biased_input=True), dict(DISTANT, **TOKENS, type_vocab_size=3, position_buckets=-1),
                   dict(DISTANT, tie_word_embeddings=False, norm_rel_ebd="none", pos_att_type="c2p", share_att_key=False)],
    "deepseek_v2": [RUNS, dict(LATENT, **ROUTED), dict(LATENT, q_lora_rank=None, mlp_bias=True, first_k_dense_replace=1, **ROUTED),
                    dict(LATENT, attention_bias=True, tie_word_embeddings=True, n_shared_experts=3, topk_method="group_limited_greedy", **ROUTED)],
    "deepseek_v3": [dict(LATENT, **ROUTED), dict(LATENT, q_lora_rank=None, first_k_dense_replace=0, **ROUTED),
                    dict(LATENT, attention_bias=True, tie_word_embeddings=True, n_shared_experts=3, first_k_dense_replace=2, **ROUTED)],
    "dinov2": [PIXELS, dict(PIXELS, use_swiglu_ffn=True, mlp_ratio=3, num_labels=7), dict(PIXELS, use_mask_token=False, qkv_bias=False, num_channels=1)],
    "distilbert": [DISTILLED, dict(DISTILLED, **SEQUENCES), dict(DISTILLED, **TOKENS), dict(DISTILLED, tie_word_embeddings=False)],
    "electra": [dict(ODD, embedding_size=33), dict(ODD, **SEQUENCES, embedding_size=144), dict(ODD, **TOKENS, type_vocab_size=3),
                dict(ODD, tie_word_embeddings=False, embedding_size=48)],
    "falcon_h1": [dict(SPACES, mamba_d_ssm=288), dict(SPACES, mamba_d_ssm=None, mamba_rms_norm=True, projectors_bias=True, attention_bias=True),
                  dict(SPACES, mamba_d_ssm=288, mlp_bias=True, mamba_proj_bias=True, mamba_conv_bias=False, tie_word_embeddings=True)],
    "gemma3n_text": [NESTED, dict(NESTED, num_kv_shared_layers=0, intermediate_size=[331, 96, 64, 200], attention_bias=True),
                     dict(NESTED, altup_num_inputs=3, laurel_rank=9, tie_word_embeddings=False)],
    "gemma4_text": [dict(WIDE, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1),
                    dict(WIDE, num_hidden_layers=4, layer_types=MIXED, num_kv_shared_layers=2, use_double_wide_mlp=True, attention_bias=True),
                    dict(WIDE, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=7, top_k_experts=3, moe_intermediate_size=56,
                         tie_word_embeddings=False)],
    "gemma4_unified_text": [UNIFIED, dict(UNIFIED, attention_k_eq_v=True, num_global_key_value_heads=3), dict(UNIFIED, attention_bias=True, global_head_dim=24)],
    "glm": [dict(GROUPED, head_dim=24), dict(GROUPED, attention_bias=False), dict(ODD, num_key_value_heads=6, tie_word_embeddings=True)],
    "glm4": [dict(GROUPED, head_dim=24), dict(GROUPED, attention_bias=False), dict(ODD, num_key_value_heads=6, tie_word_embeddings=True)],
    "glm4_moe": [dict(GROUPED, head_dim=24, **ROUTED), dict(GROUPED, use_qk_norm=True, first_k_dense_replace=0, **ROUTED),
                 dict(GROUPED, attention_bias=True, tie_word_embeddings=True, n_shared_experts=3, first_k_dense_replace=2, **ROUTED)],
    "glm4_moe_lite": [dict(LATENT, **ROUTED), dict(LATENT, q_lora_rank=None, mlp_layer_types=["sparse", "dense", "sparse"], **ROUTED),
                      dict(LATENT, attention_bias=True, tie_word_embeddings=True, n_shared_experts=3, **ROUTED)],
    "gpt_bigcode": [CODE, dict(CODE, multi_query=False, tie_word_embeddings=False), dict(CODE, n_inner=None, n_head=9)],
    "gpt_neox": [NEO, dict(ODD, attention_bias=False), dict(ODD, use_parallel_residual=False, tie_word_embeddings=True)],
    "gpt_oss": [dict(GROUPED, head_dim=24, **FEW), dict(GROUPED, attention_bias=False, **FEW), dict(GROUPED, tie_word_embeddings=True, sliding_window=9, **FEW)],
    "granitemoehybrid": [dict(PLACED, num_local_experts=0), dict(PLACED, intermediate_size=56, num_local_experts=7, num_experts_per_tok=3, attention_bias=True),
                         dict(PLACED, num_local_experts=0, mamba_proj_bias=True, mamba_conv_bias=False, tie_word_embeddings=True)],
    "hunyuan_v1_dense": [dict(GROUPED, head_dim=24), dict(ODD, attention_bias=True, head_dim=40), dict(GROUPED, tie_word_embeddings=True, head_dim=24)],
    "jamba": [JAMBA, dict(JAMBA, num_experts=1, mamba_proj_bias=True, mamba_conv_bias=False),
              dict(JAMBA, expert_layer_period=3, expert_layer_offset=0, mamba_dt_rank=7, mamba_d_conv=3, mamba_expand=3, tie_word_embeddings=True)],
    "lfm2": [CONVOLVED, dict(CONVOLVED, conv_bias=True, conv_L_cache=5, block_ffn_dim_multiplier=1.3, block_multiple_of=7), dict(GROUPED, full_attn_idxs=[1], block_auto_adjust_ff_dim=False, tie_word_embeddings=False)],
    "lfm2_moe": [SHORT, dict(SHORT, num_dense_layers=0, conv_bias=True), dict(SHORT, conv_L_cache=4, use_expert_bias=False, tie_word_embeddings=False)],
    "llama4_text": [CHUNKED, dict(CHUNKED, interleave_moe_layer_step=2, attention_bias=True), dict(CHUNKED, moe_layers=[1], use_qk_norm=False, tie_word_embeddings=True)],
    "falcon_mamba": [LOOPED, dict(LOOPED, use_bias=True, use_conv_bias=False), dict(LOOPED, tie_word_embeddings=False, conv_kernel=3, time_step_rank=7)],
    "mamba": [LOOPED, dict(LOOPED, use_bias=True, use_conv_bias=False), dict(LOOPED, tie_word_embeddings=False, conv_kernel=3, time_step_rank=7)],
    "mamba2": [dict(ODD, **STATES), dict(ODD, **STATES, use_bias=True, use_conv_bias=False), dict(ODD, **STATES, tie_word_embeddings=True, conv_kernel=3)],
    "minimax_m2": [dict(GROUPED, head_dim=24, **FEW), dict(ODD, num_key_value_heads=3, **FEW),
                   dict(GROUPED, head_dim=10, num_local_experts=7, tie_word_embeddings=True, **FEW)],
    "mistral4": [dict(LATENT, **ROUTED), dict(LATENT, q_lora_rank=None, first_k_dense_replace=1, **ROUTED),
                 dict(LATENT, attention_bias=True, tie_word_embeddings=True, n_shared_experts=3, first_k_dense_replace=2, **ROUTED)],
    "modernbert": [ROTARY, dict(ROTARY, **SEQUENCES, classifier_bias=True, attention_bias=True), dict(ROTARY, **TOKENS, mlp_bias=True, norm_bias=True),
                   dict(ROTARY, tie_word_embeddings=False, decoder_bias=False, global_attn_every_n_layers=1)],
    "nemotron": [GROUPED, dict(ODD, num_key_value_heads=6, attention_bias=True, head_dim=40), dict(GROUPED, mlp_bias=True, tie_word_embeddings=True)],
    "nemotron_h": [BLOCKS, dict(BLOCKS, use_bias=True, mlp_bias=True, use_conv_bias=False), dict(BLOCKS, hybrid_override_pattern="M*-", tie_word_embeddings=False, conv_kernel=3)],
    "olmo": [GROUPED, dict(ODD, clip_qkv=8.0), dict(GROUPED, attention_bias=True, tie_word_embeddings=True)],
    "olmo2": [GROUPED, dict(ODD, num_hidden_layers=1), dict(GROUPED, attention_bias=True, tie_word_embeddings=True)],
    "olmo3": [GROUPED, dict(ODD, num_hidden_layers=5), dict(GROUPED, attention_bias=True, tie_word_embeddings=True)],
    "olmoe": [dict(GROUPED, **FEW), dict(ODD, clip_qkv=8.0, **FEW), dict(GROUPED, attention_bias=True, tie_word_embeddings=True, **FEW)],
    "opt": [dict(ODD, ffn_dim=331), dict(ODD, ffn_dim=64, do_layer_norm_before=False, word_embed_proj_dim=56),
            dict(ODD, enable_bias=False, tie_word_embeddings=False)],
    "phi": [GROUPED, dict(ODD, qk_layernorm=True), dict(GROUPED, partial_rotary_factor=0.75)],
    "qwen2_moe": [dict(GROUPED, **SHARED), dict(GROUPED, qkv_bias=False, mlp_only_layers=[1], **SHARED), dict(ODD, num_key_value_heads=6, tie_word_embeddings=True, **SHARED)],
    "qwen3_5_moe_text": [dict(GROUPED, **DELTA, **SPARSE), dict(ODD, num_key_value_heads=6, **DELTA, **SPARSE, attention_bias=True),
                         dict(GROUPED, **DELTA, **SPARSE, tie_word_embeddings=True, full_attention_interval=3)],
    "qwen3_5_text": [dict(GROUPED, **DELTA), dict(GROUPED, **DELTA, linear_conv_kernel_dim=3, attention_bias=True),
                     dict(ODD, num_key_value_heads=6, linear_key_head_dim=20, tie_word_embeddings=True)],
    "qwen3_next": [dict(GROUPED, **DELTA, **SPARSE), dict(GROUPED, **DELTA, **SPARSE, mlp_only_layers=[1], attention_bias=True),
                   dict(GROUPED, **DELTA, **SPARSE, decoder_sparse_step=2, tie_word_embeddings=True)],
    "roberta": [ODD, dict(ODD, **SEQUENCES), dict(ODD, **TOKENS, type_vocab_size=1), dict(ODD, tie_word_embeddings=False)],
    "stablelm": [GROUPED, dict(GROUPED, use_qkv_bias=True), dict(GROUPED, use_parallel_residual=True, tie_word_embeddings=True)],
    "starcoder2": [GROUPED, dict(GROUPED, use_bias=False), dict(GROUPED, tie_word_embeddings=False, sliding_window=16)],
    "vit": [PIXELS, dict(PIXELS, image_size=[50, 88], patch_size=[7, 11], num_labels=37, intermediate_size=331), dict(PIXELS, qkv_bias=False, num_channels=1)],
    "xlm-roberta": [ODD, dict(ODD, **SEQUENCES), dict(ODD, **TOKENS)],
    "zamba2": [SHARING, dict(SHARING, num_mem_blocks=2, use_shared_attention_adapter=True, add_bias_linear=True),
               dict(SHARING, num_key_value_heads=2, tie_word_embeddings=False, mamba_d_conv=3, use_mem_rope=True)],
}

#: What a config class cannot do without, though it has no default.
NEEDED = {"hunyuan_v1_dense": dict(head_dim=128), "nemotron": dict(num_key_value_heads=8)}


#: Multimodal models are counted whole: their odd configs have an odd tower in front of an odd language model.
TEXT = dict(ODD, model_type="llama", pad_token_id=None)
CLIP = dict(PIXELS, intermediate_size=331)
MROPE = dict(GROUPED, pad_token_id=None, rope_parameters={"rope_type": "default", "mrope_section": [4, 4, 4]})
SIGLIP = dict(CLIP, vision_use_head=False)
LOCAL = dict(GROUPED, head_dim=24, pad_token_id=None)
DEEP = dict(hidden_size=96, intermediate_size=131, depth=3, num_heads=4, out_hidden_size=144, deepstack_visual_indexes=[0, 2])
SCALED = dict(hidden_size=96, intermediate_size=131, num_hidden_layers=3, num_attention_heads=4, image_size=[56, 56])
WINDOWS = dict(hidden_size=96, intermediate_size=131, depth=3, num_heads=4, out_hidden_size=144)
TOWERS = {
    "gemma3": [dict(text_config=LOCAL, vision_config=SIGLIP, mm_tokens_per_image=25),
               dict(text_config=dict(LOCAL, attention_bias=True), vision_config=dict(SIGLIP, num_channels=1, patch_size=7), mm_tokens_per_image=4),
               dict(text_config=LOCAL, vision_config=SIGLIP, mm_tokens_per_image=1, tie_word_embeddings=False)],
    "internvl": [dict(text_config=dict(LOCAL, model_type="qwen3"), vision_config=SCALED),
                 dict(text_config=dict(GROUPED, model_type="qwen2", pad_token_id=None), vision_config=dict(SCALED, attention_bias=True, use_mask_token=True), tie_word_embeddings=False),
                 dict(text_config=TEXT, vision_config=dict(SCALED, use_mean_pooling=False, num_channels=1), downsample_ratio=0.25)],
    "paligemma": [dict(text_config=dict(LOCAL, model_type="gemma"), vision_config=SIGLIP, projection_dim=144),
                  dict(text_config=dict(LOCAL, model_type="gemma2"), vision_config=dict(SIGLIP, num_channels=1), projection_dim=144),
                  dict(text_config=dict(LOCAL, model_type="gemma", attention_bias=True), vision_config=dict(SIGLIP, patch_size=10), projection_dim=144,
                       tie_word_embeddings=False)],
    "qwen3_vl": [dict(text_config=LOCAL, vision_config=DEEP), dict(text_config=LOCAL, vision_config=dict(DEEP, num_position_embeddings=49, patch_size=10)),
                 dict(text_config=dict(LOCAL, attention_bias=True), vision_config=dict(DEEP, spatial_merge_size=1, deepstack_visual_indexes=[1]), tie_word_embeddings=True)],
    "qwen3_vl_moe": [dict(text_config=dict(LOCAL, moe_intermediate_size=56, **FEW), vision_config=DEEP),
                     dict(text_config=dict(LOCAL, moe_intermediate_size=24, decoder_sparse_step=2, **FEW), vision_config=dict(DEEP, deepstack_visual_indexes=[])),
                     dict(text_config=dict(LOCAL, moe_intermediate_size=56, mlp_only_layers=[1], **FEW), vision_config=DEEP, tie_word_embeddings=True)],
    "llava": [dict(text_config=TEXT, vision_config=CLIP),
              dict(text_config=dict(GROUPED, model_type="qwen2", pad_token_id=None), vision_config=dict(CLIP, num_channels=1), multimodal_projector_bias=False),
              dict(text_config=TEXT, vision_config=CLIP, vision_feature_layer=[-2, -1], tie_word_embeddings=True)],
    "qwen2_5_vl": [dict(text_config=MROPE, vision_config=WINDOWS), dict(text_config=MROPE, vision_config=dict(WINDOWS, patch_size=10, temporal_patch_size=3)),
                   dict(text_config=MROPE, vision_config=dict(WINDOWS, spatial_merge_size=1, in_channels=1), tie_word_embeddings=True)],
    "qwen2_vl": [dict(text_config=MROPE, vision_config=dict(depth=3, embed_dim=96, num_heads=4, hidden_size=144)),
                 dict(text_config=MROPE, vision_config=dict(depth=2, embed_dim=96, num_heads=2, hidden_size=144, mlp_ratio=3, patch_size=10)),
                 dict(text_config=MROPE, vision_config=dict(depth=3, embed_dim=96, num_heads=4, hidden_size=144, spatial_merge_size=1), tie_word_embeddings=True)],
}
#: Images and their texts; what OpenAI's configs have beside a tower's own config holds in its place.
PAIRS = {
    "clip": [dict(text_config=ODD, vision_config=CLIP, projection_dim=50), dict(text_config=dict(ODD, hidden_size=96), vision_config=dict(CLIP, num_channels=1, patch_size=11)),
             dict(text_config=ODD, vision_config=dict(CLIP, num_hidden_layers=1), text_config_dict=dict(ODD, vocab_size=907))],
    "siglip": [dict(text_config=ODD, vision_config=CLIP),
               dict(text_config=dict(ODD, hidden_size=96, projection_size=144), vision_config=dict(CLIP, num_channels=1, patch_size=11)),
               dict(text_config=dict(ODD, max_position_embeddings=5), vision_config=dict(CLIP, num_hidden_layers=1))],
}
#: Models of diffusers, by their classes.
DENOISERS = {
    "FluxTransformer2DModel": [
        dict(num_layers=1, num_single_layers=3, attention_head_dim=24, num_attention_heads=5, in_channels=28, joint_attention_dim=72,
             pooled_projection_dim=50, axes_dims_rope=[4, 8, 12], guidance_embeds=True),
        dict(num_layers=2, num_single_layers=1, attention_head_dim=16, num_attention_heads=3, in_channels=16, axes_dims_rope=[4, 6, 6]),
        dict(num_layers=3, num_single_layers=2, guidance_embeds=True, pooled_projection_dim=33)],
    "SD3Transformer2DModel": [
        dict(num_layers=2, attention_head_dim=24, num_attention_heads=5, caption_projection_dim=120, in_channels=6, out_channels=6,
             joint_attention_dim=72, pooled_projection_dim=50, pos_embed_max_size=30),
        dict(num_layers=3, qk_norm="rms_norm", dual_attention_layers=[0, 2]),
        dict(num_layers=1, qk_norm="rms_norm", patch_size=4, in_channels=4, out_channels=4)],
    "UNet2DConditionModel": [
        dict(block_out_channels=[48, 96, 144], down_block_types=["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
             up_block_types=["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"], attention_head_dim=6, norm_num_groups=8,
             layers_per_block=1, cross_attention_dim=72),
        dict(block_out_channels=[64, 128], down_block_types=["DownBlock2D", "CrossAttnDownBlock2D"],
             up_block_types=["CrossAttnUpBlock2D", "UpBlock2D"], cross_attention_dim=96, attention_head_dim=[2, 4],
             transformer_layers_per_block=[1, 2], norm_num_groups=16, use_linear_projection=True, addition_embed_type="text_time",
             addition_time_embed_dim=16, projection_class_embeddings_input_dim=144),
        dict(block_out_channels=[32, 64, 64, 96], in_channels=9, out_channels=9, attention_head_dim=[2, 4, 8, 8], cross_attention_dim=40)],
}

#: SigLIP's class has a head by default, which no published model that stands in front of a Gemma has, and images of fewer patches than
#: Gemma 3's tokens.
DEFAULT_TOWERS = {"gemma3": dict(vision_config=dict(vision_use_head=False, image_size=896, patch_size=14))}


def kind(model_type, fields):
    """What builds it: an encoder's head is that of the class that its config names."""
    named = fields.get("architectures", [""])[0]
    if named.endswith("SequenceClassification"):
        return AutoModelForSequenceClassification
    if named.endswith("TokenClassification"):
        return AutoModelForTokenClassification
    if model_type == "whisper":
        return AutoModelForSpeechSeq2Seq
    if model_type in ENCODER_DECODERS:
        return AutoModelForSeq2SeqLM
    if model_type in IMAGES:
        return AutoModelForImageClassification
    if model_type in PAIRS:
        return AutoModel
    if model_type in TOWERS:
        return AutoModelForImageTextToText
    if model_type == "mistral4":  # Stands within a multimodal model alone.
        from transformers.models.mistral4.modeling_mistral4 import Mistral4ForCausalLM
        return Mistral4ForCausalLM
    return AutoModelForMaskedLM if model_type in ENCODERS else AutoModelForCausalLM


def count(model_type, fields):
    with torch.device("meta"):
        if model_type in DENOISERS:
            import diffusers
            model = getattr(diffusers, model_type)(**fields)
            return sum(parameter.numel() for parameter in model.parameters())
        build = getattr(kind(model_type, fields), "from_config", kind(model_type, fields))
        model = build(AutoConfig.for_model(model_type, **fields))
    return sum(parameter.numel() for parameter in model.parameters())


def rows():
    for model_type, odd in FAMILIES.items():
        padding = {} if model_type in ENCODERS | IMAGES | ENCODER_DECODERS else {"pad_token_id": None}
        first = [] if odd[0] in (RUNS, SHORT, BLOCKS) else [NEEDED.get(model_type, {})]
        for fields in [*first, *[{**fields, **padding} for fields in odd]]:
            yield {"model_type": model_type, "config": fields, "parameters": count(model_type, fields)}
    for model_type, odd in TOWERS.items():
        for fields in [{"text_config": {}, **DEFAULT_TOWERS.get(model_type, {})}, *odd]:
            yield {"model_type": model_type, "config": fields, "parameters": count(model_type, copy.deepcopy(fields))}
    for model_type, odd in [*PAIRS.items(), *DENOISERS.items()]:
        for fields in [{}, *odd]:
            yield {"model_type": model_type, "config": fields, "parameters": count(model_type, copy.deepcopy(fields))}


def main():
    lines = ",\n".join("  " + json.dumps(row) for row in rows())
    sys.stdout.write(f'{{"transformers": "{transformers.__version__}", "models": [\n{lines}\n]}}\n')


main()
