#!/usr/bin/python3
"""Float64 logits of the demonstration model, from exactly the stored weights.

Usage: make_logits.py MODEL.gguf TOKENS.bin OUT.bin    (TOKENS.bin: a GLD1 file whose token ids are taken; needs numpy)

Shares nothing with the engine: a GGUF reader for the types F32, F16, Q8_0 and Q4_0, and the llama forward pass over a whole
sequence at once. From fairytale-5m-f16.gguf and -q8_0.gguf it writes the files that another program
had written before it, to the last bit but for one value in a thousand on a rounding border.
"""
import struct
import sys
from pathlib import Path

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Gguf:
    def __init__(self, path):
        self.bytes = Path(path).read_bytes()
        self.at = 8
        tensors, keys = self.scalar("<Q"), self.scalar("<Q")
        self.metadata = {self.string(): self.value(self.scalar("<I")) for _ in range(keys)}
        table = []
        for _ in range(tensors):
            name = self.string()
            dims = [self.scalar("<Q") for _ in range(self.scalar("<I"))]
            table.append((name, dims, self.scalar("<I"), self.scalar("<Q")))
        data = -(-self.at // 32) * 32
        self.tensors = {name: self.decode(dims, kind, data + offset) for name, dims, kind, offset in table}

    def scalar(self, form):
        (value,) = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return value

    def string(self):
        length = self.scalar("<Q")
        self.at += length
        return self.bytes[self.at - length:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.string()
        if kind == 9:
            kind, count = self.scalar("<I"), self.scalar("<Q")
            return [self.value(kind) for _ in range(count)]
        return self.scalar(SCALARS[kind])

    def decode(self, dims, kind, start):
        count = int(np.prod(dims))
        if kind in (0, 1):
            values = np.frombuffer(self.bytes, "<f4" if kind == 0 else "<f2", count, start).astype(np.float64)
        elif kind == 8:  # Q8_0: a scale and 32 integers
            blocks = np.frombuffer(self.bytes, np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32, start)
            values = blocks["d"].astype(np.float64)[:, None] * blocks["q"]
        elif kind == 2:  # Q4_0: a scale and 32 nibbles less 8, the low ones first
            blocks = np.frombuffer(self.bytes, np.dtype([("d", "<f2"), ("q", "u1", 16)]), count // 32, start)
            nibbles = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype(np.float64) - 8
            values = blocks["d"].astype(np.float64)[:, None] * nibbles
        else:
            raise SystemExit(f"tensor type {kind} is not known here")
        return values.reshape(dims[::-1])  # [rows, columns]


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, base):
    """Pairs of neighbours of x [T, H, d] by position / base^(2i/d)."""
    positions, d = np.arange(x.shape[0]), x.shape[2]
    angles = positions[:, None] * base ** (-np.arange(0, d, 2) / d)  # [T, d/2]
    turned = (x[:, :, 0::2] + 1j * x[:, :, 1::2]) * np.exp(1j * angles)[:, None, :]
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


def attention(model, layer, x):
    key = model.metadata
    heads, kv_heads = key["llama.attention.head_count"], key["llama.attention.head_count_kv"]
    weight = {name: model.tensors[f"blk.{layer}.attn_{name}.weight"] for name in ("q", "k", "v", "output")}
    split = lambda name, count: (x @ weight[name].T).reshape(len(x), count, -1)
    q, k = (rotate(split(n, c), key["llama.rope.freq_base"]) for n, c in (("q", heads), ("k", kv_heads)))
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, split("v", kv_heads)))
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[2])
    scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("hts,shd->thd", weights, v).reshape(len(x), -1) @ weight["output"].T


def logits(model, tokens):
    eps = model.metadata["llama.attention.layer_norm_rms_epsilon"]
    tensor = model.tensors
    x = tensor["token_embd.weight"][tokens]
    for layer in range(model.metadata["llama.block_count"]):
        block = lambda name: tensor[f"blk.{layer}.{name}.weight"]
        x = x + attention(model, layer, rms_norm(x, block("attn_norm"), eps))
        h = rms_norm(x, block("ffn_norm"), eps)
        gate = h @ block("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ block("ffn_up").T)) @ block("ffn_down").T
    return rms_norm(x, tensor["output_norm.weight"], eps) @ tensor["token_embd.weight"].T


def main():
    model, tokens_from, out = Gguf(sys.argv[1]), Path(sys.argv[2]).read_bytes(), Path(sys.argv[3])
    magic, count, _ = struct.unpack_from("<4sII", tokens_from)
    assert magic == b"GLD1"
    tokens = np.frombuffer(tokens_from, "<i4", count, 12)
    result = logits(model, tokens)
    out.write_bytes(struct.pack("<4sII", magic, count, result.shape[1]) + tokens.tobytes() + result.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
