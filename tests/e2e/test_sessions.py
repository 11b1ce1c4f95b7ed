"""Sessions: budgets reserved before a job is enqueued, charged at its end, kept over a crash; what is left is told."""

import json
import time

import pytest

from stack import ResumingClient, Stack, llorch, wait_for


def session(stack, session_id):
    response = stack.request("GET", f"/v2/sessions/{session_id}")
    return response.json if response.status == 200 else None


def read_a_metrics_event(stack, stream):
    """All events of a job that is held until the stream has told its metrics."""
    events = []
    for event in stream:
        events.append(event)
        if event.name == "metrics":
            stack.gate.open()
    return events


def create(stack, expect=201, **fields):
    response = stack.request("POST", "/v2/sessions", fields)
    assert response.status == expect, response.body
    return response.json


# AAPI-15020, AAPI-15021, ORCH-3021, ORCH-3099, OC-CTRL-2068, OC-CORE-1024, OC-METRICS-7111
def test_a_budget_is_reserved_charged_and_shown(stack):
    made = create(stack, session_id="shown", token_budget=400)
    assert made["tokens_remaining"] == 400 and made["turns_max"] == 8
    assert create(stack, expect=200, session_id="shown")["token_budget"] == 400
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 60, "seed": 7, "session_id": "shown"}
    stack.gate.hold()  # its stream is read while it runs
    stack.gate.let_pass(1)
    accepted = stack.request("POST", "/v2/tasks", body)
    assert accepted.status == 202
    left = int(accepted.headers["x-budget-tokens-remaining"])
    assert left == accepted.json["tokens_budget_remaining"] < 400 - 60
    stream = stack.events(accepted.json["job_id"], metrics=True)
    assert int(stream.response.getheader("X-Budget-Tokens-Remaining")) >= left
    events = read_a_metrics_event(stack, stream)
    end = events[-1].data
    used = end["tokens_in"] + end["tokens_out"]
    assert end["tokens_budget_remaining"] == 400 - used
    metrics = [e.data for e in events if e.name == "metrics"]
    assert metrics and metrics[0]["kv_migrated"] is False and "tokens_budget_remaining" in metrics[0]
    assert all(e.id is None for e in events if e.name == "metrics")
    after = session(stack, "shown")
    assert (after["tokens_used"], after["tokens_reserved"], after["turns"]) == (used, 0, 1)
    assert after["kv_warmth"] is True and after["worker_id"] == stack.ready_worker()["worker_id"]
    assert stack.job(accepted.json["job_id"])["session_id"] == "shown"


# OC-CORE-1023: nothing is refused that the client never asked for.
def test_an_omitted_max_tokens_is_what_the_session_has_left(stack):
    create(stack, session_id="nearly-spent", token_budget=30)
    body = {"model": "demo", "prompt": "Once upon a time", "temperature": 0, "session_id": "nearly-spent", "logit_bias": {"2047": -100}}
    refused = stack.request("POST", "/v2/tasks", {**body, "max_tokens": 60})
    assert refused.status == 400 and refused.json["error"]["code"] == "BUDGET_EXCEEDED"
    result = stack.request("POST", "/v2/tasks?wait=true", body).json
    used = session(stack, "nearly-spent")["tokens_used"]
    assert result["stop_reason"] == "max_tokens" and used == result["tokens_in"] + result["tokens_out"] == 30
    spent = stack.request("POST", "/v2/tasks", body)
    assert spent.json["error"]["code"] == "BUDGET_EXCEEDED" and spent.json["error"]["details"]["remaining"] == 0


# ORCH-3009, ORCH-3023
def test_the_second_job_of_a_session_is_warm(stack):
    for warmth in (False, True):
        stack.gate.hold()
        stack.gate.let_pass(1)
        job = stack.submit(session_id="warm", max_tokens=60)["job_id"]
        metrics = [e.data for e in read_a_metrics_event(stack, stack.events(job, metrics=True)) if e.name == "metrics"]
        assert metrics and all(m["kv_warmth"] is warmth and m["kv_migrated"] is False for m in metrics)


