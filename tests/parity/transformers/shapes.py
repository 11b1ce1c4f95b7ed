"""Tiny random models of shapes the checked-in fixtures do not have.

One dictionary per case says what differs from the base of its family."""

BASE = dict(vocab_size=384, hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, initializer_range=0.08)
MOE = dict(num_experts=8, num_local_experts=8, num_experts_per_tok=3, moe_intermediate_size=48)
MAMBA = dict(mamba_expand=2, mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_n_groups=1, mamba_d_conv=4,
             mamba_chunk_size=16)

ABSENT = object()  # of a key of BASE that the class does not have

# family: (configuration class, model class, base on top of BASE)
FAMILIES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", dict(head_dim=16)),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(head_dim=16, sliding_window=24)),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", dict(head_dim=32)),
    "qwen3_moe": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM", dict(head_dim=32, norm_topk_prob=True, **MOE)),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {}),
    "gemma2": ("Gemma2Config", "Gemma2ForCausalLM",
               dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=24, tie_word_embeddings=True)),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM",
               dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=24, num_hidden_layers=6,
                    tie_word_embeddings=True)),
    "gpt_oss": ("GptOssConfig", "GptOssForCausalLM",
                dict(head_dim=16, sliding_window=24, num_local_experts=4, num_experts_per_tok=2)),
    "granite_hybrid": ("GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM",
                       dict(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=96,
                            layer_types=["mamba", "attention", "mamba"], embedding_multiplier=3.0,
                            attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=2.0,
                            position_embedding_type="nope", **MAMBA)),
    "mamba2": ("Mamba2Config", "Mamba2ForCausalLM",
               dict(num_heads=8, head_dim=16, state_size=16, n_groups=1, conv_kernel=4, expand=2, chunk_size=16,
                    layer_norm_epsilon=1e-5, initializer_range=0.1, intermediate_size=ABSENT, num_attention_heads=ABSENT,
                    num_key_value_heads=ABSENT, rms_norm_eps=ABSENT)),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM",
             dict(layer_types=["conv", "full_attention", "conv"], block_auto_adjust_ff_dim=False, norm_eps=1e-5,
                  tie_word_embeddings=True)),
    "deepseek_v2": ("DeepseekV2Config", "DeepseekV2ForCausalLM",
                    dict(num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16,
                         qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8, n_shared_experts=1,
                         num_experts_per_tok=2, moe_intermediate_size=48, first_k_dense_replace=1, n_group=1,
                         topk_group=1, topk_method="greedy", routed_scaling_factor=1.0, norm_topk_prob=False)),
    "deepseek_v3": ("DeepseekV3Config", "DeepseekV3ForCausalLM",
                    dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16,
                         qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=8, n_shared_experts=1,
                         num_experts_per_tok=3, moe_intermediate_size=48, first_k_dense_replace=1, n_group=4,
                         topk_group=2, routed_scaling_factor=2.5, norm_topk_prob=True)),
}

YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)

