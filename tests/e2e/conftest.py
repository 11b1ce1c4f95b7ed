import pytest

from stack import BIN, MODEL, Stack


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)
    if not MODEL.exists():
        pytest.exit(f"no demo model at {MODEL}", returncode=2)


@pytest.fixture(scope="module")
def stack():
    """One stack for tests that leave it as they found it."""
    with Stack() as running:
        yield running
