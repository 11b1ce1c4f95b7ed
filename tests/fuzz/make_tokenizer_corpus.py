#!/usr/bin/env python3
"""Writes the seed corpus of tokenizer_fuzz: one small input per branch. Usage: make_tokenizer_corpus.py FOLDER"""
import struct
import sys
from pathlib import Path

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def u32(value):
    return struct.pack("<I", value)


def string(value):
    raw = value.encode()
    return u32(len(raw)) + raw


def items(values, write):
    return u32(len(values)) + b"".join(map(write, values))


def optional_id(value):
    return b"\0" if value is None else b"\1" + u32(value)


def blob(model, pre, tokens, merges=(), scores=(), ids=(None,) * 5, more=(), flags=b"\0\0\0", version=2, template="", named=()):
    return (b"LLTK" + u32(version) + string(model) + string(pre)
            + items([text for text, _ in tokens], string)
            + items(scores, lambda score: struct.pack("<f", score))
            + items([kind for _, kind in tokens], lambda kind: bytes([kind]))
            + items(merges, string)
            + b"".join(map(optional_id, ids)) + items(more, u32) + flags + string(template) + items(named, lambda row: string(row[0]) + string(row[1])))


def case(text, data):
    return struct.pack("<H", len(text)) + text + data


def spelling(byte):
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    return chr(byte) if byte in plain else chr(0x100 + [b for b in range(256) if b not in plain].index(byte))


BYTES = [(spelling(b), NORMAL) for b in range(256)]
BPE = BYTES + [("he", NORMAL), ("Ġhe", NORMAL), ("aa", NORMAL), ("<u>", USER_DEFINED), ("<u>!", USER_DEFINED), ("<|end|>", CONTROL)]
MERGES = ["h e", "Ġ he", "a a"]
BPE_IDS = (261, 261, None, None, None)
SPM = ([("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)] + [(f"<0x{b:02X}>", BYTE) for b in range(256)]
       + [("▁", NORMAL), ("▁a", NORMAL), ("a", NORMAL), ("aa", NORMAL), ("é", NORMAL), ("<u>", USER_DEFINED)])
SPM_SCORES = [0.0] * 259 + [-1.0, -2.0, -3.0, -4.0, -4.0, 0.0]
SPM_IDS = (1, 2, None, None, 0)
TEXT = "He'll say <u>!aaaa  é\n\n 12345<|end|></s>".encode()
SEEDS = {
    "empty": b"",
    "no_blob": case(b"x", b""),
    "version": case(b"x", blob("llama", "", [], version=1)),
    "unknown_model": case(b"x", blob("bert", "", [("a", NORMAL)])),
    "bpe_gpt2": case(TEXT, blob("gpt2", "gpt-2", BPE, MERGES, ids=BPE_IDS, flags=b"\2\2\0")),
    "bpe_llama": case(TEXT, blob("gpt2", "llama-bpe", BPE, MERGES, ids=BPE_IDS)),
    "bpe_qwen2": case(TEXT, blob("gpt2", "qwen2", BPE, MERGES, ids=BPE_IDS, more=[97])),
    "bpe_bad_merge": case(b"x", blob("gpt2", "gpt-2", BPE, ["h z"])),
    "spm": case(TEXT, blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS)),
    "spm_no_prefix": case(TEXT, blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS, flags=b"\1\2\1")),
    "spm_ill_formed": case(b"\xff\xe2\x96\xe2\x96\x81a", blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS)),
    "spm_no_bytes": case(b"ab", blob("llama", "", [("<unk>", UNKNOWN), ("a", NORMAL)], scores=[0, 0], ids=(None,) * 4 + (0,))),
}

if __name__ == "__main__":
    for name, content in SEEDS.items():
        (Path(sys.argv[1]) / name).write_bytes(content)
