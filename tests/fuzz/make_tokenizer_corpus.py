#!/usr/bin/env python3
"""Writes the seed corpus of tokenizer_fuzz: one small input per branch. Usage: make_tokenizer_corpus.py DIRECTORY"""
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


def pattern(text="", is_regex=False):
    return string(text) + bytes([is_regex])


NFC, STRIP, REPLACE, PREPEND = 0, 5, 6, 7
SPLIT, BYTE_LEVEL, METASPACE, DIGITS = 0, 1, 2, 3
FROM_BYTES, FROM_METASPACE, FROM_FALLBACK, FUSE, DEC_REPLACE, DEC_STRIP = range(6)


def normalizer(kind, what=pattern(), text="", sides=b"\0\0"):
    return bytes([kind]) + what + string(text) + sides


def pre_tokenizer(kind, what=pattern(), behavior=1, flags=b"\0\0\0", replacement="", prepend=2, more=b"\1\0"):
    return bytes([kind]) + what + bytes([behavior]) + flags + string(replacement) + bytes([prepend]) + more


def decoder(kind, what=pattern(), text="", start=0, stop=0, prepend=2):
    return bytes([kind]) + what + string(text) + u32(start) + u32(stop) + bytes([prepend])


def tokenizer_json(normalizers=(), pre_tokenizers=(), decoders=(), added=(), merges=(), flags=b"\0\0\0", prefix=(), suffix=()):
    raw = bytes
    return (items(normalizers, raw) + items(pre_tokenizers, raw) + items(decoders, raw)
            + items(added, lambda rule: u32(rule[0]) + rule[1]) + items(merges, lambda pair: u32(pair[0]) + u32(pair[1]))
            + flags + items(prefix, u32) + items(suffix, u32))


def blob(model, pre, tokens, merges=(), scores=(), ids=(None,) * 5, more=(), flags=b"\0\0\0", version=2, template="",
         named=(), json=None):
    return (b"LLTK" + u32(version) + string(model) + string(pre)
            + items([text for text, _ in tokens], string)
            + items(scores, lambda score: struct.pack("<d", score))
            + items([kind for _, kind in tokens], lambda kind: bytes([kind]))
            + items(merges, string)
            + b"".join(map(optional_id, ids)) + items(more, u32) + flags + string(template)
            + items(named, lambda row: string(row[0]) + string(row[1])) + (json or tokenizer_json()))


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
    "json_byte_level": case(TEXT, blob("bpe", "", BPE, json=tokenizer_json(
        normalizers=[normalizer(NFC)],
        pre_tokenizers=[pre_tokenizer(SPLIT, pattern(r"\w+|\s|[^\w\s]{1,2}", True)), pre_tokenizer(BYTE_LEVEL, flags=b"\0\1\1")],
        decoders=[decoder(FROM_BYTES)], added=[(259, b"\1\1\0\0\0"), (260, b"\0\0\1\1\1")], merges=[(104, 101), (32, 256)],
        flags=b"\0\0\1", prefix=[261], suffix=[261]))),
    "json_metaspace": case(TEXT, blob("bpe", "", SPM, ids=SPM_IDS, json=tokenizer_json(
        pre_tokenizers=[pre_tokenizer(METASPACE, replacement="▁", prepend=1)],
        decoders=[decoder(DEC_REPLACE, pattern("▁"), " "), decoder(FROM_FALLBACK), decoder(FUSE), decoder(DEC_STRIP, text=" ", start=1)],
        merges=[(259, 261), (261, 261)], flags=b"\1\1\0"))),
    "json_unigram": case(TEXT, blob("unigram", "", SPM, scores=SPM_SCORES, ids=SPM_IDS, json=tokenizer_json(
        normalizers=[normalizer(STRIP, sides=b"\1\1"), normalizer(REPLACE, pattern(" {2,}", True), " "), normalizer(PREPEND, text="▁")],
        pre_tokenizers=[pre_tokenizer(DIGITS, more=b"\1\1"), pre_tokenizer(METASPACE, replacement="▁", prepend=0)],
        decoders=[decoder(FROM_METASPACE, text="▁", prepend=0)], flags=b"\1\1\0"))),
    "spm": case(TEXT, blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS)),
    "spm_no_prefix": case(TEXT, blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS, flags=b"\1\2\1")),
    "spm_ill_formed": case(b"\xff\xe2\x96\xe2\x96\x81a", blob("llama", "", SPM, scores=SPM_SCORES, ids=SPM_IDS)),
    "spm_no_bytes": case(b"ab", blob("llama", "", [("<unk>", UNKNOWN), ("a", NORMAL)], scores=[0, 0], ids=(None,) * 4 + (0,))),
}

if __name__ == "__main__":
    for name, content in SEEDS.items():
        (Path(sys.argv[1]) / name).write_bytes(content)
