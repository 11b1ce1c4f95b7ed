"""No key is ignored: each key of each family's config.json is changed by one step, and the engine must change its logits as
transformers does, or refuse the model.

Run by `make parity`, over the fixtures of tests/golden. The tensors stay as they are: where the library itself cannot run the
changed model, nothing is compared.
"""
import json
import os
import shutil
import struct
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyPI torch is not installed: run this suite by `make parity`")
transformers = pytest.importorskip("transformers", reason="PyPI transformers is not installed: run this suite by `make parity`")

from equal_scores import first_are_taken  # noqa: E402 - it imports torch

ROOT = Path(__file__).parents[3]
LLORCH = Path(os.environ.get("LLORCH_BIN_DIR", ROOT / "build/release/bin")) / "llorch"
UNPACKED = LLORCH.parent.parent / "golden" / "families"
FIXTURES = {path.parent.name: path.parent
            for place in (UNPACKED, ROOT.parent / "shared/data/golden2026") for path in sorted(place.glob("*/config.json"))}
TOLERANCE = 5e-5  # of the largest logit
SAME = 1e-6  # of the largest logit: what a key must move to be said to change the output
# Keys that do not say what the model computes, and those that choose the class itself. rescale_prenorm_residual is of the
# initialisation, which the library applies to weights it has read.
NOT_CHANGED = {"architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "id2label", "label2id",
               "rescale_prenorm_residual"}


def steps(value):
    """Values one step from `value`."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value * 2] if value else [1]
    if isinstance(value, float):
        return [value * 2 if value else 0.5]
    if isinstance(value, str):
        words = {"silu": "gelu", "gelu_pytorch_tanh": "silu", "gelu": "silu", "relu2": "silu", "full_attention": "sliding_attention",
                 "sliding_attention": "full_attention", "default": "linear", "linear": "default", "rope": "nope", "nope": "rope"}
        return [words.get(value, value + "_2")]
    if isinstance(value, list) and value:
        return [[step] + value[1:] for step in steps(value[0])]
    return []


def leaves(config, path=()):
    for key, value in config.items():
        if key in NOT_CHANGED:
            continue
        if isinstance(value, dict) and "__float__" not in value:
            yield from leaves(value, (*path, key))
        else:
            for step in steps(value):
                yield (*path, key), step


def changed(config, path, value):
    copy = json.loads(json.dumps(config))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


def tokens_of(directory):
    data = (directory / "golden.bin").read_bytes()
    count, _ = struct.unpack_from("<4x2I", data)
    return torch.tensor([struct.unpack_from(f"<{count}i", data, 12)])


def reference(directory, tokens):
    """Logits in float64, or None where the library refuses the model or says that weights are missing or left over."""
    try:
        config = json.loads((directory / "config.json").read_text())
        how = {"quantization_config": transformers.FineGrainedFP8Config(dequantize=True)} if "quantization_config" in config else {}
        model, info = getattr(transformers, config["architectures"][0]).from_pretrained(
            directory, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager", output_loading_info=True, **how)
        for parameter in model.parameters():  # FP8 is read as BF16
            parameter.data = parameter.data.to(torch.bfloat16).double() if how else parameter.data
        if info["missing_keys"] or info["mismatched_keys"]:
            return None
        with torch.no_grad(), first_are_taken():
            logits = model.eval()(tokens, use_cache=False).logits[0].numpy()
        return logits if np.isfinite(logits).all() else None
    except Exception:  # noqa: BLE001 - whatever the library raises
        return None


def engine(directory, tokens, tmp_path):
    ids, out = tmp_path / "tokens", tmp_path / "logits"
    ids.write_text(",".join(str(int(t)) for t in tokens[0]))
    done = subprocess.run([LLORCH, "model", "logits", directory, "--tokens", f"@{ids}", "--out", out, "--force", "--kv-dtype", "f32"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return np.fromfile(out, dtype="<f4").reshape(tokens.shape[1], -1)


def difference(a, b):
    return np.inf if a.shape != b.shape else float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("family", FIXTURES)
def test_each_key_changes_what_it_changes_there_or_refuses(family, tmp_path):
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokens, directory = tokens_of(FIXTURES[family]), tmp_path / "model"
    directory.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FIXTURES[family] / name, directory)
    config = json.loads((directory / "config.json").read_text())
    if not hasattr(transformers, config["architectures"][0]):
        pytest.skip("the library has no class for the family")
    expected, ours = reference(directory, tokens), engine(directory, tokens, tmp_path)
    if ours is None:
        pytest.skip("this build does not run the family")
    assert difference(ours, expected) <= TOLERANCE
    silent, compared, refused = [], 0, 0
    for path, value in leaves(config):
        (directory / "config.json").write_text(json.dumps(changed(config, path, value)))
        got = engine(directory, tokens, tmp_path)
        if got is None:
            refused += 1
            continue
        there = reference(directory, tokens)
        if there is None:
            continue
        compared += 1
        if difference(got, there) > TOLERANCE:
            moved = "changed" if difference(got, ours) > SAME else "ignored"
            silent.append(f"{'.'.join(path)} = {value!r}: {moved} here, {difference(there, expected):.1e} there")
    print(f"{family}: {compared} compared, {refused} refused")
    assert not silent, "\n".join(silent)
