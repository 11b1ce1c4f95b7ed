"""Every family's fixture through `llorch model logits`, from both formats."""

import array
import tarfile
from pathlib import Path

import pytest

from stack import llorch

FIXTURES = Path(__file__).resolve().parent.parent / "golden" / "families"
TOLERANCE = 5e-5  # of the largest logit
IMAGE_TOKEN = "5"  # of the fixtures with pixels.bin; a GGUF vocabulary that is made up does not name it


def words(path, kind):
    values = array.array(kind)
    values.frombytes(path.read_bytes())
    return values


@pytest.mark.parametrize("family", sorted(p.name.split(".")[0] for p in FIXTURES.glob("*.tar.xz")))
def test_logits_agree_with_float64(family, tmp_path):
    """M0-W-1212 M0-W-1213 M0-W-1214"""
    with tarfile.open(FIXTURES / f"{family}.tar.xz") as archive:
        archive.extractall(tmp_path)
    directory = tmp_path / family
    golden = words(directory / "golden.bin", "i")
    count, vocab = golden[1], golden[2]
    expected = words(directory / "golden.bin", "f")[3 + count:]
    largest = max(map(abs, expected))
    for model in filter(Path.exists, (directory, directory / "model.gguf")):
        out = tmp_path / "logits"
        images = ["--pixels", str(directory / "pixels.bin")] if (directory / "pixels.bin").exists() else []
        if images and model != directory:
            images += ["--mmproj", str(directory / "mmproj.gguf"), "--image-token", IMAGE_TOKEN]
        done = llorch("model", "logits", str(model), "--tokens", ",".join(map(str, golden[3:3 + count])), "--out", str(out),
                      "--kv-dtype", "f32", "--force", *images, state_dir=tmp_path)
        assert done.returncode == 0, done.stderr
        got = words(out, "f")
        assert len(got) == count * vocab
        assert max(abs(a - b) for a, b in zip(got, expected)) <= TOLERANCE * largest, model
        for row in range(0, count * vocab, vocab):
            ours, reference = got[row:row + vocab], expected[row:row + vocab]
            assert ours.index(max(ours)) == reference.index(max(reference)), (model, row // vocab)
