"""Small models of random weights that stand for those that the pages name. Their directory stands for /srv/models."""

import hashlib
import json
import shutil
import subprocess
import tarfile

from chat_model import write_chat_model
from embedding_model import write_embedding_model
from rerank_model import write_cross_encoder
from stack import BIN, HANG_S, MODEL, REPO
from vision_model import write_vision_model

INFILL_MARKERS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>")


def write_models(directory):
    for name in (MODEL.name, "some.gguf", "helper.gguf", "x.gguf"):
        shutil.copy(MODEL, directory / name)
    write_chat_model(directory / "chat")
    write_chat_model(directory / "coder", markers=INFILL_MARKERS)
    write_embedding_model(directory / "embedding")
    write_cross_encoder(directory / "judge")
    write_vision_model(directory / "vision")
    with tarfile.open(REPO / "tests/golden/families/gpt_oss.tar.xz") as archive:
        archive.extractall(directory)
    subprocess.run([str(BIN / "llorch"), "model", "quantize", str(directory / "chat"), str(directory / "chat.gguf"), "--type", "F16"],
                   check=True, capture_output=True, timeout=HANG_S)
    return directory


ALIASES = {"fairytale-5m-q8_0": MODEL.name, "smollm2": "chat", "coder": "coder", "qwen3-embedding": "embedding", "judge": "judge",
           "some-vision-model": "vision", "tale": MODEL.name}


def serve_by_name(server, models, model_id, known_file):
    """Serves a model that talks, and lists it under this name in a file for models.known_models."""
    data = (models / "chat.gguf").read_bytes()
    server.add("/chat.gguf", data)
    known_file.write_text(json.dumps({"models": [{"model_id": model_id, "source": f"{server.url}/chat.gguf", "size_bytes": len(data),
                                                  "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}", "licence": "CC0-1.0"}]}))
