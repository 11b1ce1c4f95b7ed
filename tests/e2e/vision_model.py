"""A small model that sees: a Qwen3-VL directory with random weights, one token a byte, and a template; and pictures to show to it."""

import json
import random
import struct
import tarfile
import zlib
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 384
SPECIAL = ["<pad>", "<s>", "</s>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' or 'image' in part or 'image_url' in part %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}"
)
UNIT = 8  # pixels per side of an image token: patches of 4, merged by 2


def png(width, height, seed):
    rng = random.Random(seed)
    rows = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_vision_model(directory):
    directory.mkdir()
    with tarfile.open(ROOT / "tests/golden/families/qwen3_vl.tar.xz") as archive:
        for name in ("config.json", "model.safetensors"):
            (directory / name).write_bytes(archive.extractfile(f"qwen3_vl/{name}").read())
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer(SPECIAL, VOCABULARY)))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}))
    (directory / "preprocessor_config.json").write_text(json.dumps({"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, "size": {
        "shortest_edge": 4 * UNIT * UNIT, "longest_edge": 32 * UNIT * UNIT}}))
