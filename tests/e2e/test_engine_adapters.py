"""Engines of other systems behind worker-adapterd: one suite for every kind. The engines are fake_engine.py, which is held to their
documented APIs, and llama.cpp itself where the package that brings it is there."""

import contextlib
import hashlib
import subprocess
import threading

import pytest

import fake_grpc_engine
import llamacpp
from adapter import Adapter, one_end, text
from fake_engine import CONTEXT, FakeEngine, Fault, tokens_of
from fake_grpc_engine import FakeGrpcEngine
from metrics_text import documented, parse
from fault_proxy import FaultProxy
from stack import wait_for

KINDS = ["llamacpp", "openai", "vllm", "tgi", "triton", pytest.param("triton-grpc", marks=fake_grpc_engine.needed)]
PROMPT = "Once upon a time"


class Pair:
    """An engine and its adapter, shared by the tests of a kind, which leave both as they found them."""

    real = False
    grpc = False

    def __init__(self, kind):
        self.engine = FakeGrpcEngine() if kind == "triton-grpc" else FakeEngine(kind)
        self.grpc = kind == "triton-grpc"
        self.adapter = Adapter(self.engine)

    def __enter__(self):
        self.adapter.__enter__()
        return self

    def __exit__(self, *_):
        self.adapter.__exit__()
        self.engine.close()

    def texts(self):
        """Of the twelve tokens of an answer."""
        return tokens_of(PROMPT, 7, 12)


class RealPair(Pair):
    """llama.cpp's own server with the demo model; a proxy does what it cannot be asked to do."""

    real = True

    def __init__(self):
        self.stack = contextlib.ExitStack()
        server = self.stack.enter_context(llamacpp.Server())
        self.engine = FaultProxy("llamacpp", server.url)
        self.adapter = Adapter(self.engine)

    def __enter__(self):
        super().__enter__()
        self.answer = [e.data["t"] for e in self.adapter.run() if e.name == "token"]
        assert len(self.answer) == 12
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.stack.close()

    def texts(self):
        return self.answer


@pytest.fixture(scope="module", params=[*KINDS, pytest.param("llama.cpp", marks=llamacpp.needed)])
def pair(request):
    with RealPair() if request.param == "llama.cpp" else Pair(request.param) as running:
        yield running


@pytest.fixture(autouse=True)
def rest(request):
    yield
    if "pair" in request.fixturenames:
        pair = request.getfixturevalue("pair")
        pair.engine.script.clear()
        pair.engine.gate.clear()


def test_order_usage_and_receipt(pair):
    """AH-1003 ORCH-3602 OC-ADAPT-OAI-6011 OC-ADAPT-OAI-6031 OC-ADAPT-OAI-6001: tokens in order, counted as the engine counts them."""
    events = pair.adapter.run()
    end = one_end(events).data
    assert text(events) == "".join(pair.texts())
    assert end["tokens_out"] == 12 == sum(e.name == "token" for e in events)
    if pair.real:
        assert end["tokens_in"] > 0
    elif pair.engine.kind != "triton" or pair.grpc:  # whose ensembles need not tell
        assert end["tokens_in"] == 4
    assert end["stop_reason"] == "max_tokens"
    receipt = end["receipt"]
    assert receipt["partial"] is True and receipt["seed"] == 7 and receipt["tokens_out"] == 12
    assert receipt["output_sha256"] == hashlib.sha256(text(events).encode()).hexdigest()
    assert receipt["prompt_sha256"] == hashlib.sha256(PROMPT.encode()).hexdigest()
    if pair.real:
        assert receipt["engine_build"].startswith("llamacpp/")
    else:
        known = pair.engine.version if pair.engine.kind != "openai" else "unknown"
        assert receipt["engine_build"] == f"{pair.engine.kind}/{known}"


