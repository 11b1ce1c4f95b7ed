"""The model that benches use when none is named: the 1.1B llama shape, Q4_K, random weights. Made once under build/peers."""

import pathlib
import subprocess
import sys

SHAPE = ["--arch", "llama", "--layers", "22", "--width", "2048", "--heads", "32", "--kv-heads", "4", "--ffn", "5632", "--vocab", "32000",
         "--context", "8192", "--type", "Q4_K"]


def made_model(llorch):
    """Its path; `llorch` is the program that makes it."""
    path = pathlib.Path(__file__).resolve().parents[1] / "build/peers/llama-1.1b-q4_k.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        if subprocess.run([llorch, "model", "synth", path, *SHAPE], stdout=subprocess.DEVNULL, check=False).returncode != 0:
            sys.exit(f"{llorch} cannot make {path}")
    return path
