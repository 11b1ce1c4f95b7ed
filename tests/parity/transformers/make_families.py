"""Writes tests/golden/families/NAME.tar.xz: tiny random models of families, and the logits that transformers computes in float64
from exactly the stored weights; and the same weights as GGUF, under the names that the gguf package has for them.

    build/parity-venv/bin/python tests/parity/transformers/make_families.py [NAME...]

golden.bin: tests/golden/README.md.
"""
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy
import internlm2_layout
import torch
import transformers
from deepseek_layout import rewrite
from equal_scores import first_are_taken
from safetensors import safe_open

OUT = Path(__file__).parents[2] / "golden/families"
TOKENS = 64
BASE = dict(vocab_size=192, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=512, initializer_range=0.08)
WINDOWS = dict(num_hidden_layers=4, sliding_window=24)

PHIMOE = dict(num_local_experts=6, intermediate_size=48, attention_bias=True, lm_head_bias=True, num_hidden_layers=2,
              rope_parameters=dict(
                  rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=512, short_mscale=1.2, long_mscale=1.2,
                  short_factor=[1.0, 1.1, 1.2, 1.4, 1.5, 1.7, 2.0, 2.2], long_factor=[1.0, 1.5, 2.5, 4.0, 5.0, 6.0, 7.0, 8.0]))