def test_stop_texts_and_end_of_text(pair):
    if pair.real:
        return  # test_engine_llamacpp.py: where it cuts is the model's affair
    texts = pair.texts()
    events = pair.adapter.run(stop=[texts[4].strip()])
    assert text(events).strip() == "".join(texts[:4]).strip()
    if pair.engine.kind in ("llamacpp", "tgi", "vllm"):  # the others do not say why
        assert one_end(events).data["stop_reason"] == "stop"
    pair.engine.eos_after = 3
    try:
        end = one_end(pair.adapter.run()).data
    finally:
        pair.engine.eos_after = None
    assert (end["tokens_out"], end["stop_reason"]) == (3, "eos")


def test_conversations_are_told_by_the_engine(pair):
    """OC-ADAPT-5010#templates"""
    messages = [{"role": "user", "content": "Hello"}]
    if pair.engine.kind == "triton":
        response = pair.adapter.request("POST", "/execute", {"job_id": "j", "messages": messages, "max_tokens": 4})
        assert (response.status, response.code) == (400, "INVALID_PARAMS")
        return
    events = pair.adapter.run(messages=messages)
    one_end(events)
    assert pair.engine.submissions()[-1]["messages"] == messages
    assert text(events)


def test_cancel_frees_the_slot_and_the_engine(pair):
    """OC-ADAPT-OAI-6000#cancel OC-ADAPT-OAI-6000#submit: the engine's connection closes, and with it its work. The engine is held
    meanwhile and sends nothing, so the end comes of the cancel alone.

    ADAPT-3001 AH-1004 ORCH-3603"""
    pair.engine.script.append(Fault("gate", after=3))
    stream = pair.adapter.stream(job_id="cancel-me", execution_id="e1", max_tokens=50)
    events = iter(stream)
    for event in events:
        if event.name == "token" and event.data["i"] == 2:
            break
    other = pair.adapter.request("POST", "/cancel", {"job_id": "cancel-me", "execution_id": "e2"})
    assert other.json["status"] == "unknown"
    answer = pair.adapter.request("POST", "/cancel", {"job_id": "cancel-me", "execution_id": "e1"})
    assert (answer.status, answer.json["status"]) == (202, "cancelling")
    last = list(events)[-1]
    assert (last.name, last.data["code"]) == ("error", "CANCELLED")
    assert pair.engine.disconnects.acquire(timeout=60)
    pair.adapter.wait_idle()
    again = pair.adapter.request("POST", "/cancel", {"job_id": "cancel-me", "execution_id": "e1"})
    assert (again.status, again.json["status"]) == (202, "unknown")


def test_a_client_that_leaves_ends_the_work(pair):
    pair.engine.script.append(Fault("gate", after=2))
    stream = pair.adapter.stream(job_id="left", max_tokens=50)
    for event in stream:
        if event.name == "token":
            break
    stream.close()
    assert pair.engine.disconnects.acquire(timeout=60)
    pair.adapter.wait_idle()


def test_a_slow_engine_is_waited_for(pair):
    """The first token is late, and a text comes in pieces of bytes that the network cuts as it likes."""
    pair.engine.script.append(Fault("gate", after=0))
    done = []
    thread = threading.Thread(target=lambda: done.append(pair.adapter.run(job_id="slow")))
    thread.start()
    wait_for("the job to run", lambda: pair.adapter.health()["slots_free"] == 3)
    pair.engine.gate.set()
    thread.join(120)
    assert text(done[0]) == "".join(pair.texts())


@pytest.mark.parametrize("cut", ["bytes", "one_chunk"])
def test_chunks_may_be_of_any_size(pair, cut):
    """A byte at a time, in the middle of code points, or the whole answer at once.

    ORCH-3612"""
    pair.engine.script.append(Fault(cut))
    events = pair.adapter.run()
    assert one_end(events).data["tokens_out"] == 12
    assert text(events) == "".join(pair.texts())


