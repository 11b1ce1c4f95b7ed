"""A small model with a chat template: random weights, one token a byte, <s> before each message."""

import json
import tarfile
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 384
CHAT_TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"


# A template that teaches hermes, and its markers as control tokens.
HERMES_TEMPLATE = "{% if tools %}<s>{% for t in tools %}{{ t | tojson }}{% endfor %}<tool_call>{% endif %}" + CHAT_TEMPLATE
HERMES_MARKERS = ("<tool_call>", "</tool_call>")


def write_chat_model(directory, template=CHAT_TEMPLATE, markers=(), vocabulary=VOCABULARY):
    """A Hugging Face directory. `markers` are control tokens, from id 3 on; behind `vocabulary` tokens the model's rows are unused."""
    directory.mkdir()
    with tarfile.open(ROOT / "tests/golden/families/llama3.tar.xz") as archive:
        for member in archive.getmembers():
            name = Path(member.name).name
            if name in ("config.json", "model.safetensors"):
                (directory / name).write_bytes(archive.extractfile(member).read())
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer(["<pad>", "<s>", "</s>", *markers], vocabulary)))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>",
                                                               "chat_template": template}))
