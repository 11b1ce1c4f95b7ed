"""Writes tests/golden/families/NAME.tar.xz: tiny random models of families, and the logits that transformers computes in float64
from exactly the stored weights.

    build/parity-venv/bin/python tests/parity/transformers/make_families.py [NAME...]

golden.bin: tests/golden/README.md.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

OUT = Path(__file__).parents[2] / "golden/families"
TOKENS = 96
BASE = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=512, initializer_range=0.08)
WINDOWS = dict(num_hidden_layers=4, sliding_window=24)

# name: (configuration class, what differs)
MODELS = {
    "mixtral": ("MixtralConfig", dict(num_local_experts=6, num_experts_per_tok=2, sliding_window=24)),
    "internlm3": ("InternLM3Config", dict(head_dim=16)),
    "qwen2_moe": ("Qwen2MoeConfig", dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48,
                                         shared_expert_intermediate_size=80, mlp_only_layers=[1])),
    "starcoder2": ("Starcoder2Config", dict(sliding_window=24)),
    "cohere": ("CohereConfig", dict(logit_scale=0.25)),
    "cohere2": ("Cohere2Config", dict(logit_scale=0.25, **WINDOWS)),
    "stablelm": ("StableLmConfig", dict(use_qkv_bias=True, partial_rotary_factor=0.25)),
    "exaone4": ("Exaone4Config", dict(**WINDOWS)),
    "ernie4_5": ("Ernie4_5Config", dict(head_dim=24)),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(moe_num_experts=6, moe_k=3, moe_intermediate_size=48, moe_num_shared_experts=2,
                                                moe_layer_start_index=1)),
    "hunyuan": ("HunYuanDenseV1Config", dict(head_dim=16, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0,
                                                                              factor=1.0))),
}


def build(name):
    config_class, changes = MODELS[name]
    config = getattr(transformers, config_class)(**{**BASE, **changes})
    torch.manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.ndim == 1 and "inv_freq" not in key:
                tensor.copy_((0.0 if "bias" in key else 1.0) + 0.2 * torch.randn(tensor.shape))
            elif "e_score_correction" in key:
                tensor.copy_(0.1 * torch.randn(tensor.shape))
    return model.eval()


def write(name, directory):
    build(name).save_pretrained(directory)
    # Read back rather than widened: casting a model also casts its rotation frequencies, which no file holds.
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    torch.manual_seed(7)
    tokens = torch.randint(3, BASE["vocab_size"], (TOKENS,))
    with torch.no_grad():
        logits = model(tokens[None], use_cache=False).logits[0].to(torch.float32)
    with open(directory / "golden.bin", "wb") as out:
        out.write(b"GLD1" + struct.pack("<II", TOKENS, logits.shape[1]) + struct.pack(f"<{TOKENS}i", *tokens.tolist()))
        out.write(logits.contiguous().numpy().astype("<f4").tobytes())
    (directory / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((directory / "config.json").read_text())
    print(name, config["model_type"], float(logits.abs().max()))


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
