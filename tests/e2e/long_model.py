"""A model whose context is longer than the demo model's: one layer of random Q8_0 weights behind the demo model's tokenizer.

Weights are a repeating bank of random blocks: nothing about them needs to mean anything.
"""

import random
import struct

from stack import MODEL

WIDTH, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 768, 1, 12, 4, 2304, 4096
U32, F32, STRING, ARRAY = 4, 6, 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TYPE_F32, TYPE_Q8_0 = 0, 8


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, form):
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def string(self):
        length = self.take("Q")
        self.at += length
        return self.data[self.at - length : self.at]

    def skip(self, kind):
        if kind == STRING:
            self.string()
        elif kind == ARRAY:
            element, count = self.take("I"), self.take("Q")
            for _ in range(count):
                self.skip(element)
        else:
            self.take(SCALARS[kind])


def metadata_of(data):
    """(key, raw type and value bytes) of every entry."""
    reader = Reader(data)
    reader.at = 16
    entries = []
    for _ in range(reader.take("Q")):
        key = reader.string()
        start = reader.at
        reader.skip(reader.take("I"))
        entries.append((key, data[start : reader.at]))
    return entries


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text


def write_long_model(path):
    """Writes the model and returns its path."""
    data = MODEL.read_bytes()
    changed = {
        b"llama.embedding_length": WIDTH, b"llama.block_count": LAYERS, b"llama.attention.head_count": HEADS,
        b"llama.attention.head_count_kv": KV_HEADS, b"llama.feed_forward_length": FFN, b"llama.context_length": CONTEXT,
        b"llama.rope.dimension_count": WIDTH // HEADS,
    }
    entries = []
    vocab = 2048
    for key, raw in metadata_of(data):
        entries.append((key, struct.pack("<II", U32, changed[key]) if key in changed else raw))

    tensors = [(b"token_embd.weight", (WIDTH, vocab)), (b"output_norm.weight", (WIDTH,))]
    kv_width = WIDTH // HEADS * KV_HEADS
    for n in range(LAYERS):
        shapes = {
            "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, kv_width), "attn_v": (WIDTH, kv_width),
            "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (WIDTH, FFN), "ffn_up": (WIDTH, FFN), "ffn_down": (FFN, WIDTH),
        }
        tensors += [(f"blk.{n}.{name}.weight".encode(), shape) for name, shape in shapes.items()]

    rng = random.Random(1)
    bank = b"".join(struct.pack("<e", 0.0004) + rng.randbytes(32) for _ in range(1021))
    infos, bodies, offset = [], [], 0
    for name, shape in tensors:
        if len(shape) == 1:
            kind, body = TYPE_F32, struct.pack(f"<{shape[0]}f", *([1.0] * shape[0]))
        else:
            size = shape[0] * shape[1] // 32 * 34
            start = rng.randrange(1021) * 34
            kind, body = TYPE_Q8_0, (bank[start:] + bank * (size // len(bank) + 1))[:size]
        infos.append(gguf_string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset))
        bodies.append(body + b"\0" * (-len(body) % 32))
        offset += len(bodies[-1])

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(gguf_string(key) + raw for key, raw in entries) + b"".join(infos)
    with open(path, "wb") as out:
        out.write(head + b"\0" * (-len(head) % 32))
        out.writelines(bodies)
    return path