# name: (configuration class, what differs)
MODELS = {
    "mixtral": ("MixtralConfig", dict(num_local_experts=4, num_experts_per_tok=2, num_hidden_layers=2)),
    "internlm3": ("InternLM3Config", dict(head_dim=16)),
    "qwen2_moe": ("Qwen2MoeConfig", dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48,
                                         shared_expert_intermediate_size=80)),
    "starcoder2": ("Starcoder2Config", dict()),
    "cohere": ("CohereConfig", dict(logit_scale=0.25)),
    "cohere2": ("Cohere2Config", dict(logit_scale=0.25, **WINDOWS)),
    "stablelm": ("StableLmConfig", dict(use_qkv_bias=True, partial_rotary_factor=0.25)),
    "cohere_norms": ("CohereConfig", dict(logit_scale=0.25, use_qk_norm=True)),
    "stablelm_norms": ("StableLmConfig", dict(use_qkv_bias=True, partial_rotary_factor=0.25, qk_layernorm=True)),
    "exaone4": ("Exaone4Config", dict(**WINDOWS)),
    "ernie4_5": ("Ernie4_5Config", dict(head_dim=24)),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(moe_num_experts=6, moe_k=3, moe_intermediate_size=48, moe_num_shared_experts=2,
                                                moe_layer_start_index=1)),
    # Positions past the length at which queries begin to grow.
    "ministral3_far": ("Ministral3Config", dict(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000000.0, factor=16.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0,
        mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.4))),
    "llama4_far": ("Llama4TextConfig", dict(num_hidden_layers=4, head_dim=16, intermediate_size_mlp=96, intermediate_size=48,
                                            num_local_experts=3, attention_chunk_size=24, floor_scale=8, attn_scale=0.4,
                                            interleave_moe_layer_step=2, no_rope_layers=[1, 0, 1, 0])),
    "apertus": ("ApertusConfig", dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=12000000.0, factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0,
        high_freq_factor=4.0))),
    # Both kinds of layers; decays of a file are of one.
    "kimi_linear_mixed": ("KimiLinearConfig", dict(
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
        num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16,
        qk_rope_head_dim=8, v_head_dim=16, linear_head_dim=16, linear_num_heads=4, num_local_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=48, n_shared_experts=2, rms_norm_eps=1e-5)),
    # Layers that take the choice of the one before them.
    "glm_moe_dsa_shared": ("GlmMoeDsaConfig", dict(
        num_hidden_layers=4, indexer_types=["full", "shared", "full", "shared"], num_key_value_heads=4, q_lora_rank=24,
        kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, index_topk=20, index_n_heads=4,
        index_head_dim=16, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=48, first_k_dense_replace=1)),
    "deepseek_v32_first": ("DeepseekV32Config", dict(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        index_topk=20, index_n_heads=4, index_head_dim=16, n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2,
        moe_intermediate_size=48, first_k_dense_replace=1)),
    # Keys that are values, other heads without a window, no inputs of the layers' own.
    "gemma4_wide": ("Gemma4TextConfig", dict(
        num_hidden_layers=4, head_dim=16, global_head_dim=32, num_global_key_value_heads=1, attention_k_eq_v=True,
        hidden_size_per_layer_input=0, sliding_window=24,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"])),
    # A router with a norm of its own, experts beside the dense part.
    "gemma4_experts": ("Gemma4TextConfig", dict(
        num_hidden_layers=3, head_dim=16, global_head_dim=32, hidden_size_per_layer_input=0, sliding_window=24, enable_moe_block=True,
        num_experts=6, top_k_experts=2, moe_intermediate_size=48,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    # The same beside inputs of each layer's own.
    "gemma4_experts_inputs": ("Gemma4TextConfig", dict(
        num_hidden_layers=3, head_dim=16, global_head_dim=32, hidden_size_per_layer_input=8, vocab_size_per_layer_input=192,
        sliding_window=24, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=48,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"])),
    # All three kinds of attention and both of routing, windows that do not divide pages, a limit that limits.
    "deepseek_v4_mixed": ("DeepseekV4Config", dict(
        num_hidden_layers=5, num_key_value_heads=1, head_dim=24, q_lora_rank=20, o_groups=2, o_lora_rank=16, sliding_window=10,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                     "compressed_sparse_attention", "sliding_attention"],
        compress_rates=dict(compressed_sparse_attention=3, heavily_compressed_attention=5),
        mlp_layer_types=["hash_moe", "moe", "hash_moe", "moe", "moe"], hc_mult=3, hc_sinkhorn_iters=4, index_n_heads=3,
        index_head_dim=12, index_topk=6, n_routed_experts=6, num_experts_per_tok=2, intermediate_size=32, swiglu_limit=0.25,
        partial_rotary_factor=0.25, rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    # As DeepSeek stores them; what of V4 lies 128 positions back.
    "deepseek_v3_fp8": ("DeepseekV3Config", dict(
        num_key_value_heads=4, q_lora_rank=40, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2, moe_intermediate_size=48, first_k_dense_replace=1)),
    "deepseek_v4_own": ("DeepseekV4Config", dict(
        num_hidden_layers=4, num_key_value_heads=1, head_dim=24, q_lora_rank=40, o_groups=2, o_lora_rank=20, sliding_window=10,
        layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
                     "compressed_sparse_attention"],
        mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"], hc_mult=3, hc_sinkhorn_iters=4, index_n_heads=3, index_head_dim=16,
        index_topk=6, n_routed_experts=4, num_experts_per_tok=2, intermediate_size=32, swiglu_limit=0.25,
        partial_rotary_factor=0.25, rope_parameters=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16))),
    # Experts between two projections, the shared one beside them.
    "nemotron_h_latent": ("NemotronHConfig", dict(
        num_hidden_layers=5, layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "moe"], head_dim=16,
        mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=16, n_groups=2, conv_kernel=4, chunk_size=16, n_routed_experts=6,
        num_experts_per_tok=3, moe_intermediate_size=48, moe_latent_size=32, n_shared_experts=1,
        moe_shared_expert_intermediate_size=80, routed_scaling_factor=2.5)),
    # GLM 4.7 Flash: DeepSeek V3's layers.
    "glm4_moe_lite": ("Glm4MoeLiteConfig", dict(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32,
        n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=48, n_shared_experts=1)),
    # Two kinds of layers in an order that is not the class's own.
    "mimo_v2_flash": ("MiMoV2FlashConfig", dict(
        num_hidden_layers=4, layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], head_dim=24, v_head_dim=16, sliding_window=24, n_routed_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=48)),
    "gemma": ("GemmaConfig", dict(head_dim=24)),
    "glm4": ("Glm4Config", dict(head_dim=16, pad_token_id=0)),
    "arcee": ("ArceeConfig", dict(mlp_bias=True)),
    "olmoe": ("OlmoeConfig", dict(num_experts=6, num_experts_per_tok=3, intermediate_size=48)),
    "granitemoe": ("GraniteMoeConfig", dict(num_local_experts=6, num_experts_per_tok=3, intermediate_size=48,
                                            embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.5,
                                            attention_multiplier=0.2)),
    "granitemoeshared": ("GraniteMoeSharedConfig", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=48,
                                                        shared_intermediate_size=80, residual_multiplier=0.5,
                                                        attention_multiplier=0.2, num_hidden_layers=2)),
    "hunyuan_moe": ("HunYuanMoEV1Config", dict(
        head_dim=16, num_experts=6, moe_topk=3, intermediate_size=48,
        rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0))),
    "dots1": ("Dots1Config", dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=48, n_shared_experts=2,
                                  first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5, n_group=2,
                                  topk_group=1)),
    "exaone_moe": ("ExaoneMoeConfig", dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48, num_shared_experts=2,
                                           **WINDOWS)),
    "minicpm3": ("MiniCPM3Config", dict(
        num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
        initializer_range=0.05, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=512, short_factor=[1.0, 1.1, 1.2, 1.4],
            long_factor=[1.0, 1.5, 2.5, 4.0]))),
    "gpt_neox": ("GPTNeoXConfig", dict(num_key_value_heads=None)),
    "gpt_neox_in_turn": ("GPTNeoXConfig", dict(num_key_value_heads=None, use_parallel_residual=False, num_hidden_layers=2)),
    "internlm2": ("LlamaConfig", dict()),
    "falcon": ("FalconConfig", dict(num_key_value_heads=None, intermediate_size=None)),
    "falcon_new": ("FalconConfig", dict(num_key_value_heads=None, intermediate_size=None, new_decoder_architecture=True,
                                        num_kv_heads=2, bias=True, ffn_hidden_size=96)),
    "falcon_in_turn": ("FalconConfig", dict(num_key_value_heads=None, intermediate_size=None, multi_query=False, parallel_attn=False,
                                            num_hidden_layers=2)),
    "gpt2": ("GPT2Config", dict(
        hidden_size=None, intermediate_size=None, num_hidden_layers=None, num_attention_heads=None, num_key_value_heads=None,
        max_position_embeddings=None, n_embd=64, n_layer=3, n_head=4, n_positions=512, n_inner=96, bos_token_id=1,
        eos_token_id=2)),
    "phi": ("PhiConfig", dict(num_key_value_heads=None)),
    "phimoe": ("PhimoeConfig", PHIMOE),
    # A mixer that reaches far: several experts are near the best. GGUF has no key for it.
    "phimoe_reaches": ("PhimoeConfig", dict(router_jitter_noise=0.2, **PHIMOE)),
    "hunyuan": ("HunYuanDenseV1Config", dict(head_dim=16, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0,
                                                                              factor=1.0))),
}


