#!/usr/bin/env python3
"""Writes quantize.txt: `peer TYPE RMSE`, the relative error of the PyPI package `gguf` on a million normal values for each
type that it quantizes to. Usage: python make_quantize_bounds.py > quantize.txt (gguf, numpy)."""
import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

rows = np.random.default_rng(7).standard_normal((4096, 256)).astype(np.float32)
for name in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"):
    qtype = GGMLQuantizationType[name]
    error = dequantize(quantize(rows, qtype), qtype).astype(np.float64) - rows
    print("peer", name, f"{np.sqrt((error**2).mean() / (rows.astype(np.float64)**2).mean()):.6g}")
