"""Requests that Schemathesis makes of the contracts, good and bad ones: every answer is one that the contract names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="PyPI schemathesis is not installed (tools/clients)")

from chat_model import HERMES_MARKERS, HERMES_TEMPLATE, write_chat_model  # noqa: E402
from embedding_model import write_embedding_model  # noqa: E402
from rerank_model import write_cross_encoder  # noqa: E402
from stack import MODEL, Stack  # noqa: E402

HOOKS = Path(__file__).with_name("schema_hooks.py")
CONTRACTS = Path(__file__).resolve().parents[2] / "contracts/openapi"
CASES = os.environ.get("LLORCH_SCHEMA_CASES", "20")
# Answers without an end, and what takes the stack under test apart.
SKIPPED = r"(/events$|/v2/internal/|register|credential|purge)"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# That nothing can be done now is an answer (status_code_conformance looks whether it is a documented one).
SUCCEEDS = {  # routes that answer 200 only where a model does what they are for
    "anthropic": ["POST /v1/messages"],
    "llamacpp": ["POST /v1/rerank", "POST /tokenize", "POST /completion"],
    "ollama": ["POST /api/chat", "POST /api/embed"],
    "openai": ["POST /v1/chat/completions", "POST /v1/completions", "POST /v1/embeddings", "POST /v1/responses"],
}
CONFIG = "[checks.not_a_server_error]\nexpected-statuses = [\"2xx\", \"3xx\", \"4xx\", 503]\n"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """With a model for each kind of work, under the names of the contracts' examples."""
    models = tmp_path_factory.mktemp("models")
    write_chat_model(models / "tiny-chat", HERMES_TEMPLATE, HERMES_MARKERS)
    write_embedding_model(models / "tiny-embeddings")
    write_cross_encoder(models / "tiny-judge")
    settings = {f"models.aliases.{name}": f"file:{models / f'tiny-{directory}'}"
                for name, directory in (("chat", "chat"), ("embed", "embeddings"), ("judge", "judge"))}
    settings |= {"models.allowed_roots": f"{MODEL.parent},{models}", "orchestratord.limits.workers_per_gpu": "4"}
    with Stack(settings) as running:
        yield running


@pytest.mark.parametrize("contract", sorted(path.stem for path in CONTRACTS.glob("*.yaml")))
def test_no_answer_breaks_the_contract(stack, contract, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    url = stack.pool_url if contract == "pool-managerd" else stack.url
    answers = tmp_path / "answers.txt"
    command = [shutil.which("schemathesis", path=Path(sys.executable).parent), "--config-file", str(tmp_path / "schemathesis.toml"),
               "run", str(CONTRACTS / f"{contract}.yaml"), "--url", url, "-n", CASES, "--checks", CHECKS, "--phases",
               "examples,coverage,fuzzing", "--seed", "1", "--request-timeout", "60", "--exclude-path-regex", SKIPPED, "--no-color"]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "LLORCH_SCHEMA_ANSWERS": str(answers)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-1000:]
    assert int(re.search(r"(\d+) generated", ran.stdout)[1]) > 100
    succeeded = {line.removesuffix(" 200") for line in answers.read_text().splitlines() if line.endswith(" 200")}
    assert succeeded.issuperset(SUCCEEDS.get(contract, [])), sorted(succeeded)
    assert stack.orchestrator.poll() is None and stack.pool.poll() is None
