"""A small model of embeddings: random weights, one token a byte and </s> behind them, the last row is the vector."""

import json
import tarfile
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 384
DIMENSIONS = 64
END = 2  # the id of </s>


def write_embedding_model(directory):
    """A Hugging Face directory, as Sentence Transformers saves it."""
    (directory / "1_Pooling").mkdir(parents=True)
    with tarfile.open(ROOT / "tests/golden/families/qwen3.tar.xz") as archive:
        for member in archive.getmembers():
            name = Path(member.name).name
            if name in ("config.json", "model.safetensors"):
                (directory / name).write_bytes(archive.extractfile(member).read())
    (directory / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": DIMENSIONS, "pooling_mode": "lasttoken"}))
    tokenizer = byte_tokenizer(["<pad>", "<s>", "</s>"], VOCABULARY)
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [END], "tokens": ["</s>"]}},
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "<pad>"}))
