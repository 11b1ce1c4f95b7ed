"""POST /v2/tasks?stream=true and ?wait=true: one request that submits a job and is answered with its stream or its result."""

import hashlib
import http.client
import json
import threading
import urllib.parse
import uuid

import pytest

from stack import ALIAS, HANG_S, EventStream, Stack, wait_for

TOKENS = 24


@pytest.fixture(scope="module")
def stack():
    with Stack() as running:
        yield running


@pytest.fixture(autouse=True)
def open_gate(stack):
    """Whatever a test held, the next one finds open."""
    yield
    stack.gate.open()


def task(**fields):
    return {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": TOKENS, "seed": 7, **fields}


def post(stack, query, **fields):
    return stack.request("POST", f"/v2/tasks?{query}", task(**fields))


def tokens_of(events):
    return [(e.id, e.data["i"], e.data["t"]) for e in events if e.name == "token"]


@pytest.fixture(scope="module")
def undisturbed(stack):
    """The events of the same job, submitted and then read."""
    return stack.read_to_end(stack.submit(max_tokens=TOKENS)["job_id"])


class Waiting(threading.Thread):
    """A client that waits for a result; `response` is None if its connection broke."""

    def __init__(self, stack, **fields):
        super().__init__(daemon=True)
        parsed = urllib.parse.urlsplit(stack.url)
        self.connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=HANG_S)
        self.connection.request("POST", "/v2/tasks?wait=true", json.dumps(task(**fields)), {"Content-Type": "application/json"})
        self.response = None
        self.start()

    def run(self):
        try:
            answer = self.connection.getresponse()
            self.response = answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException):
            pass

    def answer(self):
        self.join(HANG_S)
        assert not self.is_alive()
        return self.response

    def leave(self):
        self.connection.sock.shutdown(2)
        self.join(HANG_S)


def job_of(stack, task_id):
    """The job of a task_id that is a UUID has the same id."""
    def found():
        response = stack.request("GET", f"/v2/tasks/{task_id}")
        return response.json if response.status == 200 else None

    return wait_for("the job to be admitted", found)


def held(stack, task_id):
    """Waits until the job runs and has said a token."""
    wait_for("the job to run", lambda: job_of(stack, task_id)["status"] == "running")
    stack.gate.let_pass(3)
    wait_for("the job to say them", lambda: stack.gate.steps_left() == 0 and job_of(stack, task_id)["tokens_out"] > 0)


def test_a_submission_is_answered_with_its_stream(stack, undisturbed):
    """The same events under the same ids, beginning with queued, which names the job."""
    stream = EventStream(stack.url, "/v2/tasks?stream=true", body=task())
    assert stream.status == 200 and stream.response.getheader("Content-Type") == "text/event-stream"
    events = [e for e in stream if e.id]
    assert tokens_of(events) == tokens_of(undisturbed)
    assert [e.name for e in events] == ["queued", "started", *["token"] * (len(events) - 3), "end"]
    assert stack.job(events[0].data["job_id"])["last_event_id"] == events[-1].id


def test_a_submission_is_answered_with_its_result(stack, undisturbed):
    """The text is the one that the receipt signs."""
    response = post(stack, "wait=true")
    assert response.status == 200, response.body
    result = response.json
    assert result["text"] == "".join(t for _, _, t in tokens_of(undisturbed))
    assert hashlib.sha256(result["text"].encode()).hexdigest() == result["receipt"]["output_sha256"]
    end = undisturbed[-1].data
    assert {k: result[k] for k in ("tokens_in", "tokens_out", "stop_reason", "receipt")} == \
        {k: end[k] for k in ("tokens_in", "tokens_out", "stop_reason", "receipt")}
    assert "logprobs" not in result and stack.job(result["job_id"])["status"] == "completed"


def test_a_result_has_the_logprobs_of_its_tokens(stack):
    result = post(stack, "wait=true", logprobs=True, top_logprobs=2, max_tokens=5).json
    assert len(result["logprobs"]) == result["tokens_out"] == 5
    assert b"".join(bytes(entry["bytes"]) for entry in result["logprobs"]).decode() == result["text"]


