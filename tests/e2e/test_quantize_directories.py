"""Hugging Face directories whose layout has no fixture of its own, through `llorch model quantize`: the GGUF computes the same.

Made from the families' fixtures by changing config.json and tensors; the values are as good as any.
"""

import array
import json
import os
import random
import struct
import tarfile
from pathlib import Path

import pytest

from byte_tokenizer import byte_tokenizer
from gguf_vocabulary import read_metadata
from stack import llorch

FIXTURES = Path(__file__).resolve().parent.parent / "golden" / "families"
TOLERANCE = 5e-5  # of the largest logit
TOKENS = [(37 * i + 5) % 384 for i in range(24)]


class Directory:
    """A fixture's config and tensors: name -> (dtype, shape, bytes)."""

    def __init__(self, family, seed=7):
        self.random = random.Random(seed)
        with tarfile.open(FIXTURES / f"{family}.tar.xz") as archive:
            self.config = json.load(archive.extractfile(f"{family}/config.json"))
            data = archive.extractfile(f"{family}/model.safetensors").read()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + length])
        self.tensors = {name: (t["dtype"], t["shape"], data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]])
                        for name, t in header.items() if name != "__metadata__"}

    def put_floats(self, name, shape, spread, dtype="BF16"):
        count = 1
        for n in shape:
            count *= n
        floats = array.array("f", (self.random.gauss(0, spread) for _ in range(count))).tobytes()
        halves = b"".join(floats[i + 2:i + 4] for i in range(0, len(floats), 4))  # the upper half of an f32 is a bf16
        self.tensors[name] = (dtype, shape, halves if dtype == "BF16" else floats)

    def write(self, path):
        path.mkdir()
        (path / "config.json").write_text(json.dumps(self.config))
        header, at = {}, 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            at += len(data)
        text = json.dumps(header).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in self.tensors.values()))
        return path


def fp8_directory():
    """Matrices in E4M3 with a scale per block, as DeepSeek and Qwen publish them; blocks are cut short at the edges."""
    directory = Directory("qwen3")
    rows, cols = 48, 40
    directory.config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [rows, cols]}
    for name, (_, shape, _) in list(directory.tensors.items()):
        if not name.endswith("_proj.weight"):
            continue
        values = bytes(directory.random.choice((0, 128)) + directory.random.randint(0, 0x5F) for _ in range(shape[0] * shape[1]))  # up to 30
        directory.tensors[name] = ("F8_E4M3", shape, values)
        directory.put_floats(f"{name}_scale_inv", [-(-shape[0] // rows), -(-shape[1] // cols)], 0.02, "F32")
    return directory


def lfm2_moe_directory():
    directory = Directory("lfm2")
    directory.config.update(model_type="lfm2_moe", architectures=["Lfm2MoeForCausalLM"], num_experts=4, num_experts_per_tok=2,
                         moe_intermediate_size=48, num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True,
                         routed_scaling_factor=1.5)
    width = directory.config["hidden_size"]
    for layer in range(1, directory.config["num_hidden_layers"]):
        name = f"model.layers.{layer}.feed_forward"
        for part in ("w1", "w2", "w3"):
            del directory.tensors[f"{name}.{part}.weight"]
            for expert in range(4):
                shape = [width, 48] if part == "w2" else [48, width]
                directory.put_floats(f"{name}.experts.{expert}.{part}.weight", shape, shape[1] ** -0.5)
        directory.put_floats(f"{name}.gate.weight", [4, width], width ** -0.5)
        directory.put_floats(f"{name}.expert_bias", [4], 0.1, "F32")
    return directory


def half_rope_directory():
    """Latent attention that rotates halves: GGUF knows neighbours only, so rows must change places."""
    directory = Directory("deepseek_v3")
    directory.config["rope_interleave"] = False
    return directory


def llama_layers(**config):
    """Another family of Llama's layers, which GGUF has with neighbours rotated and without keys for it."""
    directory = Directory("llama3")
    directory.config.update(rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **config)
    return directory


def smollm3_directory():
    return llama_layers(model_type="smollm3", architectures=["SmolLM3ForCausalLM"])


def granite_directory():
    return llama_layers(model_type="granite", architectures=["GraniteForCausalLM"], attention_multiplier=0.2, embedding_multiplier=1.0,
                        residual_multiplier=1.0, logits_scaling=1.0)


def logits(model, tmp_path):
    out = tmp_path / "logits"
    done = llorch("model", "logits", str(model), "--tokens", ",".join(map(str, TOKENS)), "--out", str(out), "--kv-dtype", "f32", "--force",
                  state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    values = array.array("f")
    values.frombytes(out.read_bytes())
    assert len(values) == 384 * len(TOKENS)
    return values


@pytest.mark.parametrize("make, architecture, exact", [(fp8_directory, "qwen3", True), (lfm2_moe_directory, "lfm2moe", True),
                                                       (half_rope_directory, "deepseek2", False),
                                                       (smollm3_directory, "smollm3", False), (granite_directory, "granite", False)])
def test_the_gguf_of_a_directory_computes_the_same(make, architecture, exact, tmp_path):
    directory, out = make().write(tmp_path / "directory"), tmp_path / "out.gguf"
    done = llorch("--json", "model", "quantize", str(directory), str(out), "--type", "BF16", state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = llorch("--json", "model", "show", str(out), state_dir=tmp_path)
    assert json.loads(shown.stdout)["architecture"] == architecture
    expected, got = logits(directory, tmp_path), logits(out, tmp_path)
    largest = max(map(abs, expected))
    assert 0.1 < largest < 1000
    # Rows that changed places are summed in another order.
    assert max(abs(a - b) for a, b in zip(got, expected)) <= (0 if exact else TOLERANCE * largest)


def test_the_layout_of_a_rotation_is_read(tmp_path):
    """Otherwise the case above would compare one mistake with another."""
    halves, neighbours = half_rope_directory(), half_rope_directory()
    neighbours.config["rope_interleave"] = True
    a, b = (logits(f.write(tmp_path / name), tmp_path) for name, f in (("halves", halves), ("neighbours", neighbours)))
    assert max(abs(x - y) for x, y in zip(a, b)) > 1e-2 * max(map(abs, a))


def test_every_row_of_the_table_has_a_token(tmp_path):
    """As Qwen's directories are: more rows than tokens, which a reader of GGUF takes for a file that is broken."""
    directory = Directory("qwen2").write(tmp_path / "directory")
    tokens = 300
    (directory / "tokenizer.json").write_text(json.dumps(byte_tokenizer(["<|end|>"], tokens)))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    out = tmp_path / "out.gguf"
    done = llorch("model", "quantize", str(directory), str(out), "--type", "Q8_0", state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    metadata = read_metadata(out)
    texts, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert len(texts) == len(kinds) == len(set(texts)) == metadata["qwen2.vocab_size"] == 384
    assert texts[tokens:] == [f"[PAD{i}]" for i in range(tokens, 384)] and set(kinds[tokens:]) == {5}
    spelled = [llorch("--json", "model", "tokenize", str(model), "a [PAD301] b", state_dir=tmp_path).stdout for model in (directory, out)]
    assert spelled[0] == spelled[1] and json.loads(spelled[0])


def test_a_directory_may_have_any_name(tmp_path):
    """What is no text is not written where readers expect one."""
    directory = Directory("qwen2").write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")))
    out = tmp_path / "out.gguf"
    done = llorch("model", "quantize", str(directory), str(out), "--type", "BF16", state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "general.name" not in read_metadata(out)
    assert llorch("model", "show", str(out), state_dir=tmp_path).returncode == 0
