"""A real llama.cpp (its server, from the Python package xllamacpp) as an engine that pool-managerd starts. Skipped, visibly, without
the package: LLORCH_ENGINE_PYTHON names an interpreter that has it."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from adapter import Adapter, one_end, text
from engine_stack import EngineStack
from stack import HANG_S, MODEL, process_runs, wait_for

PYTHON = os.environ.get("LLORCH_ENGINE_PYTHON", sys.executable)
SERVER = pathlib.Path(__file__).with_name("llamacpp_server.py")

pytestmark = pytest.mark.skipif(
    subprocess.run([PYTHON, "-c", "import xllamacpp"], capture_output=True, timeout=HANG_S).returncode != 0,
    reason="no llama.cpp: pip install xllamacpp, and name its interpreter in LLORCH_ENGINE_PYTHON")


def engine(**more):
    return {"name": "tale", "engine": "llamacpp", "endpoint": "http://127.0.0.1:{port}",
            "command": [PYTHON, str(SERVER), "--model", str(MODEL), "--port", "{port}"], "device": "cpu",
            "memory_bytes": 256 << 20, **more}


@pytest.fixture(scope="module")
def stack():
    with EngineStack([engine()]) as running:
        yield running


def test_a_prompt_and_a_conversation(stack):
    """ORCH-3054 OC-ADAPT-5001 OC-ADAPT-5011: its own API streams, counts and says its version."""
    job = stack.submit(model="tale", max_tokens=16, temperature=0)["job_id"]
    events = stack.read_to_end(job)
    end = events[-1]
    assert end.name == "end", end
    assert end.data["tokens_out"] == 16 and end.data["tokens_in"] > 0 and end.data["stop_reason"] == "max_tokens"
    assert end.data["receipt"]["engine_build"].startswith("llamacpp/")
    again = stack.read_to_end(stack.submit(model="tale", max_tokens=16, temperature=0)["job_id"])
    assert text(again) == text(events) != ""
    body = {"model": "tale", "messages": [{"role": "user", "content": "Tell a tale"}], "max_tokens": 8, "temperature": 0}
    chat = stack.request("POST", "/v1/chat/completions", body)
    assert chat.status == 200 and chat.json["choices"][0]["message"]["content"]
    assert chat.json["usage"]["completion_tokens"] == 8


def test_every_parameter_that_we_hand_on_is_taken(stack):
    """OC-ADAPT-5010#sampler: what its profile names, the server takes."""
    fields = {"top_p": 0.9, "top_k": 20, "min_p": 0.05, "typical_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.1,
              "dynatemp_range": 0.2, "min_keep": 2, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1,
              "temperature": 0.8, "stop": ["never said"]}
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=8, **fields)["job_id"])
    assert events[-1].name == "end", events[-1].data


def test_a_prompt_that_is_too_long(stack):
    job = stack.wait_terminal(stack.submit(model="tale", prompt="word " * 2000, max_tokens=4)["job_id"])
    assert job["error"]["code"] == "INVALID_PARAMS" and job["error"]["details"]["reason"] == "CONTEXT_TOO_LARGE"


def test_its_process_lives_and_dies_with_its_worker(stack):
    """SYS-6.2.5: no engine stays behind, and a crashed one is a lost worker."""
    stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])

    def child(worker):
        with open(f"/proc/{worker['pid']}/task/{worker['pid']}/children") as file:
            return [int(pid) for pid in file.read().split()][0]

    worker = stack.adapter()
    server = child(worker)
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for("the engine to be gone", lambda: not process_runs(server))
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"
    worker = stack.adapter()
    os.kill(child(worker), signal.SIGKILL)
    wait_for("its worker to leave", lambda: not process_runs(worker["pid"]))
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"


def test_a_model_file_that_is_none_says_why():
    """An engine that ends while it starts is a start that failed, and is not waited for."""
    args = [str(x) for x in ("--", PYTHON, SERVER, "--model", SERVER, "--port", "{port}")]

    class At:
        kind, url, model = "llamacpp", "http://127.0.0.1:{port}", ""

    with pytest.raises(AssertionError, match="WORKER_START_FAILED"):
        with Adapter(At, more=args) as adapter:
            one_end(adapter.run())