# Side of the blocks of FP8, which DeepSeek's own files have 128 of; positions where it is not TOKENS.
BLOCKS = {"deepseek_v3_fp8": 8, "deepseek_v4_own": 8}
POSITIONS = {"deepseek_v4_own": 160}

# Of those whose first draw has two experts or entries so near to each other for some token that rounding exchanges them, in the
# library's own float64 run too: K-EXAONE's at scores of 0.485348 and 0.485344 once k and v are in F16, OLMoE's at 0.14074 and 0.14067
# once what matrices read has eleven bits.
SEEDS = {"ernie4_5_moe": 1, "exaone_moe": 1, "olmoe": 1, "mixtral": 2, "gemma4_experts": 1, "gemma4_experts_inputs": 4, "deepseek_v4_mixed": 1}

# name: (architecture, whether q and k rows are permuted, keys beside those that all have)
GGUF = {
    "mixtral": ("LLAMA", True, {"expert_count": 4, "expert_used_count": 2}),
    "internlm3": ("LLAMA", True, {"attention.key_length": 16, "attention.value_length": 16}),
    "qwen2_moe": ("QWEN2MOE", False, {"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 48,
                                      "expert_shared_feed_forward_length": 80}),
    "starcoder2": ("STARCODER2", False, {}),
    "cohere": ("COMMAND_R", False, {"logit_scale": 0.25}),
    "cohere2": ("COHERE2", False, {"logit_scale": 0.25, "attention.sliding_window": 24}),
    "stablelm": ("STABLELM", False, {"rope.dimension_count": 4}),
    "cohere_norms": ("COMMAND_R", False, {"logit_scale": 0.25}),
    "stablelm_norms": ("STABLELM", False, {"rope.dimension_count": 4}),
    "exaone4": ("EXAONE4", False, {"attention.sliding_window": 24, "attention.sliding_window_pattern": [True, True, True, False]}),
    "apertus": ("APERTUS", False, {}),
    "ernie4_5": ("ERNIE4_5", False, {"attention.key_length": 24, "attention.value_length": 24}),
    "ernie4_5_moe": ("ERNIE4_5_MOE", False, {"expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 48,
                                             "expert_shared_feed_forward_length": 96, "leading_dense_block_count": 1,
                                             "interleave_moe_layer_step": 1}),
    "gemma4_experts": ("GEMMA4", False, {
        "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16, "attention.value_length_swa": 16,
        "attention.sliding_window": 24, "attention.sliding_window_pattern": [True, True, False], "expert_count": 6,
        "expert_used_count": 2, "expert_feed_forward_length": 48, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
        "rope.dimension_count": 32, "rope.dimension_count_swa": 16}),
    "kimi_linear_mixed": ("KIMI_LINEAR", False, {
        "attention.head_count_kv": [0, 1, 0, 1], "attention.key_length": 40, "attention.value_length": 8,
        "attention.key_length_mla": 24, "attention.value_length_mla": 16, "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
        "rope.freq_base": 10000.0, "ssm.conv_kernel": 4, "kda.head_dim": 16, "expert_count": 6, "expert_used_count": 2,
        "expert_feed_forward_length": 48, "expert_shared_count": 2, "expert_group_used_count": 1, "expert_gating_func": 2,
        "expert_weights_scale": 2.446, "leading_dense_block_count": 1}),
    "gemma4_experts_inputs": ("GEMMA4", False, {
        "attention.key_length": 32, "attention.value_length": 32, "attention.key_length_swa": 16, "attention.value_length_swa": 16,
        "attention.sliding_window": 24, "attention.sliding_window_pattern": [True, True, False], "expert_count": 6,
        "expert_used_count": 2, "expert_feed_forward_length": 48, "rope.freq_base": 1000000.0, "rope.freq_base_swa": 10000.0,
        "rope.dimension_count": 32, "rope.dimension_count_swa": 16, "embedding_length_per_layer_input": 8}),
    "nemotron_h_latent": ("NEMOTRON_H_MOE", False, {
        "feed_forward_length": [0, 48, 0, 96, 48], "attention.head_count_kv": [0, 0, 2, 0, 0], "attention.key_length": 16,
        "attention.value_length": 16, "ssm.conv_kernel": 4, "ssm.state_size": 16, "ssm.group_count": 2, "ssm.inner_size": 128,
        "ssm.time_step_rank": 8, "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 48,
        "expert_shared_count": 1, "expert_shared_feed_forward_length": 80, "expert_group_count": 1, "expert_group_used_count": 1,
        "expert_weights_norm": True, "expert_weights_scale": 2.5, "moe_latent_size": 32}),
    "glm4_moe_lite": ("DEEPSEEK2", False, {
        "attention.head_count_kv": 1, "attention.key_length": 40, "attention.value_length": 32, "attention.key_length_mla": 32,
        "attention.value_length_mla": 32, "attention.q_lora_rank": 24, "attention.kv_lora_rank": 32, "rope.dimension_count": 8,
        "leading_dense_block_count": 1, "expert_count": 6, "expert_used_count": 3, "expert_feed_forward_length": 48,
        "expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_scale": 1.8, "expert_weights_norm": True}),
    "mimo_v2_flash": ("MIMO2", False, {
        "attention.head_count_kv": [2, 4, 2, 4], "attention.key_length": 24, "attention.value_length": 16,
        "attention.sliding_window": 24, "attention.sliding_window_pattern": [0, 1, 0, 1], "attention.value_scale": 0.707,
        "rope.freq_base": 5000000.0, "rope.freq_base_swa": 10000.0, "rope.dimension_count": 8, "expert_count": 6,
        "expert_used_count": 2, "expert_feed_forward_length": 48, "expert_group_count": 1, "expert_group_used_count": 1,
        "expert_gating_func": 2, "expert_weights_norm": True}),
    "gemma": ("GEMMA", False, {"attention.key_length": 24, "attention.value_length": 24}),
    "glm4": ("GLM4", False, {"attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 8}),
    "arcee": ("ARCEE", True, {}),
    "olmoe": ("OLMOE", False, {"expert_count": 6, "expert_used_count": 3}),
    "granitemoe": ("GRANITE_MOE", True, {"expert_count": 6, "expert_used_count": 3, "attention.scale": 0.2, "embedding_scale": 3.0,
                                         "residual_scale": 0.5, "logit_scale": 2.0}),
    "granitemoeshared": ("GRANITE_MOE", True, {
        "expert_count": 4, "expert_used_count": 2, "expert_shared_feed_forward_length": 80, "attention.scale": 0.2,
        "embedding_scale": 1.0, "residual_scale": 0.5, "logit_scale": 1.0}),
    "hunyuan_moe": ("HUNYUAN_MOE", False, {
        "attention.key_length": 16, "attention.value_length": 16, "rope.freq_base": 10000.0 * 50.0 ** (16 / 14), "expert_count": 6,
        "expert_used_count": 3, "expert_feed_forward_length": 48, "expert_shared_feed_forward_length": 48,
        "expert_shared_count": 1}),
    "dots1": ("DOTS1", False, {
        "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 48, "expert_shared_count": 2,
        "expert_group_count": 2, "expert_group_used_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 1.5, "leading_dense_block_count": 1}),
    "exaone_moe": ("EXAONE_MOE", False, {
        "attention.sliding_window": 24, "attention.sliding_window_pattern": [True, True, True, False], "expert_count": 6,
        "expert_used_count": 3, "expert_feed_forward_length": 48, "expert_shared_count": 2, "expert_shared_feed_forward_length": 96,
        "expert_group_count": 1, "expert_group_used_count": 1, "expert_gating_func": 2, "expert_weights_norm": True,
        "expert_weights_scale": 2.5, "leading_dense_block_count": 1}),
    "minicpm3": ("MINICPM3", False, {"attention.q_lora_rank": 24, "attention.kv_lora_rank": 32, "attention.key_length": 24,
                                     "rope.dimension_count": 8}),
    "gpt_neox": ("GPTNEOX", False, {"rope.dimension_count": 4, "use_parallel_residual": True, "attention.head_count_kv": 4}),
    "gpt_neox_in_turn": ("GPTNEOX", False, {"rope.dimension_count": 4, "use_parallel_residual": False,
                                            "attention.head_count_kv": 4}),
    "internlm2": ("INTERNLM2", True, {}),
    "falcon": ("FALCON", False, {"attention.head_count_kv": 1, "feed_forward_length": 256}),
    "falcon_new": ("FALCON", False, {"attention.head_count_kv": 2, "feed_forward_length": 96}),
    "gpt2": ("GPT2", False, {"feed_forward_length": 96}),
    "phi": ("PHI2", False, {"rope.dimension_count": 8, "attention.head_count_kv": 4}),
    "phimoe": ("PHIMOE", False, {"expert_count": 6, "expert_used_count": 2, "rope.dimension_count": 16,
                                 "rope.scaling.original_context_length": 512, "rope.scaling.attn_factor": 1.2}),
    "hunyuan": ("HUNYUAN_DENSE", False, {"attention.key_length": 16, "attention.value_length": 16,
                                         "rope.freq_base": 10000.0 * 50.0 ** (16 / 14)}),
}


# What the gguf package knows no module for.
GGUF_NAMES = {"experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
              "router.proj.weight": "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
              "router.per_expert_scale": "ffn_down_exps.scale", "layer_scalar": "layer_output_scale.weight",
              "self_attn.sinks": "attn_sinks.weight", "self_attn.attention_sink_bias": "attn_sinks.weight",
              "self_attn.dt_bias": "ssm_dt.bias", "mixer.dt_bias": "ssm_dt.bias",
              **{f"block_sparse_moe.{part}_proj.weight": f"ffn_{part}.weight" for part in ("gate", "up", "down")}}
# Of experts, what the numbers of the package's names stand for, and what it has no names of mixers for.
EXPERT_NAMES = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps", "up_proj": "ffn_up_exps",
                "down_proj": "ffn_down_exps"}


# As pairs of neighbours turn, where those of halves did.
def permuted(rows, heads):
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


# As the converter has keys and values of latent attention apart, and the parts of a delta rule.
def attention_tensors(key, value, config):
    head, part = key.rsplit(".self_attn.", 1)
    layer = f"blk.{head.rsplit('.', 1)[1]}"
    if part == "A_log":
        return {f"{layer}.ssm_a": -numpy.exp(value.astype(numpy.float64)).astype(numpy.float32)}
    if "_conv1d." in part:
        return {f"{layer}.ssm_conv1d_{part[0]}.weight": value.reshape(1, value.shape[0], 1, value.shape[-1])}
    if part == "kv_b_proj.weight" and config.model_type != "minicpm3":
        both = value.reshape(config.num_attention_heads, -1, value.shape[1])
        keys, values = both[:, :config.qk_nope_head_dim], both[:, config.qk_nope_head_dim:]
        return {f"{layer}.attn_k_b.weight": numpy.ascontiguousarray(keys.swapaxes(1, 2)),
                f"{layer}.attn_v_b.weight": numpy.ascontiguousarray(values)}
    return {}


# As the converter has the parts of a Mamba layer that it does not store as they are.
def mamba_tensors(key, value, config):
    layer, part = f"blk.{key.split('.')[2]}", key.rsplit(".mixer.", 1)[1]
    if part == "A_log":
        return {f"{layer}.ssm_a": -numpy.exp(value.astype(numpy.float64)).astype(numpy.float32).reshape(-1, 1)}
    if part == "D":
        return {f"{layer}.ssm_d": value.reshape(-1, 1)}
    if part == "conv1d.weight":
        return {f"{layer}.ssm_conv1d.weight": value.reshape(value.shape[0], -1)}
    if part == "norm.weight":
        return {f"{layer}.ssm_norm.weight": value.reshape(config.n_groups, -1)}
    return {}


# {GGUF name: array}, the experts of a layer together.
def gguf_tensors(directory, names, config, permutes, written):
    tensors, experts = {}, {}
    with safe_open(directory / "model.safetensors", "pt") as stored:
        for key in stored.keys():
            value = stored.get_tensor(key).to(torch.float32).numpy()
            if config.model_type == "gemma" and "norm" in key:
                value = value + 1
            if config.model_type == "gpt2" and ".c_" in key:  # stored [in, out]
                value = numpy.ascontiguousarray(value.T)
            if ".query_key_value." in key:  # rows in groups of a key head
                groups = written["attention.head_count_kv"]
                each = config.num_attention_heads // groups
                apart = value.reshape(groups, each + 2, -1, *value.shape[1:])
                value = numpy.concatenate([part.reshape(-1, *value.shape[1:]) for part in (
                    apart[:, :each], apart[:, each], apart[:, each + 1])])
            if permutes and ".q_proj." in key:
                value = permuted(value, config.num_attention_heads)
            if permutes and ".k_proj." in key:
                value = permuted(value, config.num_key_value_heads)
            if ".self_attn." in key and hasattr(config, "kv_lora_rank") and (parts := attention_tensors(key, value, config)):
                tensors.update(parts)
            elif config.model_type == "nemotron_h" and ".mixer." in key and (parts := mamba_tensors(key, value, config)):
                tensors.update(parts)
            elif key.endswith(".input_linear.weight"):  # rows of gates, then of the others
                layer, kind = f"blk.{key.split('.')[2]}", "shexp" if ".shared_mlp." in key else "exps"
                halves = numpy.split(value, 2, axis=-2)
                tensors.update({f"{layer}.ffn_{part}_{kind}.weight": numpy.ascontiguousarray(half)
                                for part, half in zip(("gate", "up"), halves)})
            elif "_layernorm.norms." in key:
                head, number = key.split(".norms.")
                experts.setdefault(head + ".weight", {})[int(number.split(".")[0])] = value
            elif "e_score_correction" in key:
                tensors[f"blk.{key.split('.')[2]}.exp_probs_b.bias"] = value.reshape(-1)
            elif key.split(".", 3)[-1] in GGUF_NAMES:
                tensors[f"blk.{key.split('.')[2]}.{GGUF_NAMES[key.split('.', 3)[-1]]}"] = value
            elif ".act_fn." in key:
                tensors.setdefault("xielu." + key.split(".")[-1], []).append((int(key.split(".")[2]), value.item()))
            elif ".experts." in key:
                head, number, tail = key.split(".experts.")[0], *key.split(".experts.")[1].split(".", 1)
                experts.setdefault(f"{head}.experts.{tail}", {})[int(number)] = value
            else:
                tensors[names.get_name(key, try_suffixes=(".weight", ".bias"))] = value
    for key, values in experts.items():
        numbered = EXPERT_NAMES.get(key.split(".")[-2])
        name = f"blk.{key.split('.')[2]}.{numbered}.weight" if numbered else names.get_name(key, try_suffixes=(".weight",))
        tensors[name] = numpy.stack([values[i] for i in sorted(values)])
    return tensors


# What llama3's scaling divides the frequencies by, which GGUF holds as a tensor.
def llama3_divisors(config):
    rope = config.rope_parameters
    dims = config.hidden_size // config.num_attention_heads
    turns = rope["original_max_position_embeddings"] / (2 * numpy.pi * rope["rope_theta"] ** (numpy.arange(0, dims, 2) / dims))
    smooth = numpy.clip((turns - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"]), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(numpy.float32)


def write_gguf(name, directory, config):
    arch, permutes, further = GGUF[name]
    number = getattr(gguf.MODEL_ARCH, arch)
    prefix = gguf.MODEL_ARCH_NAMES[number]
    writer = gguf.GGUFWriter(directory / "model.gguf", prefix)
    eps = getattr(config, "rms_norm_eps", None) or getattr(config, "layer_norm_eps", None) or getattr(
        config, "layer_norm_epsilon", None) or config.norm_epsilon
    norm = "rms_" if getattr(config, "rms_norm_eps", None) else ""
    rope = getattr(config, "rope_parameters", None) or {}
    keys = {"block_count": config.num_hidden_layers, "context_length": 512, "embedding_length": config.hidden_size,
            "feed_forward_length": getattr(config, "intermediate_size", None), "attention.head_count": config.num_attention_heads,
            "attention.head_count_kv": getattr(config, "num_key_value_heads", None), "rope.freq_base": rope.get("rope_theta"),
            f"attention.layer_norm_{norm}epsilon": eps, **further}
    for key, value in keys.items():
        if value is None:  # nothing rotates
            continue
        add = writer.add_array if isinstance(value, list) else writer.add_bool if isinstance(value, bool) else writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{prefix}.{key}", value)
    tensors = gguf_tensors(directory, gguf.get_tensor_name_map(number, config.num_hidden_layers), config, permutes, keys)
    if rope.get("rope_type") == "longrope":
        tensors.update({f"rope_factors_{kind}.weight": numpy.array(rope[f"{kind}_factor"], numpy.float32) for kind in ("short", "long")})
    if rope.get("rope_type") == "llama3":
        tensors["rope_freqs.weight"] = llama3_divisors(config)
    if name.startswith("gemma4_experts"):  # a quarter of the pairs turns
        tensors["rope_freqs.weight"] = numpy.array([1.0] * 4 + [1e30] * 12, numpy.float32)
    for key, value in tensors.items():
        if isinstance(value, list):
            writer.add_array(key, [number for _, number in sorted(value)])
        elif value.ndim == 1 or "_norm." in key or "gate_inp" in key or "position_embd" in key or ".ssm_a" in key or ".ssm_d" in key or "conv1d" in key:
            writer.add_tensor(key, value)
        else:  # their values are those of BF16 already
            halves = (value.view(numpy.uint32) >> 16).astype(numpy.uint16)
            writer.add_tensor(key, halves.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def build(name):
    config_class, changes = MODELS[name]
    keys = {key: value for key, value in {**BASE, **changes}.items() if value is not None}
    config = getattr(transformers, config_class)(**keys)
    torch.manual_seed(SEEDS.get(name, sum(map(ord, name))))
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.ndim == 1 and "inv_freq" not in key:
                tensor.copy_((0.0 if "bias" in key else 1.0) + 0.2 * torch.randn(tensor.shape))
            elif "_norm.weight" in key:  # of all heads
                tensor.copy_(1.0 + 0.2 * torch.randn(tensor.shape))
            elif "e_score_correction" in key or "position_bias" in key:
                tensor.copy_(0.1 * torch.randn(tensor.shape))
            elif "tid2eid" in key:
                tensor.copy_(torch.randint(model.config.n_routed_experts, tensor.shape))
    return model.eval()


def write(name, directory):
    build(name).save_pretrained(directory)
    values = directory
    if name in BLOCKS:  # test_checkpoints.py shows that the library reads both alike
        values = directory.parent / "values"
        rewrite(directory, BLOCKS[name], plain=values)
    # Read back rather than widened: casting a model also casts its rotation frequencies, which no file holds.
    model = transformers.AutoModelForCausalLM.from_pretrained(values, dtype=torch.float64, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    torch.manual_seed(7)
    tokens = torch.randint(3, BASE["vocab_size"], (POSITIONS.get(name, TOKENS),))
    with torch.no_grad(), first_are_taken():
        logits = model(tokens[None], use_cache=False).logits[0].to(torch.float32)
    with open(directory / "golden.bin", "wb") as out:
        out.write(b"GLD1" + struct.pack("<II", *logits.shape) + struct.pack(f"<{len(tokens)}i", *tokens.tolist()))
        out.write(logits.contiguous().numpy().astype("<f4").tobytes())
    (directory / "generation_config.json").unlink(missing_ok=True)
    if name in GGUF:
        write_gguf(name, directory, model.config)
    if name == "internlm2":
        internlm2_layout.rewrite(directory)
    print(name, model.config.model_type, float(logits.abs().max()))


def main(names):
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            write(name, Path(scratch) / name)
            packed = subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-c", name], cwd=scratch,
                                    check=True, capture_output=True).stdout
            (OUT / f"{name}.tar.xz").write_bytes(
                subprocess.run(["xz", "-9e"], input=packed, check=True, capture_output=True).stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
