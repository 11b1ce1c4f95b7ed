"""Requests that Schemathesis makes of the contracts, good and bad ones: every answer is one that the contract names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("schemathesis", reason="PyPI schemathesis is not installed (tools/clients)")

CONTRACTS = Path(__file__).resolve().parents[2] / "contracts/openapi"
CASES = os.environ.get("LLORCH_SCHEMA_CASES", "20")
# Answers without an end, and what takes the stack under test apart.
SKIPPED = r"(/events$|/v2/internal/|register|credential|purge)"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# That nothing can be done now is an answer (status_code_conformance looks whether it is a documented one).
CONFIG = "[checks.not_a_server_error]\nexpected-statuses = [\"2xx\", \"3xx\", \"4xx\", 503]\n"


@pytest.mark.parametrize("contract", sorted(path.stem for path in CONTRACTS.glob("*.yaml")))
def test_no_answer_breaks_the_contract(stack, contract, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    url = stack.pool_url if contract == "pool-managerd" else stack.url
    command = [shutil.which("schemathesis", path=Path(sys.executable).parent), "--config-file", str(tmp_path / "schemathesis.toml"),
               "run", str(CONTRACTS / f"{contract}.yaml"), "--url", url, "-n", CASES, "--checks", CHECKS, "--phases",
               "examples,coverage,fuzzing", "--seed", "1", "--request-timeout", "60", "--exclude-path-regex", SKIPPED, "--no-color"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-1000:]
    assert int(re.search(r"(\d+) generated", ran.stdout)[1]) > 100
    assert stack.orchestrator.poll() is None and stack.pool.poll() is None
