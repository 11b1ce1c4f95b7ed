import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stack import BIN, MODEL  # noqa: E402

from machine import write_programs, write_tarball  # noqa: E402
from models import write_models  # noqa: E402


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)
    if not MODEL.exists():
        pytest.exit(f"no demo model at {MODEL}", returncode=2)


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    return write_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def tarball(tmp_path_factory):
    return write_tarball(tmp_path_factory.mktemp("tarball"))


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("models"))
