"""A small model with a chat template: random weights, one token a byte, <s> before each message."""

import json
import tarfile
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 384
CHAT_TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"


def write_chat_model(directory):
    """A Hugging Face directory."""
    directory.mkdir()
    with tarfile.open(ROOT / "tests/golden/families/llama3.tar.xz") as archive:
        for member in archive.getmembers():
            name = Path(member.name).name
            if name in ("config.json", "model.safetensors"):
                (directory / name).write_bytes(archive.extractfile(member).read())
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer(["<pad>", "<s>", "</s>"], VOCABULARY)))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>",
                                                               "chat_template": CHAT_TEMPLATE}))