# ORCH-3099, OC-CORE-1023, OC-CTRL-2010, ORCH-3014
def test_what_a_running_job_may_take_is_not_given_twice(stack):
    create(stack, session_id="twice", token_budget=300)
    first = stack.submit_held(session_id="twice", max_tokens=200)
    refused = stack.submit(session_id="twice", max_tokens=200, expect=400)["error"]
    assert refused["code"] == "BUDGET_EXCEEDED" and refused["retriable"] is False
    details = refused["details"]
    assert details["budget"] == "tokens" and details["limit"] == 300 and details["reserved"] >= 200
    assert session(stack, "twice")["jobs_live"] == 1
    stack.request("DELETE", f"/v2/tasks/{first}")
    job = stack.wait_terminal(first)
    stack.gate.open()
    wait_for("the charge", lambda: session(stack, "twice")["jobs_live"] == 0)
    assert session(stack, "twice")["tokens_used"] == job["tokens_in"] + job["tokens_out"] == job["tokens_in"] + 1


# ORCH-3099: a restart refills nothing; a job that was running is charged once.
def test_a_crash_refills_no_budget():
    with Stack() as stack:
        create(stack, session_id="kept", token_budget=2000)
        stack.read_to_end(stack.submit(session_id="kept", max_tokens=16)["job_id"])
        used = session(stack, "kept")["tokens_used"]
        running = stack.submit_held(session_id="kept", max_tokens=300, on_disconnect="resume")
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        after = session(stack, "kept")
        assert after["token_budget"] == 2000 and after["tokens_used"] == used and after["turns"] == 2
        assert after["tokens_reserved"] >= 300
        stack.gate.open()
        client = ResumingClient(stack, running).run()
        end = client.terminal().data
        expected = used + end["tokens_in"] + end["tokens_out"]
        assert session(stack, "kept")["tokens_used"] == expected == 2000 - end["tokens_budget_remaining"]
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        assert session(stack, "kept")["tokens_used"] == expected


# AAPI-15022, ORCH-3021
def test_sessions_end_by_turns_by_age_and_by_delete():
    settings = {"orchestratord.sessions.turns_max": "1", "orchestratord.sessions.ttl_ms": "1000"}
    with Stack(settings=settings) as stack:
        job = stack.submit_held(session_id="short", max_tokens=4)  # a session with a live job does not age
        assert stack.submit(session_id="short", max_tokens=4, expect=400)["error"]["details"]["budget"] == "turns"
        stack.gate.open()
        stack.read_to_end(job)
        wait_for("the end of the session", lambda: session(stack, "short") is None)
        stack.submit_held(session_id="short", max_tokens=4)
        assert stack.request("DELETE", "/v2/sessions/short").json == {"session_id": "short", "deleted": True}
        assert stack.request("DELETE", "/v2/sessions/short").code == "NOT_FOUND"
        assert create(stack, session_id="short")["turns"] == 0


# ORCH-3006, ORCH-1012
def test_a_caller_that_submits_too_fast_is_told_when_to_come_back():
    settings = {"orchestratord.throttle.requests_per_second": "0.5", "orchestratord.throttle.burst_seconds": "2"}
    with Stack(settings=settings) as stack:
        body = {"model": "demo", "prompt": "Once", "max_tokens": 4}
        while (refused := stack.request("POST", "/v2/tasks", body)).status == 202:
            pass  # the first ones look the model up, which may take as long as the throttle
        assert refused.status == 429 and refused.json["error"]["policy_label"] == "throttle.requests_per_second"
        wait_ms = refused.json["error"]["retry_after_ms"]
        assert int(refused.headers["x-backoff-ms"]) == wait_ms and int(refused.headers["retry-after"]) >= 1
        time.sleep(wait_ms / 1000)
        assert stack.request("POST", "/v2/tasks", body).status == 202


def test_the_command_line_keeps_sessions(stack):
    def run(*args):
        done = llorch("--json", "--url", stack.url, *args, state_dir=stack.dir)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run("session", "create", "cli", "--tokens", "500")["token_budget"] == 500
    done = llorch("--url", stack.url, "run", "demo", "Once", "--max-tokens", "4", "--session", "cli", state_dir=stack.dir)
    assert done.returncode == 0, done.stderr
    shown = run("session", "show", "cli")
    assert shown["turns"] == 1 and 0 < shown["tokens_used"] < 500
    assert "cli" in [s["session_id"] for s in run("session", "list")["sessions"]]
    text = llorch("--url", stack.url, "session", "show", "cli", state_dir=stack.dir)
    assert b"of 500" in text.stdout
    assert run("session", "delete", "cli") == {"session_id": "cli", "deleted": True}