@pytest.mark.parametrize("status", [429, 500, 503])
def test_refusals_are_asked_again_before_the_first_token(pair, status):
    """AH-1005 ORCH-3611 OC-ADAPT-OAI-6002#retries OC-ADAPT-OAI-6030#logged: twice refused, then served; the answer is whole and comes once."""
    before = pair.adapter.metric("worker_upstream_retries_total")
    headers = {"Retry-After": "0"} if status == 429 else {}
    pair.engine.script += [Fault("status", status=status, headers=headers)] * 2
    events = pair.adapter.run()
    one_end(events)
    assert text(events) == "".join(pair.texts())
    assert pair.adapter.metric("worker_upstream_retries_total") == before + 2
    assert '"event":"upstream.retry"' in pair.adapter.log().replace(": ", ":")


@pytest.mark.parametrize("status,code", [(429, "WORKER_BUSY"), (503, "WORKER_UNAVAILABLE")])
def test_retries_come_to_an_end(pair, status, code):
    pair.engine.script += [Fault("status", status=status)] * 4
    error = one_end(pair.adapter.run()).data
    assert error["code"] == code and error["retriable"] is True
    assert error["details"]["upstream_status"] == status
    assert not pair.engine.script


def test_what_the_engine_refuses_is_not_asked_again(pair):
    before = len(pair.engine.submissions())
    pair.engine.script.append(Fault("status", status=422, body={"error": "Input: a secret", "error_type": "validation"}))
    error = one_end(pair.adapter.run()).data
    assert (error["code"], error["details"]["upstream_status"]) == ("INVALID_PARAMS", 400 if pair.grpc else 422)
    assert "secret" not in str(error)
    assert len(pair.engine.submissions()) == before + 1


def test_a_connection_that_breaks_before_the_first_token_is_tried_again(pair):
    pair.engine.script += [Fault("close"), Fault("die", after=0)]
    events = pair.adapter.run()
    one_end(events)
    assert text(events) == "".join(pair.texts())


def test_an_engine_that_is_overloaded_within_its_answer_is_asked_again(pair):
    """What comes in one read behind the error belongs to no attempt."""
    if pair.real or pair.grpc:
        return  # such an event is of HTTP engines
    before = pair.adapter.metric("worker_upstream_retries_total")
    pair.engine.script.append(Fault("overloaded", after=0))
    events = pair.adapter.run()
    assert one_end(events).data["tokens_out"] == 12
    assert text(events) == "".join(pair.texts())
    assert pair.adapter.metric("worker_upstream_retries_total") == before + 1


@pytest.mark.parametrize("kind", ["die", "bad_utf8", "garbage", "error_event", "endless_line"])
def test_what_breaks_behind_the_first_token_ends_the_job(pair, kind):
    """ORCH-3058#adapter ORCH-3058#faults: no second answer behind the first; whoever has read its beginning gets WORKER_RESET, and no prompt in it."""
    pair.engine.script.append(Fault(kind, after=4))
    events = pair.adapter.run()
    error = one_end(events).data
    assert error["code"] == "WORKER_RESET", error
    assert "secret" not in str(error)
    assert text(events) == "".join(pair.texts()[:4])
    pair.adapter.wait_idle()
    assert one_end(pair.adapter.run()).name == "end"  # and the next job runs


def test_bytes_that_are_no_answer_end_the_job(pair):
    pair.engine.script.append(Fault("garbage", after=0))
    assert one_end(pair.adapter.run()).data["code"] == "WORKER_RESET"


def test_slots_bound_what_runs(pair):
    pair.engine.script += [Fault("gate", after=1)] * 4
    streams = [pair.adapter.stream(job_id=f"slot-{i}") for i in range(4)]
    wait_for("four jobs to run", lambda: pair.adapter.health()["slots_free"] == 0)
    refused = pair.adapter.request("POST", "/execute", {"job_id": "fifth", "prompt": "x", "max_tokens": 1})
    assert (refused.status, refused.code) == (503, "WORKER_BUSY")
    pair.engine.gate.set()
    for stream in streams:
        one_end(list(stream))
    pair.adapter.wait_idle()


