"""Other shapes of every family: logits of `llorch model logits` against transformers in float64.

Run by `make parity`. Weights are random BF16, also norms and biases, so that nothing hides behind a one or a zero.
"""
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyPI torch is not installed: run this suite by `make parity`")
transformers = pytest.importorskip("transformers", reason="PyPI transformers is not installed: run this suite by `make parity`")

from shapes import ABSENT, BASE, CASES, FAMILIES  # noqa: E402

LLORCH = Path(os.environ.get("LLORCH_BIN_DIR", "build/release/bin")) / "llorch"
TOLERANCE = 5e-5  # of the largest logit


def build(family, changes):
    config_class, model_class, base = FAMILIES[family]
    changes = dict(changes)
    tokens_count = changes.pop("tokens", 96)
    keys = {key: value for key, value in {**BASE, **base, **changes}.items() if value is not ABSENT}
    config = getattr(transformers, config_class)(**keys)
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(len(str(changes)) * 1009 + len(family))
    model = getattr(transformers, model_class)(config).to(torch.bfloat16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 and not name.endswith(("A_log", "dt_bias", ".D")):
                centre = 0.0 if name.endswith("bias") or family.startswith("gemma") else 1.0
                parameter.copy_(centre + 0.2 * torch.randn_like(parameter, dtype=torch.float32))
    tokens = torch.randint(3, config.vocab_size, (1, tokens_count))
    return model.eval(), tokens


def logits_of(directory, tokens, tmp_path, *options):
    ids, out = tmp_path / "tokens", tmp_path / "logits"
    ids.write_text(",".join(str(int(t)) for t in tokens[0]))
    done = subprocess.run([LLORCH, "model", "logits", directory, "--tokens", f"@{ids}", "--out", out, "--force", "--kv-dtype", "f32",
                           *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.fromfile(out, dtype="<f4").reshape(tokens.shape[1], -1)


@pytest.mark.parametrize("family,case", [(family, case) for family in CASES for case in CASES[family]])
def test_agrees_with_float64(family, case, tmp_path):
    model, tokens = build(family, CASES[family][case])
    model.save_pretrained(tmp_path / "model")
    # Read back rather than widened: casting a model also casts its rotation frequencies, which no file holds.
    model = type(model).from_pretrained(tmp_path / "model", dtype=torch.float64, attn_implementation="eager",
                                        experts_implementation="eager").eval()
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits[0].numpy()
    ours = logits_of(tmp_path / "model", tokens, tmp_path)
    assert ours.shape == expected.shape
    error = np.abs(ours - expected).max() / np.abs(expected).max()
    assert error <= TOLERANCE, f"max|difference| is {error:.2e} of the largest logit"
    assert (ours.argmax(1) == expected.argmax(1)).all()
    assert (logits_of(tmp_path / "model", tokens, tmp_path, "--chunk", "7") == ours).all(), "chunks change bits"
