"""bench/serve/relay still talks to orchestratord: its mock worker registers, and every stream is whole."""

import subprocess
from pathlib import Path

from stack import BIN, HANG_S

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_bench_of_streams_runs():
    done = subprocess.run([REPOSITORY / "bench/serve/relay", "--build", BIN.parent, "--smoke"], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