def test_too_long_prompts_are_refused_with_the_reason(pair):
    if pair.engine.kind in ("tgi", "triton"):
        return  # their refusals are in engine_test.cpp
    error = one_end(pair.adapter.run(prompt="word " * (CONTEXT + 1))).data
    assert (error["code"], error["details"]["reason"]) == ("INVALID_PARAMS", "CONTEXT_TOO_LARGE")


def test_health_says_what_the_engine_said(pair):
    """ADAPT-3000 ADAPT-3002 OC-ADAPT-5011 OC-ADAPT-5030 OC-ADAPT-5050 OC-ADAPT-5070 OC-ADAPT-OAI-6010"""
    health = pair.adapter.health()
    assert health["status"] == "healthy" and health["worker_id"] == "adapter-1"
    assert health["sampler"] == pair.engine.kind and health["numerics"] == "foreign"
    wanted = {"llamacpp": CONTEXT, "vllm": CONTEXT, "tgi": CONTEXT}.get(pair.engine.kind, 0)
    assert health["context_length"] == wanted


def test_nobody_reaches_the_engine_but_by_a_job(pair):
    """OC-ADAPT-5002 OC-ADAPT-5021 OC-ADAPT-OAI-6003: the engine's own API is not served again; what is served is a worker's."""
    seen = len(pair.engine.requests)
    for path in ("/v1/chat/completions", "/v1/completions", "/completion", "/generate", "/v2/models/tale/generate"):
        assert pair.adapter.request("POST", path, {"prompt": "x", "messages": []}).status == 404
    for path in ("/v1/models", "/props", "/info", "/v2", "/slots"):
        assert pair.adapter.request("GET", path).status == 404
    asked = [path for _, path, _, _ in pair.engine.requests[seen:] if "health" not in path and "ready" not in path.lower()]
    assert set(asked) <= {"/v1/models"}, asked  # which is how a server of the OpenAI API is asked whether it is well


def test_what_a_job_did_is_counted(pair):
    """OC-ADAPT-5020 ORCH-3055 OC-ADAPT-OAI-6031: health, completion, cancel and metrics, of every kind."""
    assert pair.adapter.health()["status"] == "healthy"
    names = ("worker_tokens_generated_total", "worker_first_tokens_total")
    before = [pair.adapter.metric(name) for name in names]
    one_end(pair.adapter.run())
    assert [pair.adapter.metric(name) for name in names] == [before[0] + 12, before[1] + 1]
    text = pair.adapter.request("GET", "/metrics").body.decode()
    assert "worker_upstream_up" in text and PROMPT not in text
    page = documented()["worker-adapterd"]
    for name, family in parse(text).items():
        assert (page[name].kind, page[name].help) == (family.kind, family.help), name
        assert all(labels.keys() == page[name].labels for labels, _ in family.series), name


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_that_goes_is_seen_and_comes_back(kind):
    """OC-ADAPT-OAI-6000#health"""
    made = FakeGrpcEngine() if kind == "triton-grpc" else FakeEngine(kind)
    with made as engine, Adapter(engine, more=["--probe-interval-ms", "50"]) as adapter:
        engine.down = True
        wait_for("the adapter to see it", lambda: adapter.health()["status"] == "unhealthy")
        engine.down = False
        wait_for("the adapter to see it back", lambda: adapter.health()["status"] == "healthy")
        assert one_end(adapter.run()).name == "end"