def test_max_tokens_may_be_left_out(stack):
    """Then the answer may take what the context has left, within the server's limit."""
    body = {k: v for k, v in task(temperature=0).items() if k != "max_tokens"}
    with Stack({"orchestratord.limits.max_tokens": "6"}) as small:
        result = small.request("POST", "/v2/tasks?wait=true", body).json
        assert result["tokens_out"] == 6 and result["stop_reason"] == "max_tokens"
    result = stack.request("POST", "/v2/tasks?wait=true", {**body, "max_tokens": None}).json
    assert result["tokens_out"] > 6 and result["stop_reason"] in ("eos", "max_tokens")


@pytest.mark.parametrize("query, reason", [("stream=yes", "type"), ("wait=", "type"), ("stream=true&wait=true", "combination"),
                                           ("watch=true", "unknown"), ("stream=true&x", "unknown")])
def test_queries_that_say_nothing_clear_are_refused(stack, query, reason):
    response = post(stack, query)
    assert response.status == 400 and response.code == "INVALID_PARAMS", response.body
    assert response.json["error"]["details"]["reason"] == reason


@pytest.mark.parametrize("query", ["stream=true", "wait=true"])
def test_refusals_are_ordinary_errors(stack, query):
    """OC-CTRL-2028 ORCH-3406: with a status, before any stream."""
    assert post(stack, query, model="no-such-model").code == "MODEL_NOT_FOUND"
    assert post(stack, query, max_tokens=0).status == 400
    too_long = post(stack, query, max_tokens=50_000)
    assert too_long.status == 400 and too_long.json["error"]["details"]["reason"] == "CONTEXT_TOO_LARGE"
    accepted = post(stack, query + "&stream=false&wait=false")
    assert accepted.status == 202, "the last of equal keys counts"
    stack.wait_terminal(accepted.json["job_id"])


def test_a_job_that_fails_is_an_error_with_its_status(stack):
    task_id = str(uuid.uuid4())
    stack.gate.hold()
    waiting = Waiting(stack, task_id=task_id)
    held(stack, task_id)
    assert stack.request("DELETE", f"/v2/tasks/{task_id}").status == 202
    status, body = waiting.answer()
    stack.gate.open()
    assert status == 499 and body["error"]["code"] == "CANCELLED"
    assert body["error"]["details"]["job_id"] == task_id and "text" not in body
    assert post(stack, "wait=true", task_id=task_id).status == 499, "and again from its row"
    last_event_id = {"Last-Event-ID": stack.job(task_id)["last_event_id"]}
    again = stack.request("POST", "/v2/tasks?wait=true", task(task_id=task_id), last_event_id)
    assert again.status == 499 and again.code == "CANCELLED", "a result is whole, whatever its client says it holds"


def test_a_client_that_goes_away_cancels_its_job(stack):
    """SYS-7.4.1: as the client of any stream does."""
    task_id = str(uuid.uuid4())
    stack.gate.hold()
    waiting = Waiting(stack, task_id=task_id)
    held(stack, task_id)
    waiting.leave()
    ended = stack.wait_terminal(task_id)
    stack.gate.open()
    assert ended["status"] == "cancelled"


def test_a_result_that_was_lost_is_asked_for_again(stack, undisturbed):
    """With on_disconnect resume, the same request under the same task_id waits for the same job."""
    task_id = str(uuid.uuid4())
    stack.gate.hold()
    first = Waiting(stack, task_id=task_id, on_disconnect="resume")
    held(stack, task_id)
    first.leave()
    second = Waiting(stack, task_id=task_id, on_disconnect="resume")
    third = Waiting(stack, task_id=task_id, on_disconnect="resume")
    stack.gate.open()
    text = "".join(t for _, _, t in tokens_of(undisturbed))
    for client in (second, third):
        status, result = client.answer()
        assert status == 200 and result["text"] == text and result["job_id"] == task_id
    assert stack.job(task_id)["attempts"] == 1


