#!/usr/bin/env python3
"""Writes dequant.txt: what the PyPI packages `gguf` and `ml_dtypes` make of 1,000 blocks of every quantized type and of all
FP8 bytes. Usage: python make_quant_vectors.py > dequant.txt (in a virtual environment with gguf, ml_dtypes, numpy).

Lines: `type NAME`, `input SHA256`, `output SHA256` of all values as little-endian f32 with every NaN written 7fc00000, and
`block INDEX HEX...` for two blocks in full. The blocks come from a generator that dequant_test.cpp repeats: bytes of a
64-bit congruential sequence; the f16 fields of the first 400 blocks are taken from SCALES, every pair of them once.
"""
import hashlib

import ml_dtypes
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

BLOCKS = 1000
# Offsets of the f16 fields of a block.
TYPES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
}
SCALES = [0x0000, 0x8000, 0x0001, 0x8001, 0x0155, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x1234,
          0x2E66, 0xAE66, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFC01]


def blocks_of(name, block_bytes):
    state = 7
    out = bytearray()
    for _ in range(BLOCKS * block_bytes):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    for i in range(400):
        for field, offset in enumerate(TYPES[name]):
            scale = SCALES[i // 20 if field else i % 20]
            out[i * block_bytes + offset:i * block_bytes + offset + 2] = scale.to_bytes(2, "little")
    if name == "MXFP4":
        for i in range(BLOCKS):
            out[i * block_bytes] = i % 256  # every exponent
    return bytes(out)


def canonical(values):
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).copy()
    bits[np.isnan(values)] = 0x7FC00000
    return bits.reshape(-1)


def show(name, source, values, block_elements, shown):
    bits = canonical(values)
    print("type", name)
    print("input", hashlib.sha256(source).hexdigest())
    print("output", hashlib.sha256(bits.astype("<u4").tobytes()).hexdigest())
    for block in shown:
        part = bits[block * block_elements:(block + 1) * block_elements]
        print("block", block, *(f"{int(b):08x}" for b in part))


np.seterr(all="ignore")
for name in TYPES:
    qtype = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[qtype]
    source = blocks_of(name, size)
    values = dequantize(np.frombuffer(source, dtype=np.uint8).reshape(BLOCKS, size), qtype)
    assert values.size == BLOCKS * elements
    show(name, source, values, elements, [777, 999])
for name, dtype in (("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2),
                    ("F8_E8M0", ml_dtypes.float8_e8m0fnu)):
    source = bytes(range(256))
    values = np.frombuffer(source, dtype=np.uint8).view(dtype).astype(np.float32)
    show(name, source, values, 256, [0])
