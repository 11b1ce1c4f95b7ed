"""A tokenizer for models whose vocabulary means nothing."""


def byte_letters():
    """GPT-2's printable stand-in of every byte."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def byte_tokenizer(special, vocabulary):
    """A tokenizer.json that spells text in bytes: `special` first, then the bytes, then words nobody writes."""
    letters = byte_letters()
    words = special + [letters[b] for b in range(256)]
    words += [f"{letters[0x20]}filler{i}" for i in range(vocabulary - len(words))]
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False} for i, t in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {word: i for i, word in enumerate(words)}, "merges": []},
    }