def test_keys_are_sent_and_told_nobody():
    """ORCH-3613 OC-ADAPT-OAI-6020: the key reaches the engine, and neither log, error, metrics nor command line."""
    key = "sk-verysecretkey0123456789abcdef"
    with FakeEngine("openai", key=key) as engine, Adapter(engine, key=key) as adapter:
        one_end(adapter.run())
        assert all(headers["Authorization"] == f"Bearer {key}" for _, _, headers, _ in engine.requests)
        engine.key = "another"
        error = one_end(adapter.run()).data
        assert error["details"]["reason"] == "upstream_auth"
        with open(f"/proc/{adapter.process.pid}/cmdline", "rb") as file:
            told = [adapter.log(), str(error), adapter.request("GET", "/metrics").body.decode(), str(adapter.health()),
                    file.read().decode()]
        for words in told:
            assert key not in words and PROMPT not in words and "Authorization" not in words


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "key"
    path.write_text("sk-open")
    path.chmod(0o644)
    with FakeEngine("openai") as engine:
        adapter = Adapter(engine, more=["--api-key-file", str(path)])
        with pytest.raises(AssertionError, match="can be read by others"):
            adapter.__enter__()
        adapter.__exit__()


def test_a_server_may_take_conversations_alone_and_have_names_of_its_own():
    names = {"max_tokens": "max_completion_tokens", "seed": "random_seed"}
    with FakeEngine("openai", chat_names=names) as engine:
        flags = [word for field, name in names.items() for word in ("--field-name", f"{field}={name}")]
        with Adapter(engine, more=flags) as adapter:
            events = adapter.run(messages=[{"role": "user", "content": PROMPT}])
            assert one_end(events).name == "end" and len([e for e in events if e.name == "token"]) == 12
            assert adapter.run()[-1].data["code"] == "MODEL_NOT_FOUND"


def test_an_engine_with_another_model_is_refused():
    with FakeEngine("vllm", model="other") as engine:
        adapter = Adapter(engine, more=["--model", "tale"])
        with pytest.raises(AssertionError):
            adapter.__enter__()
        adapter.__exit__()


def test_one_that_fails_again_and_again_is_left_alone():
    """ORCH-3604 After failures in a row nothing is asked of it for a while, and then one job is."""
    with FakeEngine("vllm") as engine, Adapter(engine) as adapter:
        engine.script += [Fault("status", status=503)] * 40
        refused = None
        for _ in range(4):
            response = adapter.request("POST", "/execute", {"job_id": "j", "prompt": "x", "max_tokens": 2})
            if response.status == 503:
                refused = response
                break
        assert refused is not None and refused.code == "WORKER_UNAVAILABLE"
        assert refused.envelope["retry_after_ms"] > 0
        engine.script.clear()
        assert adapter.metric("worker_upstream_breaker_open") == 1

        def served():
            response = adapter.request("POST", "/execute", {"job_id": "j", "prompt": "x", "max_tokens": 2})
            return response.status == 200 and b"event: end" in response.body

        wait_for("the engine to be asked again", served, every_s=0.2)
        assert adapter.metric("worker_upstream_breaker_open") == 0


def test_an_engine_elsewhere_is_known_by_its_certificate(tmp_path):
    """ORCH-3610 OC-ADAPT-OAI-6021#tls: one that no authority of ours vouches for gets neither prompt nor key."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with FakeEngine("vllm", key="sk-right", certificate=(cert, key)) as engine:
        with Adapter(engine, key="sk-right", more=["--ca-file", str(cert)]) as adapter:
            assert text(adapter.run()) == "".join(tokens_of(PROMPT, 7, 12))
        seen = len(engine.requests)
        stranger = Adapter(engine, key="sk-right", start_timeout_ms=1000)
        with pytest.raises(AssertionError, match="WORKER_START_TIMEOUT"):
            stranger.__enter__()
        stranger.__exit__()
        assert len(engine.requests) == seen


def test_a_proxy_is_used_where_it_is_named_and_nowhere_else(monkeypatch):
    """OC-ADAPT-OAI-6021#proxy"""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with FakeEngine("vllm") as engine:
        with Adapter(engine) as adapter:
            assert one_end(adapter.run()).name == "end"
        direct = len(engine.requests)
        named = Adapter(engine, more=["--proxy", "http://127.0.0.1:9"], start_timeout_ms=1000)
        with pytest.raises(AssertionError, match="WORKER_START_TIMEOUT"):
            named.__enter__()
        named.__exit__()
        assert len(engine.requests) == direct
