"""NVIDIA's own Triton, of the package nvidia-pytriton, with a decoupled model of text on the CPU: over HTTP and over gRPC, by itself
and behind the queue. LLORCH_TRITON_PYTHON names an interpreter that has triton_requirements.txt."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from adapter import Adapter, one_end, text
from engine_stack import EngineStack, entry
from fake_engine import tokens_of
from stack import HANG_S

PYTHON = os.environ.get("LLORCH_TRITON_PYTHON", sys.executable)
HERE = pathlib.Path(__file__).parent
has_triton = subprocess.run([PYTHON, "-c", "import pytriton.triton"], capture_output=True, timeout=HANG_S, check=False).returncode == 0
pytestmark = pytest.mark.skipif(not has_triton, reason="no nvidia-pytriton (tests/e2e/triton_requirements.txt): name an interpreter "
                                                       "that has it in LLORCH_TRITON_PYTHON")
PROMPT = "Once upon a time"


class Endpoint:
    kind, model = "triton", "tale"

    def __init__(self, url):
        self.url = url


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Its endpoints, over HTTP and over gRPC."""
    directory = tmp_path_factory.mktemp("triton")
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen([PYTHON, str(HERE / "triton_server.py"), str(directory)], stdout=subprocess.PIPE,
                                   stderr=log, cwd=directory, start_new_session=True)
    try:
        ports = None
        for line in process.stdout:  # the server's own words come first
            with contextlib.suppress(ValueError):
                ports = json.loads(line)
                break
        assert ports, (directory / "log").read_text()[-2000:]
        yield {"http": Endpoint(f"http://127.0.0.1:{ports[0]}"), "grpc": Endpoint(f"grpc://127.0.0.1:{ports[1]}")}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(HANG_S)
        process.stdout.close()


@pytest.fixture(scope="module", params=["http", "grpc"])
def adapter(request, server):
    with Adapter(server[request.param], start_timeout_ms=120_000) as running:
        running.over = request.param
        yield running


def test_its_tokens_come_in_order(adapter):
    """OC-ADAPT-5060#grpc: the decoupled model streams, and what the job says arrives in the inputs' types."""
    events = adapter.run(seed=(1 << 62) + 5, stop=["never", "said"])
    end = one_end(events).data
    assert text(events) == "".join(tokens_of(PROMPT, (1 << 62) + 5, 12))
    assert (end["tokens_out"], end["tokens_in"], end["stop_reason"]) == (12, 4, "max_tokens")
    assert end["receipt"]["engine_build"].startswith("triton/2.")


def test_a_long_prompt_and_many_tokens(adapter):
    """More than a window of HTTP/2 on the way there, and hundreds of messages on the way back."""
    prompt = "word " * 20_000
    events = adapter.run(prompt=prompt, max_tokens=500)
    assert text(events) == "".join(tokens_of(prompt, 7, 500)) and one_end(events).data["tokens_in"] == 20_000


def test_what_its_model_raises_ends_the_job_without_its_words(adapter):
    error = one_end(adapter.run(prompt="refuse this")).data
    assert error["code"] in ("WORKER_UNAVAILABLE", "WORKER_RESET", "INVALID_PARAMS")
    assert "secret" not in json.dumps(error) and "secret" not in adapter.log()
    if adapter.over == "grpc":  # a status, because the call asks for one
        assert error["details"]["upstream_code"] == "INTERNAL"
    adapter.wait_idle()


def test_a_cancelled_job_ends_and_the_next_runs(adapter):
    for event in adapter.stream(prompt="slow tale", job_id="cancel-me", max_tokens=400):
        if event.name == "token" and event.data["i"] == 2:
            assert adapter.request("POST", "/cancel", {"job_id": "cancel-me"}).status == 202
    assert (event.name, event.data["code"]) == ("error", "CANCELLED")
    adapter.wait_idle()
    assert one_end(adapter.run()).name == "end"


def test_jobs_beside_one_another(adapter):
    streams = [adapter.stream(job_id=f"beside-{i}", seed=i, max_tokens=40) for i in range(4)]
    for i, stream in enumerate(streams):
        events = list(stream)
        assert one_end(events).name == "end", events[-1].data
        assert text(events) == "".join(tokens_of(PROMPT, i, 40))


@pytest.mark.parametrize("over", ["http", "grpc"])
def test_a_job_of_ours_runs_through_it(server, over):
    """Configuration, pool, queue, adapter, Triton."""
    with EngineStack([entry(server[over])]) as stack:
        job = stack.submit(model="tale", prompt=PROMPT, max_tokens=12, seed=7)["job_id"]
        events = stack.read_to_end(job)
        assert events[-1].name == "end" and text(events) == "".join(tokens_of(PROMPT, 7, 12))
        assert stack.wait_terminal(job)["receipt"]["engine_build"].startswith("triton/2.")
