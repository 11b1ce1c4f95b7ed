"""Writes tests/golden/embeddings/NAME.tar.xz: tiny random models of embeddings, and the vectors that transformers makes of a few
inputs in float64, pooled as Sentence Transformers pools and not made one long.

    build/parity-venv/bin/python tests/parity/transformers/make_embeddings.py [NAME...]

vectors.bin, little-endian: `GLE1`, u32 inputs, u32 width, and for each input u32 n, i32 tokens[n], f32 vector[width].
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

OUT = Path(__file__).parents[2] / "golden/embeddings"
BASE = dict(vocab_size=128, num_hidden_layers=2, max_position_embeddings=128, initializer_range=0.08)
LENGTHS = (1, 2, 17, 63, 64, 65, 100)

# name: (configuration class, pooling flag, configuration)
MODELS = {
    "qwen3_last": ("Qwen3Config", "lasttoken", dict(hidden_size=64, intermediate_size=96, num_attention_heads=4,
                                                    num_key_value_heads=2, head_dim=32, tie_word_embeddings=True)),
    "qwen3_mean": ("Qwen3Config", "mean_tokens", dict(hidden_size=96, intermediate_size=160, num_attention_heads=6,
                                                      num_key_value_heads=1, head_dim=16, num_hidden_layers=3)),
}


def build(name):
    config_class, pooling, changes = MODELS[name]
    config = getattr(transformers, config_class)(**{**BASE, **changes})
    torch.manual_seed(len(name) * 1009 + config.hidden_size)
    model = transformers.AutoModel.from_config(config).to(torch.bfloat16)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.copy_((0.0 if key.endswith("bias") else 1.0) + 0.2 * torch.randn(parameter.shape))
    return model.eval(), pooling


def pooled(model, pooling, tokens):
    with torch.no_grad():
        rows = model(torch.tensor([tokens])).last_hidden_state[0]
    return {"lasttoken": rows[-1], "mean_tokens": rows.mean(0), "cls_token": rows[0]}[pooling]


def write(name, directory):
    model, pooling = build(name)
    model.save_pretrained(directory)
    modes = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": model.config.hidden_size, **{f"pooling_mode_{mode}": mode == pooling for mode in modes}}))
    # Read back rather than widened: casting a model also casts its rotation frequencies, which no file holds.
    model = transformers.AutoModel.from_pretrained(directory, dtype=torch.float64, attn_implementation="eager").eval()
    with open(directory / "vectors.bin", "wb") as out:
        out.write(b"GLE1" + struct.pack("<II", len(LENGTHS), model.config.hidden_size))
        for length in LENGTHS:
            tokens = torch.randint(3, model.config.vocab_size, (length,)).tolist()
            vector = pooled(model, pooling, tokens).tolist()
            out.write(struct.pack(f"<I{length}i{len(vector)}f", length, *tokens, *vector))


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
