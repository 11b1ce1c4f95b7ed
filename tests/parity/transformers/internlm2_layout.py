"""Directories of InternLM 2, which transformers has no class for, made of those of Llama that it saves: the layers are the same, under other
names, and rows of queries, keys and values stand together by key heads.
"""
import json

import torch
from safetensors.torch import load_file, save_file

NAMES = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
         "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
         "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}


def rewrite(directory):
    config = json.loads((directory / "config.json").read_text())
    rope, groups = config.pop("rope_parameters"), config["num_key_value_heads"]
    for key in ("attention_bias", "mlp_bias", "head_dim"):
        config.pop(key)
    config |= dict(architectures=["InternLM2ForCausalLM"], model_type="internlm2", bias=False, rope_scaling=None,
                   rope_theta=rope["rope_theta"])
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored, tensors = load_file(directory / "model.safetensors"), {}
    for key, value in stored.items():
        if ".q_proj." in key:
            parts = [stored[key.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            joined = torch.cat([part.reshape(groups, -1, part.shape[1]) for part in parts], 1)
            tensors[key.replace("self_attn.q_proj", "attention.wqkv")] = joined.reshape(-1, value.shape[1]).contiguous()
        elif ".k_proj." not in key and ".v_proj." not in key:
            for name, own in NAMES.items():
                key = key.replace(name, own)
            tensors[key] = value
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
