"""The server in the Python package llama-cpp-python, which speaks the OpenAI API, as an engine that runs already. Skipped, visibly, without it:
LLORCH_LLAMA_PYTHON names an interpreter that has llama-cpp-python[server]."""

import os
import socket
import subprocess
import urllib.request

import pytest

from adapter import text
from engine_stack import EngineStack
from stack import HANG_S, MODEL, wait_for

PYTHON = os.environ.get("LLORCH_LLAMA_PYTHON", "")
pytestmark = pytest.mark.skipif(
    not PYTHON or subprocess.run([PYTHON, "-c", "import llama_cpp.server.app"], capture_output=True, timeout=HANG_S).returncode != 0,
    reason="no llama-cpp-python[server]: LLORCH_LLAMA_PYTHON names an interpreter that has it")


@pytest.fixture(scope="module")
def stack():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    server = subprocess.Popen([PYTHON, "-m", "llama_cpp.server", "--model", str(MODEL), "--port", str(port), "--n_ctx", "512"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers():
        try:
            return urllib.request.urlopen(f"{url}/models", timeout=HANG_S).status == 200
        except OSError:
            assert server.poll() is None, "it ended"
            return False

    try:
        wait_for("its server", answers, every_s=0.1)
        with EngineStack([{"name": "tale", "engine": "openai", "endpoint": url, "slots": 1}]) as running:
            yield running
    finally:
        server.kill()
        server.wait()


def test_a_prompt_and_a_conversation(stack):
    """OC-ADAPT-OAI-6001: streamed, one end each."""
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=12)["job_id"])
    assert events[-1].name == "end" and events[-1].data["tokens_out"] == 12 and text(events)
    body = {"model": "tale", "messages": [{"role": "user", "content": "Tell"}], "max_tokens": 4}
    answer = stack.request("POST", "/v1/chat/completions", body)
    assert answer.status == 200 and answer.json["choices"][0]["message"]["role"] == "assistant", answer.body


def test_a_cancelled_job_frees_the_server(stack):
    job = stack.submit(model="tale", max_tokens=400)["job_id"]
    wait_for("its first token", lambda: stack.job(job)["tokens_out"] > 0)
    stack.request("DELETE", f"/v2/tasks/{job}")
    assert stack.wait_terminal(job)["status"] == "cancelled"
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"
