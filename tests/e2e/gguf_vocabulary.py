"""The vocabulary of a GGUF file and its byte-pair encoding, read and written down without our reader and our tokenizer."""

import re
import struct

from byte_tokenizer import byte_letters

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# GPT-2's words: contractions, letters, digits, other signs, each with the space before it; then spaces.
WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def read_metadata(path):
    """Key to value of a GGUF file."""
    data, at = path.read_bytes(), 0

    def scalar(kind):
        nonlocal at
        (value,) = struct.unpack_from("<" + kind, data, at)
        at += struct.calcsize("<" + kind)
        return value

    def value(kind):
        nonlocal at
        if kind == STRING:
            length = scalar("Q")
            at += length
            return data[at - length:at].decode()
        if kind == ARRAY:
            item = scalar("I")
            return [value(item) for _ in range(scalar("Q"))]
        return scalar(SCALARS[kind])

    assert scalar("I") == 0x46554747 and scalar("I") == 3
    scalar("Q")  # tensors
    return {value(STRING): value(scalar("I")) for _ in range(scalar("Q"))}


def with_ids(path, out, ids):
    """A copy of the file that has these keys as well: token ids. What lies behind the header begins where it is aligned, as before."""
    data, at = path.read_bytes(), 24
    tensors, pairs = struct.unpack_from("<QQ", data, 8)

    def skip(kind):
        nonlocal at
        if kind == STRING:
            at += 8 + struct.unpack_from("<Q", data, at)[0]
        elif kind == ARRAY:
            item, count = struct.unpack_from("<IQ", data, at)
            at += 12
            for _ in range(count):
                skip(item)
        else:
            at += struct.calcsize("<" + SCALARS[kind])

    for _ in range(pairs):
        skip(STRING)
        at += 4
        skip(struct.unpack_from("<I", data, at - 4)[0])
    names = at
    for _ in range(tensors):
        skip(STRING)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    added = b"".join(struct.pack("<Q", len(key)) + key.encode() + struct.pack("<II", 4, value) for key, value in ids.items())
    header = data[:16] + struct.pack("<Q", pairs + len(ids)) + data[24:names] + added + data[names:at]
    alignment = read_metadata(path).get("general.alignment", 32)
    out.write_bytes(header + bytes(-len(header) % alignment) + data[at + -at % alignment:])


def encode(metadata, text):
    """The ids of a text without special tokens: in each word the pair that was merged first is merged first."""
    ids = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(metadata["tokenizer.ggml.merges"])}
    letters = byte_letters()
    out = []
    for word in WORDS.findall(text):
        parts = [letters[byte] for byte in word.encode()]
        while pairs := [(ranks[pair], i) for i, pair in enumerate(zip(parts, parts[1:])) if pair in ranks]:
            _, i = min(pairs)
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        out += [ids[part] for part in parts]
    return out
