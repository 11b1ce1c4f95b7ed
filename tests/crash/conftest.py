import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stack import BIN, MODEL  # noqa: E402


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)
    if not MODEL.exists():
        pytest.exit(f"no demo model at {MODEL}", returncode=2)
