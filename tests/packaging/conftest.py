import os
import pathlib
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/e2e"))

from stack import BIN  # noqa: E402


@pytest.fixture(scope="session")
def repository():
    return REPOSITORY


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The share directory that packaging/generate writes."""
    share = tmp_path_factory.mktemp("share")
    subprocess.run([REPOSITORY / "packaging/generate", BIN, share], check=True)
    return share


@pytest.fixture(scope="session")
def packages():
    """Where `make package` left its files; skips where nobody asked for this or it cannot run."""
    if "LLORCH_PACKAGES" not in os.environ:
        pytest.skip("make package-test runs this")
    if os.geteuid() != 0:
        pytest.skip("needs root: it boots and enters roots of other distributions")
    for tool in ("debootstrap", "systemd-nspawn"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed (Debian: debootstrap, systemd-container)")
    return REPOSITORY / os.environ["LLORCH_PACKAGES"]


@pytest.fixture(scope="session")
def the(packages):
    """The one package with this pattern in its name."""

    def find(pattern):
        found = sorted(packages.glob(pattern))
        assert len(found) == 1, found
        return found[0]

    return find
