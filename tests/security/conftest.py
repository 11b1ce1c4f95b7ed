import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stack import BIN, MODEL, Stack  # noqa: E402

from engine_stack import entry  # noqa: E402
from fake_engine import FakeEngine  # noqa: E402

from attacker import OPERATOR, READER, TENANTS, secret  # noqa: E402


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)
    if not MODEL.exists():
        pytest.exit(f"no demo model at {MODEL}", returncode=2)


@pytest.fixture(scope="module")
def open_stack():
    """As a new user has it: no token anywhere."""
    with Stack() as running:
        yield running


@pytest.fixture(scope="module")
def guarded_stack(tmp_path_factory):
    """With an operator, two tenants, a reader, and an engine of another system (the model `tale`)."""
    directory = tmp_path_factory.mktemp("secrets")
    tenants = "".join(f"    - id: {name}\n      token_file: {secret(directory, name, token)}\n"
                      for name, token in TENANTS.items())
    reader = secret(directory, "reader", READER)
    config = directory / "config.yaml"
    with FakeEngine("openai") as engine:
        config.write_text(f"auth:\n  reader_token_files: [{reader}]\norchestratord:\n  tenants:\n{tenants}"
                          f"pool-managerd:\n  engines: [{json.dumps(entry(engine))}]\n")
        config.chmod(0o600)
        settings = {"models.aliases.tale": "engine:tale"}
        with Stack(token=OPERATOR, settings=settings, env={"LLORCH_CONFIG": str(config)}) as running:
            yield running
