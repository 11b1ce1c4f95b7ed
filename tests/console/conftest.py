import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from browser import CHROMIUM, Browser  # noqa: E402
from stack import BIN, OFTEN_HEARD, REPO, Stack  # noqa: E402

SCREENSHOTS = REPO / "build/console-screenshots"


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium: tools/console_test installs Debian's")
    running = Browser()
    yield running
    running.close()


@pytest.fixture(scope="module")
def stack():
    with Stack({**OFTEN_HEARD, "pool-managerd.worker_health_interval_ms": "200",
                "orchestratord.limits.workers_per_gpu": "2"}) as running:
        yield running


@pytest.fixture
def page(browser):
    """A tab. Its test fails if the browser complained about anything."""
    tab = browser.page()
    yield tab
    complaints = tab.complaints
    tab.close()
    assert complaints == []
