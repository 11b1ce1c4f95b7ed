"""bench/serve/relay still talks to orchestratord: its mock worker registers, and every stream is whole."""

import subprocess
from pathlib import Path

import pytest
from stack import BIN, HANG_S

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_bench_of_streams_runs():
    programs = [BIN.parent / "bench/serve" / name for name in ("relay_worker", "relay_load", "relay_forward")]
    if not all(program.exists() for program in programs):
        pytest.skip("the bench is not built: cmake --build build/release --target relay_worker relay_load relay_forward")
    done = subprocess.run([REPOSITORY / "bench/serve/relay", "--build", BIN.parent, "--smoke"], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
