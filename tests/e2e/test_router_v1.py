"""The router of the first specification under /v1, beside the APIs that other systems have there."""

import uuid

import pytest
from stack import ALIAS, EventStream, Stack


@pytest.fixture(scope="module", name="stack")
def running_stack():
    with Stack() as stack:
        stack.submit(max_tokens=1)  # from here on the model is known
        yield stack


def task(**fields):
    return {"task_id": str(uuid.uuid4()), "session_id": "s-1", "workload": "completion", "model_ref": ALIAS, "engine": "llamacpp", "ctx": 128,
            "priority": "interactive", "max_tokens": 8, "deadline_ms": 600_000, "prompt": "Once upon a time", "seed": 7, **fields}


# ORCH-2001#v1-path, ORCH-2001#accepted: a job is submitted with POST /v1/tasks and answered 202; ORCH-2008: with the fields of that form.
# ORCH-2002, ORCH-3105: its stream is started, tokens, end, and started tells the place and the predicted start.
def test_a_task_is_submitted_and_streamed(stack):
    wanted = task()
    admitted = stack.request("POST", "/v1/tasks", wanted)
    assert admitted.status == 202, admitted.body
    answer = admitted.json
    assert answer["task_id"] == wanted["task_id"] and answer["queue_position"] >= 0 and answer["predicted_start_ms"] >= 0
    assert answer["backoff_ms"] == 0 and answer["streams"]["sse"] == f"/v1/tasks/{wanted['task_id']}/stream"
    events = [e for e in EventStream(stack.url, answer["streams"]["sse"]) if e.name != "metrics"]
    assert events[0].name == "started" and {"queue_position", "predicted_start_ms"} <= events[0].data.keys()
    assert [e.name for e in events[1:-1]] == ["token"] * (len(events) - 2) and events[-1].name == "end"
    whole = stack.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, "prompt": wanted["prompt"], "max_tokens": 8, "seed": 7})
    assert whole.json["text"] == "".join(e.data["t"] for e in events[1:-1])
    repeated = stack.request("POST", "/v1/tasks", wanted)
    assert repeated.status == 202 and repeated.json["job_id"] == answer["job_id"]


# ORCH-2003: cancel is answered 204, again and again; ORCH-2006: errors are flat.
def test_a_task_is_cancelled_and_errors_are_flat(stack):
    name = f"held-{uuid.uuid4()}"
    stack.gate.hold()
    assert stack.request("POST", "/v1/tasks", task(task_id=name, max_tokens=64)).status == 202
    assert stack.request("POST", f"/v1/tasks/{name}/cancel").status == 204
    stack.gate.open()
    assert stack.request("POST", f"/v1/tasks/{name}/cancel").status == 204
    unknown = stack.request("POST", "/v1/tasks/nobody/cancel")
    assert unknown.status == 404
    assert unknown.json["code"] == "JOB_NOT_FOUND" and unknown.json["retriable"] is False and "message" in unknown.json
    refused = stack.request("POST", "/v1/tasks", task(ctx=10_000_000))
    assert refused.status == 400 and refused.json["code"] == "INVALID_PARAMS" and refused.json["details"]["field"] == "ctx"
    missing = task()
    del missing["deadline_ms"]
    assert stack.request("POST", "/v1/tasks", missing).json["details"]["field"] == "deadline_ms"


# A look at the head of a stream is no reader that comes and goes.
def test_a_head_of_the_stream_cancels_nothing(stack):
    wanted = task()
    stack.gate.hold()
    assert stack.request("POST", "/v1/tasks", wanted).status == 202
    for path in (f"/v1/tasks/{wanted['task_id']}/stream", f"/v2/tasks/{wanted['task_id']}/events"):
        head = stack.request("HEAD", path)
        assert head.status == 200 and head.body == b"" and head.headers["content-type"].startswith("text/event-stream")
    stack.gate.open()
    events = [e.name for e in EventStream(stack.url, f"/v1/tasks/{wanted['task_id']}/stream")]
    assert events[-1] == "end", events


# ORCH-2004, ORCH-2005: sessions are read and deleted.
def test_sessions_of_tasks(stack):
    assert stack.request("POST", "/v1/tasks", task(session_id="s-2")).status == 202
    assert stack.request("GET", "/v1/sessions/s-2").json["session_id"] == "s-2"
    assert stack.request("DELETE", "/v1/sessions/s-2").status == 204
    assert stack.request("GET", "/v1/sessions/s-2").json["code"] == "NOT_FOUND"


def test_what_v2_answers_in_the_same_form(stack):
    assert stack.request("POST", "/v1/tasks/preview", task()).json["feasible"]
    assert stack.request("GET", "/v1/capabilities").json == stack.request("GET", "/v2/meta/capabilities").json
    (pool,) = stack.request("GET", "/v2/pools").json["pools"]
    assert stack.request("GET", f"/v1/pools/{pool['pool_id']}/health").json["live"] is True
    kept = stack.request("POST", "/v1/artifacts", {"kind": "plan", "content": {"a": 1}}).json
    assert stack.request("GET", f"/v1/artifacts/{kept['id']}").json["content"] == {"a": 1}
    assert stack.request("GET", "/v1/replicasets").status == 404


# The other APIs under /v1 are where they were, with their own errors.
def test_other_apis_keep_their_paths(stack):
    assert stack.request("GET", "/v1/models").json["object"] == "list"
    theirs = stack.request("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"}).json
    assert theirs["data"][0]["type"] == "model" and theirs["has_more"] is False and theirs["first_id"] == theirs["data"][0]["id"]
    assert "error" in stack.request("GET", "/v1/nothing").json
    for accept, text in (({"Accept": "*/*"}, b"Ollama is running"), ({}, b"Ollama is running"), ({"Accept": "text/html,*/*"}, b"<!doctype html>")):
        answer = stack.request("GET", "/", headers=accept)
        assert answer.status == 200 and answer.body.lower().startswith(text.lower()), answer.body[:80]
    assert stack.request("HEAD", "/").status == 200
