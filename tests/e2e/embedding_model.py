"""A small model of embeddings: random weights, one token a byte and </s> behind them, the last row is the vector."""

import json
import random
import struct
import tarfile
from pathlib import Path

from byte_tokenizer import byte_tokenizer

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 384
DIMENSIONS = 64
DENSE_DIMENSIONS = 24
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


def add_dense(directory, seed=7):
    """A linear layer behind the pooling, as Sentence Transformers saves it."""
    module = directory / "2_Dense"
    module.mkdir()
    (module / "config.json").write_text(json.dumps({
        "in_features": DIMENSIONS, "out_features": DENSE_DIMENSIONS, "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity"}))
    count = DENSE_DIMENSIONS * DIMENSIONS
    weights = struct.pack(f"<{count}f", *(random.Random(seed).gauss(0, 0.1) for _ in range(count)))
    header = json.dumps({"linear.weight": {"dtype": "F32", "shape": [DENSE_DIMENSIONS, DIMENSIONS],
                                           "data_offsets": [0, len(weights)]}}).encode()
    (module / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + weights)


def files_of(directory):
    """Relative name -> bytes."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}