# Per family: case -> changes. A vocabulary of 389 is prime, so nothing divides it.
CASES = {
    "llama": {
        "odd_vocabulary": dict(vocab_size=389),
        "one_head_each": dict(num_attention_heads=3, num_key_value_heads=3, hidden_size=96),
        "one_kv_head": dict(num_attention_heads=6, num_key_value_heads=1, hidden_size=96),
        "wide_heads": dict(head_dim=48),
        "one_layer": dict(num_hidden_layers=1),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
        "linear_rope": dict(rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        "yarn": dict(rope_parameters=YARN),
        "dynamic": dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
        "biases": dict(attention_bias=True, mlp_bias=True),
    },
    "mistral": {
        "no_window": dict(sliding_window=None),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
        "odd_vocabulary": dict(vocab_size=389, head_dim=20, num_attention_heads=5, num_key_value_heads=5),
    },
    "qwen2": {
        "odd_vocabulary": dict(vocab_size=389),
        "window_in_upper_layers": dict(use_sliding_window=True, sliding_window=24, max_window_layers=1),
        "one_layer_tied": dict(num_hidden_layers=1, tie_word_embeddings=True),
        "yarn": dict(rope_parameters=YARN),
    },
    "qwen3": {
        "odd_vocabulary": dict(vocab_size=389, num_attention_heads=3, num_key_value_heads=1, head_dim=24),
        "attention_bias": dict(attention_bias=True),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
    },
    "qwen3_moe": {
        "odd_vocabulary": dict(vocab_size=389),
        "not_normalised": dict(norm_topk_prob=False, num_experts_per_tok=1),
        "every_second_layer": dict(decoder_sparse_step=2, num_hidden_layers=4),
        "many_experts": dict(num_experts=33, num_local_experts=33, num_experts_per_tok=8, moe_intermediate_size=20),
    },
    "phi3": {
        "plain_rope_odd_vocabulary": dict(vocab_size=389, partial_rotary_factor=0.5),
        "window": dict(sliding_window=24),
        "one_layer_one_kv_head": dict(num_hidden_layers=1, num_key_value_heads=1),
        "longrope_short": dict(original_max_position_embeddings=64, tokens=60, rope_parameters=dict(
            rope_type="longrope", rope_theta=10000.0, short_factor=[1.0 + 0.1 * i for i in range(8)],
            long_factor=[1.5 + 0.3 * i for i in range(8)], original_max_position_embeddings=64)),
    },
    "gemma2": {
        "odd_vocabulary": dict(vocab_size=389, head_dim=24),
        "caps": dict(attn_logit_softcapping=2.0, final_logit_softcapping=5.0),
        "one_layer": dict(num_hidden_layers=1),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
    },
    "gemma3": {
        "odd_vocabulary": dict(vocab_size=389, head_dim=24),
        "one_layer": dict(num_hidden_layers=1),
        "long": dict(max_position_embeddings=2048, tokens=2000),
    },
    "gpt_oss": {
        "odd_vocabulary": dict(vocab_size=389, num_attention_heads=6, num_key_value_heads=3),
        "one_layer": dict(num_hidden_layers=1),
        "long": dict(max_position_embeddings=8192, tokens=2000, num_hidden_layers=2),
    },
    "granite_hybrid": {
        "odd_vocabulary": dict(vocab_size=389),
        "no_experts": dict(num_local_experts=0, num_experts_per_tok=0),
        "groups": dict(mamba_n_groups=2, mamba_d_state=24),
        "rope": dict(position_embedding_type="rope"),
        "step_limit": dict(time_step_limit=[0.01, 0.2]),
        "projection_bias": dict(mamba_proj_bias=True, attention_bias=True),
    },
    "mamba2": {
        "odd_vocabulary": dict(vocab_size=389),
        "groups": dict(n_groups=2, state_size=24),
        "biases": dict(use_bias=True),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
        "tied": dict(tie_word_embeddings=True),
    },
    "lfm2": {
        "odd_vocabulary": dict(vocab_size=389),
        "longer_convolution_with_bias": dict(conv_L_cache=5, conv_bias=True),
        "adjusted_width": dict(block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.3, block_multiple_of=32),
        "attention_only": dict(layer_types=["full_attention"] * 3),
    },
    "deepseek_v2": {
        "odd_vocabulary": dict(vocab_size=389),
        "query_lora": dict(q_lora_rank=24),
        "group_limited_yarn": dict(topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=16.0,
                                   rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=0.7)),
        "all_dense": dict(first_k_dense_replace=3),
    },
    "deepseek_v3": {
        "odd_vocabulary": dict(vocab_size=389),
        "half_rope": dict(rope_interleave=False),
        "no_query_lora": dict(q_lora_rank=None),
        "yarn": dict(rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.5)),
        "two_shared": dict(n_shared_experts=2, attention_bias=True),
        "long": dict(max_position_embeddings=2048, tokens=2000, num_hidden_layers=2),
    },
}
