"""Ten thousand random texts a kind of tokenizer: the ids of PyPI tokenizers and ours are the same.

Run by `make parity`, over the tokenizers of tests/parity/tokenizer_json. LLORCH_PARITY_TEXTS says how many texts. Texts are words of many
scripts, odd characters, control tokens and characters by chance (make_vectors.py has the pieces).
"""
import importlib.util
import json
import os
import random
import subprocess
import unicodedata
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="PyPI tokenizers is not installed: run this suite by `make parity`")

ROOT = Path(__file__).parents[3]
TOOL = Path(os.environ.get("LLORCH_BIN_DIR", ROOT / "build/release/bin")).parent / "test/tokenize_texts"
KINDS = ROOT / "tests/parity/tokenizer_json"
TEXTS = int(os.environ.get("LLORCH_PARITY_TEXTS", "10000"))
SHOWN = 5


def pieces():
    spec = importlib.util.spec_from_file_location("make_vectors", KINDS / "make_vectors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.WORDS, module.ODD


def texts(kind):
    rng, (words, odd) = random.Random(f"{kind} 1"), pieces()
    ranges = [(0x20, 0x250), (0x250, 0x3000), (0x3000, 0xD7FF), (0x1F000, 0x1FA00)]
    out = []
    for _ in range(TEXTS):
        parts = []
        for _ in range(rng.randrange(1, 14)):
            roll = rng.random()
            if roll < 0.55:
                word = rng.choice(words)
                parts.append(rng.choice([word, word.upper(), word.capitalize(), word]) + rng.choice([" ", " ", " ", ""]))
            elif roll < 0.93:
                parts.append(rng.choice(odd))
            else:
                parts.append(chr(rng.randrange(*rng.choice(ranges))))
        out.append("".join(parts))
    if not kind.startswith(("wordpiece", "char_")):
        return out
    # Where classes of characters decide, those that Unicode 3.2 had: the library's tables are of another version than ours
    # (docs/internals/tokenizers.md).
    return ["".join(c for c in text if unicodedata.ucd_3_2_0.category(c) != "Cn") for text in out]


@pytest.mark.parametrize("kind", sorted(path.parent.name for path in KINDS.glob("*/tokenizer.json")))
def test_random_texts_have_the_librarys_ids(kind, tmp_path):
    if not TOOL.exists():
        pytest.skip(f"{TOOL} is not built")
    wanted, given, out = texts(kind), tmp_path / "texts.json", tmp_path / "ids.json"
    given.write_text(json.dumps(wanted))
    subprocess.run([TOOL, KINDS / kind, given, out], check=True)
    ours = json.loads(out.read_text())
    library = tokenizers.Tokenizer.from_file(str(KINDS / kind / "tokenizer.json"))
    theirs = [encoded.ids for encoded in library.encode_batch(wanted, add_special_tokens=True)]
    different = [f"{text!r}\n  library {a}\n  ours    {b}" for text, a, b in zip(wanted, theirs, ours, strict=True) if a != b]
    print(f"{kind}: {len(wanted)} texts, {len(different)} different")
    assert not different, f"{len(different)} of {len(wanted)} differ:\n" + "\n".join(different[:SHOWN])
