"""Every family's fixture through `llorch model logits`, from both formats."""

import array
import tarfile
from pathlib import Path

import pytest

from stack import llorch

FIXTURES = Path(__file__).resolve().parent.parent / "golden" / "families"
TOLERANCE = 5e-5  # of the largest logit
NEEDS_IMAGES = {"qwen3_vl"}


def words(path, kind):
    values = array.array(kind)
    values.frombytes(path.read_bytes())
    return values


@pytest.mark.parametrize("family", sorted(p.name.split(".")[0] for p in FIXTURES.glob("*.tar.xz")))
def test_logits_agree_with_float64(family, tmp_path):
    if family in NEEDS_IMAGES:
        pytest.skip("this fixture has images in its prompt")
    with tarfile.open(FIXTURES / f"{family}.tar.xz") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / family
    golden = words(folder / "golden.bin", "i")
    count, vocab = golden[1], golden[2]
    expected = words(folder / "golden.bin", "f")[3 + count:]
    largest = max(map(abs, expected))
    for model in filter(Path.exists, (folder, folder / "model.gguf")):
        out = tmp_path / "logits"
        done = llorch("model", "logits", str(model), "--tokens", ",".join(map(str, golden[3:3 + count])), "--out", str(out),
                      "--kv-dtype", "f32", state_dir=tmp_path)
        assert done.returncode == 0, done.stderr
        got = words(out, "f")
        assert len(got) == count * vocab
        assert max(abs(a - b) for a, b in zip(got, expected)) <= TOLERANCE * largest, model
        for row in range(0, count * vocab, vocab):
            ours, reference = got[row:row + vocab], expected[row:row + vocab]
            assert ours.index(max(ours)) == reference.index(max(reference)), (model, row // vocab)
