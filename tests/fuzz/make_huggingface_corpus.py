#!/usr/bin/env python3
"""Writes the seeds of the fuzzers for Hugging Face directories: safetensors files, their index, config.json, quantized checkpoints.

Usage: make_huggingface_corpus.py [DIR]   (default: corpus/ beside this script)
"""
import json
import struct
import sys
from pathlib import Path


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SAFETENSORS = {
    "empty": safetensors({}),
    "two": safetensors({"__metadata__": {"format": "pt"}, "a": tensor("BF16", [2, 3], 0, 12),
                        "b": tensor("F32", [], 12, 16)}, bytes(16)),
    "padded": safetensors(b'{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}    ', bytes(8)),
    "fp8": safetensors({"w": tensor("F8_E4M3", [2, 2], 0, 4), "s": tensor("F8_E8M0", [1], 4, 5),
                        "x": tensor("F8_E5M2", [1, 1, 1, 1, 1], 5, 6)}, bytes(6)),
    "zero_dim": safetensors({"a": tensor("U8", [0, 5], 0, 0), "b": tensor("BOOL", [1], 0, 1)}, b"\1"),
    "hole": safetensors({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, bytes(3)),
    "overlap": safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, bytes(3)),
    "overflow": safetensors({"a": tensor("F64", [2**63, 2**63], 0, 0)}),
    "huge_offset": safetensors({"a": tensor("U8", [2**64 - 1], 0, 2**64 - 1)}),
    "twice": safetensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                         b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "long_length": safetensors({}, length=2**40),
    "rank9": safetensors({"a": tensor("U8", [1] * 9, 0, 1)}, b"\0"),
    "type": safetensors({"a": tensor("F4", [2], 0, 1)}, b"\0"),
    "escapes": safetensors(b'{"\\u00e9\\ud83d\\ude00":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "not_json": safetensors(b'{"a": '),
}


def checkpoint(quantization, **parts):
    """NAME = (type, shape, bytes of an element) become tensors "m.NAME" of bytes that count up."""
    header, data = {}, b""
    for name, (dtype, shape, width) in parts.items():
        size = width
        for dim in shape:
            size *= dim
        header["m." + name] = tensor(dtype, shape, len(data), len(data) + size)
        data += bytes(i * 7 & 63 for i in range(size))
    return json.dumps({"quantization_config": quantization}).encode() + b"\0" + safetensors(header, data)


def shaped(rows, columns, seed):
    """The seed with weight_shape's numbers, which are the last 16 bytes."""
    return seed[:-16] + struct.pack("<qq", rows, columns)


COMPRESSED = {"quant_method": "compressed-tensors"}
CHECKPOINT = {
    "gptq": checkpoint({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False}, qweight=("I32", [8, 8], 4),
                       qzeros=("I32", [2, 1], 4), scales=("F16", [2, 8], 2)),
    "gptq_order": checkpoint({"quant_method": "gptq", "bits": 8, "group_size": 4, "sym": False}, qweight=("I32", [2, 4], 4),
                             qzeros=("I32", [2, 1], 4), scales=("F16", [2, 4], 2), g_idx=("I32", [8], 4)),
    "awq": checkpoint({"quant_method": "awq", "bits": 4, "group_size": 32}, qweight=("I32", [32, 1], 4),
                      qzeros=("I32", [1, 1], 4), scales=("F16", [1, 8], 2)),
    "rows": shaped(2, 32, checkpoint(COMPRESSED, weight_packed=("I32", [2, 4], 4), weight_scale=("BF16", [2, 1], 2),
                                     weight_zero_point=("I32", [1, 1], 4), weight_shape=("I64", [2], 8))),
    "bytes": checkpoint(COMPRESSED, weight=("I8", [2, 32], 1), weight_scale=("F32", [2, 1], 4)),
    "nvfp4": checkpoint(COMPRESSED, weight_packed=("U8", [2, 8], 1), weight_scale=("F8_E4M3", [2, 1], 1),
                        weight_global_scale=("F32", [1], 4)),
    "fp8": checkpoint(COMPRESSED, weight=("F8_E4M3", [2, 2], 1), weight_scale=("BF16", [2], 2), input_scale=("F32", [1], 4)),
    "other": checkpoint({"quant_method": "hqq"}),
}
INDEX = {
    "two": {"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                          "b": "model-00002-of-00002.safetensors"}},
    "climbs": {"weight_map": {"a": "../model.safetensors"}},
    "directory": {"weight_map": {"a": "x/model.safetensors"}},
    "no_map": {"metadata": {"weight_map": {"a": "b.safetensors"}}},
    "numbers": {"weight_map": {"a": 1, "b": [], "c": {}}},
}
CONFIG = {
    "plain": '{"model_type": "llama", "hidden_size": 64, "rms_norm_eps": 1e-05, "head_dim": null, "eos_token_id": [1, 2]}',
    "nested": '{"text_config": {"rope_parameters": {"full_attention": {"factor": 8.0}}, "layer_types": ["a", "b"]}}',
    "bare": '{"time_step_limit": [0.0, Infinity], "a": -Infinity, "b": NaN, "c": "Infinity \\" NaN"}',
    "objects": '{"time_step_limit": [0.0, {"__float__": "Infinity"}], "a": {"__float__": "NaN"}, "b": {"__float__": 1}}',
    "numbers": '{"a": 1.0, "b": 1e6, "c": 2.5, "d": -1, "e": 18446744073709551615, "f": 1e400, "g": true}',
    "deep": '{"a":' * 40 + "1" + "}" * 40,
    "cut": '{"a": [1, 2',
    "word": "Infinity",
}


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "corpus"
    seeds = {"checkpoint": CHECKPOINT, "safetensors": SAFETENSORS, "safetensors_index": {k: json.dumps(v).encode() for k, v in INDEX.items()},
             "hf_config": {k: v.encode() for k, v in CONFIG.items()}}
    for directory, files in seeds.items():
        (root / directory).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (root / directory / name).write_bytes(content)


if __name__ == "__main__":
    main()
