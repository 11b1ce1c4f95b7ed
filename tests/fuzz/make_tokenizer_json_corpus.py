#!/usr/bin/env python3
"""Writes the seed corpus of tokenizer_json_fuzz: one small input per kind of section. Usage: make_..._corpus.py DIRECTORY"""
import json
import sys
from pathlib import Path

TEXT = "He'll say <u>!aaaa  é\n\n 12345<|end|></s> <w> ab"
CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True,
          "chat_template": [{"name": "default", "template": "D"}, {"name": "t", "template": "T"}],
          "added_tokens_decoder": {"90": {"content": "<late>", "special": True}}}
GENERATION = {"eos_token_id": [1, 2]}
ADDED = [{"id": 0, "content": "<unk>", "special": True}, {"id": 1, "content": "<s>", "special": True},
         {"id": 2, "content": "</s>", "special": True, "lstrip": True, "rstrip": True},
         {"id": 80, "content": "<u>", "normalized": True}, {"id": 81, "content": "<w>", "single_word": True}]
VOCAB = {text: i for i, text in enumerate(["<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a", "e", "Ġ", "Ċ", "1", "2", "l", "Ġa"])}
MERGES = ["a b", ["▁", "a"], ["Ġ", "a"]]
BYTE_VOCAB = {c: 100 + i for i, c in enumerate([chr(b) for b in [*range(33, 127), *range(161, 173), *range(174, 256)]]
                                               + [chr(256 + i) for i in range(68)]) if c not in VOCAB}


def bpe(**more):
    return {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "vocab": VOCAB, "merges": MERGES, **more}


def case(model, normalizer=None, pre_tokenizer=None, decoder=None, post_processor=None, config=CONFIG):
    root = {"version": "1.0", "added_tokens": ADDED, "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor, "decoder": decoder, "model": model}
    parts = [TEXT, json.dumps(config, ensure_ascii=False) if config else "", json.dumps(GENERATION)]
    return "\0".join(parts + [json.dumps(root, ensure_ascii=False)]).encode()


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


FUSE = {"type": "Fuse"}
SEEDS = {
    "empty": b"",
    "byte_level": case({**bpe(ignore_merges=True), "vocab": {**VOCAB, **BYTE_VOCAB}}, {"type": "NFC"},
                       sequence("pretokenizers",
                                {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|\w+|\s"}, "behavior": "Isolated"},
                                {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}), {"type": "ByteLevel"},
                       sequence("processors", {"type": "ByteLevel"},
                                {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                                 "special_tokens": {"<s>": {"ids": [1]}}})),
    "sentencepiece": case(bpe(byte_fallback=True),
                          sequence("normalizers", {"type": "Prepend", "prepend": "▁"},
                                   {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}), None,
                          sequence("decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                   {"type": "ByteFallback"}, FUSE, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
                          {"type": "RobertaProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]}),
    "unigram": case({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0], ["a", -1.5], ["b", -2.25], ["ab", -2], ["▁", -3]]},
                    sequence("normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip"}),
                    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
                    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}),
    "splits": case(bpe(), {"type": "NFD"},
                   sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Contiguous"},
                            {"type": "Split", "pattern": {"String": "l"}, "behavior": "MergedWithNext", "invert": True},
                            {"type": "Split", "pattern": {"Regex": "[a-m]+"}, "behavior": "MergedWithPrevious"},
                            {"type": "WhitespaceSplit"}), FUSE, config=None),
    "whitespace": case(bpe(), {"type": "Precompiled", "precompiled_charsmap": ""}, {"type": "Whitespace"}, FUSE),
    "wordpiece": case({"type": "WordPiece", "vocab": VOCAB}),
    "no_pair": case({**bpe(), "merges": [["a"]]}),
    "twice": case({**bpe(), "vocab": {"a": 1, "b": 1}}),
    "deep": b"\0\0\0" + b"[" * 64,
}

if __name__ == "__main__":
    for name, content in SEEDS.items():
        (Path(sys.argv[1]) / name).write_bytes(content)
