"""What is gRPC's own about Triton over gRPC; what it shares with other engines is in test_engine_adapters.py."""

import subprocess

import pytest

import fake_grpc_engine
from adapter import Adapter, one_end, text
from fake_engine import Fault, tokens_of
from fake_grpc_engine import INPUTS, FakeGrpcEngine
from stack import wait_for

pytestmark = fake_grpc_engine.needed
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def running():
    with FakeGrpcEngine() as engine, Adapter(engine) as adapter:
        yield engine, adapter


@pytest.fixture(autouse=True)
def rest(request):
    yield
    if "running" in request.fixturenames:
        engine, _ = request.getfixturevalue("running")
        engine.script.clear()
        engine.gate.clear()
        engine.final_flag = True


def test_a_job_is_one_request_of_typed_tensors(running):
    """OC-ADAPT-5060#grpc: what the server decodes is what the job said, and the errors of its stream are asked for as statuses."""
    engine, adapter = running
    events = adapter.run(stop=["ä stop", "END"], top_k=40, top_p=0.5, repetition_penalty=1.5, seed=2**63 + 9)
    end = one_end(events).data
    assert engine.submissions()[-1] == {
        "text_input": PROMPT, "max_tokens": 12, "stream": True, "exclude_input_in_output": True,
        "return_num_input_tokens": True, "return_num_output_tokens": True, "temperature": 0.5, "top_k": 40, "top_p": 0.5,
        "repetition_penalty": 1.5, "random_seed": 2**63 + 9, "stop_words": ["ä stop", "END"]}
    assert (end["tokens_in"], end["tokens_out"]) == (4, 12)
    method, path, headers, _ = engine.requests[-1]
    assert path == "/inference.GRPCInferenceService/ModelStreamInfer"
    assert headers["Triton_Grpc_Error"] == "true"


def test_a_status_of_ok_is_an_end_without_a_last_message(running):
    engine, adapter = running
    engine.final_flag = False
    events = adapter.run()
    assert one_end(events).name == "end"
    assert text(events) == "".join(tokens_of(PROMPT, 7, 12))


def test_a_status_names_itself_and_not_the_prompt(running):
    engine, adapter = running
    engine.script += [Fault("status", status=429)] * 4
    error = one_end(adapter.run()).data
    assert (error["code"], error["details"]["upstream_code"]) == ("WORKER_BUSY", "RESOURCE_EXHAUSTED")
    assert "secret" not in str(error) + adapter.log()


@pytest.mark.parametrize("kind", ["endless_line", "bad_utf8", "bad_words", "garbage", "error_event"])
def test_what_breaks_before_the_first_token_ends_the_job(running, kind):
    engine, adapter = running
    engine.script.append(Fault(kind, after=0))
    error = one_end(adapter.run()).data
    assert error["code"] == "WORKER_RESET"
    assert "secret" not in str(error) + adapter.log()
    assert "libprotobuf" not in adapter.log()  # which would write lines of its own into it
    assert one_end(adapter.run()).name == "end"


def test_trailers_have_a_bound(running):
    """A job whose end is hidden in more trailers than any server needs is not whole."""
    engine, adapter = running
    engine.script.append(Fault("headers", after=3, count=2))
    assert one_end(adapter.run()).name == "end"
    engine.script.append(Fault("headers", after=3, count=100))
    assert one_end(adapter.run()).data["code"] == "WORKER_RESET"


def test_a_job_that_nobody_reads_holds_up_no_other(running):
    engine, adapter = running
    unread = adapter.stream(job_id="unread", max_tokens=30_000)
    first = next(iter(unread))
    assert first.name == "started"
    wait_for("the unread job to be asked", lambda: any(s["max_tokens"] == 30_000 for s in engine.submissions()))
    for _ in range(3):
        assert text(adapter.run()) == "".join(tokens_of(PROMPT, 7, 12))
    unread.close()
    adapter.wait_idle()


def test_a_model_is_asked_for_what_it_takes():
    """An ensemble without the inputs of counts would refuse them, so its metadata decides; what a job needs is not left out."""
    inputs = {name: kind for name, kind in INPUTS.items() if not name.startswith("return_") and name != "stop_words"}
    with FakeGrpcEngine(inputs=inputs) as engine, Adapter(engine) as adapter:
        end = one_end(adapter.run()).data
        assert (end["tokens_in"], end["tokens_out"]) == (0, 12)
        refused = adapter.request("POST", "/execute",
                                  {"job_id": "j", "prompt": "x", "max_tokens": 1, "stop": ["END"]})
        assert (refused.status, refused.code) == (400, "INVALID_PARAMS")
        assert "stop" in refused.body.decode()


def test_a_model_that_is_not_ready_is_waited_for():
    with FakeGrpcEngine() as engine:
        engine.ready = False
        waits = Adapter(engine, start_timeout_ms=500)
        with pytest.raises(AssertionError, match="it says that it is not ready"):
            waits.__enter__()
        waits.__exit__()


def test_keys_and_certificates(tmp_path):
    """OC-ADAPT-OAI-6020 OC-ADAPT-OAI-6021#tls: as over HTTP, and the server's words about a key are not repeated."""
    key, cert, secret = tmp_path / "key.pem", tmp_path / "cert.pem", "sk-verysecretkey0123456789abcdef"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with FakeGrpcEngine(key=secret, certificate=(cert, key)) as engine:
        with Adapter(engine, key=secret, more=["--ca-file", str(cert)]) as adapter:
            assert text(adapter.run()) == "".join(tokens_of(PROMPT, 7, 12))
            assert all(headers["Authorization"] == f"Bearer {secret}" for _, _, headers, _ in engine.requests)
            engine.key = "another"
            error = one_end(adapter.run()).data
            assert error["details"]["reason"] == "upstream_auth"
            for words in (adapter.log(), str(error), adapter.request("GET", "/metrics").body.decode()):
                assert secret not in words and PROMPT not in words and "triton_grpc_error" not in words
        wrong = Adapter(engine, key=secret, more=["--ca-file", str(cert)])
        with pytest.raises(AssertionError, match="refuses the key"):
            wrong.__enter__()
        wrong.__exit__()
        seen = len(engine.requests)
        stranger = Adapter(engine, key=secret, start_timeout_ms=1000)
        with pytest.raises(AssertionError, match="WORKER_START_TIMEOUT"):
            stranger.__enter__()
        stranger.__exit__()
        assert len(engine.requests) == seen


def test_others_do_not_speak_grpc():
    with FakeGrpcEngine() as engine:
        engine.kind = "vllm"
        other = Adapter(engine)
        with pytest.raises(AssertionError, match="exited 2"):
            other.__enter__()
        other.__exit__()