def test_an_idempotency_key_is_a_task_id(stack):
    """CLOUD-503: the same key with the same body is the same job, with another body a conflict."""
    key = str(uuid.uuid4())
    send = lambda **fields: stack.request("POST", "/v2/tasks", task(**fields), {"Idempotency-Key": key})
    first = send().json
    assert first["task_id"] == key and send().json["job_id"] == first["job_id"]
    assert stack.submit(max_tokens=TOKENS, task_id=key)["job_id"] == first["job_id"]
    assert send(seed=8).code == "CONFLICT" and send(task_id="other").code == "INVALID_PARAMS"
    stack.wait_terminal(first["job_id"])


def test_an_output_is_not_kept_for_who_comes_too_late():
    """Promise 5: what no client can be given any more is refused, never told as an empty text."""
    with Stack({"orchestratord.stream.retain_ms": "1000", "orchestratord.stream.reconnect_grace_ms": "1000"}) as stack:
        task_id = str(uuid.uuid4())
        assert post(stack, "wait=true", task_id=task_id).status == 200
        late = wait_for("the tokens to go", lambda: (r := post(stack, "wait=true", task_id=task_id)).status != 200 and r)
        assert late.status == 410 and late.code == "STREAM_OFFSET_GONE"
        assert [e.name for e in EventStream(stack.url, "/v2/tasks?stream=true", body=task(task_id=task_id))] == ["end"]


def kill_in_the_middle(stack, task_id):
    held(stack, task_id)
    stack.orchestrator.kill()
    stack.orchestrator.wait()
    stack.gate.open()
    stack.start_orchestrator()
    wait_for("service after the restart", lambda: stack.request("GET", "/v2/health").status == 200)


def repeated(stack, send):
    """Right after the start the model is not known yet (POOL_UNREADY), and nobody listens for a while."""
    return wait_for("an answer", lambda: (r := send()).status != 503 and r)


def test_a_result_survives_kill_9(stack, undisturbed):
    """SYS-6.1.2 SYS-7.5.1: the job was accepted, so it is run again; who asks again under its task_id has its result."""
    task_id = str(uuid.uuid4())
    stack.gate.hold()
    waiting = Waiting(stack, task_id=task_id, on_disconnect="resume")
    kill_in_the_middle(stack, task_id)
    assert waiting.answer() is None, "a broken connection, never half an answer"
    response = repeated(stack, lambda: post(stack, "wait=true", task_id=task_id, on_disconnect="resume"))
    assert response.status == 200, response.body
    assert response.json["text"] == "".join(t for _, _, t in tokens_of(undisturbed))
    assert response.json["job_id"] == task_id


def test_a_stream_of_a_submission_survives_kill_9(stack, undisturbed):
    """SYS-7.5.1: the same request goes on after the last id that its client holds."""
    task_id = str(uuid.uuid4())
    body = task(task_id=task_id, on_disconnect="resume")
    stack.gate.hold()
    stream = EventStream(stack.url, "/v2/tasks?stream=true", body=body)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(e for e in stream if e.id))
    reader.start()
    kill_in_the_middle(stack, task_id)
    reader.join(HANG_S)
    assert seen and seen[-1].name == "token"
    again = repeated(stack, lambda: EventStream(stack.url, "/v2/tasks?stream=true", seen[-1].id, body=body))
    assert again.status == 200
    rest = [e for e in again if e.id]
    assert rest[-1].name == "end" and tokens_of(seen + rest) == tokens_of(undisturbed)


@pytest.mark.parametrize("fields", [
    {"temperature": 1, "min_p": 1.2551272886980568e-08},
    {"json_schema": {"type": "object", "properties": {"a": {"type": "number", "default": 3.4028234663852886e38}}}},
], ids=["min_p", "json_schema"])
def test_a_number_of_seventeen_digits_is_the_same_for_the_worker(stack, fields):
    """orchestratord compares the digest of the parameters in the worker's receipt with its own."""
    answer = post(stack, "wait=true", **fields)
    assert answer.status == 200, answer.body
