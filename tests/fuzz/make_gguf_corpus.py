#!/usr/bin/env python3
"""Writes the seed corpus of gguf_fuzz: one small file per branch of the reader. Usage: make_gguf_corpus.py DIRECTORY"""
import struct
import sys
from pathlib import Path

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
SCALARS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, payload):
    return text(payload) if kind == STRING else struct.pack("<" + SCALARS[kind], payload)


def entry(key, kind, payload):
    return text(key) + struct.pack("<I", kind) + value(kind, payload)


def array(key, kind, items):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(items)) + b"".join(value(kind, item) for item in items)


def tensor(name, dims, kind, offset):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def file(entries, tensors=(), data=b"", version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data if tensors else head


SCALAR_ENTRIES = [entry(f"k{kind}", kind, 1) for kind in SCALARS] + [entry("s", STRING, "text")]
ARRAY_ENTRIES = [array(f"a{kind}", kind, [0, 1]) for kind in SCALARS] + [array("tokens", STRING, ["a", "", "bc"])]
SEEDS = {
    "empty": b"",
    "magic": b"GGUF",
    "zip": b"PK\x03\x04" + b"\0" * 28,
    "scalars": file(SCALAR_ENTRIES),
    "arrays": file(ARRAY_ENTRIES),
    "version2": file(SCALAR_ENTRIES[:1], version=2),
    "big_endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "split": file([entry("split.no", U16, 0), entry("split.count", U16, 2)]),
    "tensors": file([entry("general.architecture", STRING, "llama")],
                    [tensor("f32", [4, 2], 0, 0), tensor("f16", [8], 1, 32), tensor("bf16", [8], 30, 64),
                     tensor("q8_0", [32, 1, 1], 8, 96), tensor("q4_0", [32, 1, 1, 1], 2, 160), tensor("i32", [1], 26, 192)],
                    bytes(range(196))),
    "aligned64": file([entry("general.alignment", U32, 64)], [tensor("t", [16], 0, 64)], b"\1" * 128, alignment=64),
    "overlap": file([], [tensor("a", [16], 0, 0), tensor("b", [16], 0, 32)], b"\1" * 96),
    "unsupported": file([], [tensor("k", [256], 12, 0)], b"\1" * 144),
    "huge_dims": file([], [tensor("t", [1 << 32, 1 << 32], 0, 0)], b"\1" * 32),
}

if __name__ == "__main__":
    for name, content in SEEDS.items():
        (Path(sys.argv[1]) / name).write_bytes(content)
