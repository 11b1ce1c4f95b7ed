"""A tenant that wants to read, end or learn of what belongs to another one, or to command the node."""

import uuid

import pytest

from attacker import JSON, OPERATOR, READER, TENANTS, bearer, first_bytes, send
from stack import wait_for

ALICE, BOB = (bearer(token) for token in TENANTS.values())
TASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 40, "seed": 7, "on_disconnect": "resume"}


def submit(stack, who, expect=202, **fields):
    answer = send(stack.url, "POST", "/v2/tasks", {**TASK, **fields}, {**who, **JSON})
    assert answer.status == expect, answer.body
    return answer.json


def status(stack, who, job):
    answer = send(stack.url, "GET", f"/v2/tasks/{job}", headers=who)
    return answer.json["status"] if answer.status == 200 else answer.status


def without_ids(answer, job):
    """An answer in which nothing but the id that was asked for and the request's own id may differ."""
    error = answer.json["error"]
    error.pop("correlation_id")
    return answer.status, str(error).replace(job, "JOB")


def probes(stack, who, job):
    # One that is let in is not read to an end that is held back.
    assert first_bytes(stack.url, f"/v2/tasks/{job}/events", who) == 404
    return [without_ids(send(stack.url, method, f"/v2/tasks/{job}{rest}", headers={**who, **more}), job)
            for method, rest, more in [("GET", "", {}), ("GET", "/events", {}), ("DELETE", "", {}),
                                       ("POST", "/cancel", {}), ("GET", "/events", {"Last-Event-ID": "1-0123456789abcdef"})]]


def test_jobs_of_others_are_jobs_that_never_were(guarded_stack):
    """Show, events, resume and cancel of another tenant's job, running, ended and after a restart: all 404, with the
    same words as for an id that nobody has. The job runs on."""
    stack = guarded_stack
    first = submit(stack, ALICE, max_tokens=1)["job_id"]  # a worker is there from now on
    wait_for("the job to end", lambda: status(stack, ALICE, first) == "completed")
    nobody = probes(stack, BOB, str(uuid.uuid4()))
    assert all(code == 404 for code, _ in nobody)
    stack.gate.hold()
    running = submit(stack, ALICE)["job_id"]
    wait_for("the job to run", lambda: status(stack, ALICE, running) == "running")
    assert probes(stack, BOB, running) == nobody
    assert send(stack.url, "HEAD", f"/v2/tasks/{running}/events", headers=BOB).status == 404
    assert status(stack, ALICE, running) == "running"
    assert first_bytes(stack.url, f"/v2/tasks/{running}/events", ALICE) == 200
    stack.gate.open()
    wait_for("the job to end", lambda: status(stack, ALICE, running) == "completed")
    assert probes(stack, BOB, running) == nobody

    stack.gate.hold()
    waiting = submit(stack, ALICE)["job_id"]
    wait_for("the job to run", lambda: status(stack, ALICE, waiting) == "running")
    stack.orchestrator.kill()
    stack.orchestrator.wait()
    stack.start_orchestrator()
    assert probes(stack, BOB, running) == nobody
    assert probes(stack, BOB, waiting) == nobody
    assert status(stack, ALICE, waiting) in ("queued", "dispatched", "running")
    # Its owner and the operator reach it.
    assert status(stack, bearer(OPERATOR), waiting) == status(stack, ALICE, waiting)
    assert send(stack.url, "DELETE", f"/v2/tasks/{waiting}", headers=ALICE).status in (200, 202)
    stack.gate.open()
    wait_for("the job to be cancelled", lambda: status(stack, ALICE, waiting) == "cancelled")
    assert probes(stack, BOB, waiting) == nobody


def test_lists_hold_ones_own(guarded_stack):
    mine, theirs = (submit(guarded_stack, who, max_tokens=1)["job_id"] for who in (ALICE, BOB))

    def listed(who, limit=1000):
        tasks = send(guarded_stack.url, "GET", f"/v2/tasks?limit={limit}", headers=who).json["tasks"]
        return [task["job_id"] for task in tasks]

    assert mine in listed(ALICE) and theirs not in listed(ALICE)
    assert theirs in listed(BOB) and mine not in listed(BOB)
    assert {mine, theirs} <= set(listed(bearer(OPERATOR)))
    # The limit counts one's own: what others submitted later takes no place, and the next page begins behind a job of one's own.
    assert listed(ALICE, 1) == [mine]
    page = send(guarded_stack.url, "GET", "/v2/tasks?limit=1", headers=ALICE).json
    assert page["next_before"] == mine
    assert send(guarded_stack.url, "GET", f"/v2/tasks?before={mine}", headers=ALICE).status == 200
    foreign, nobody = (send(guarded_stack.url, "GET", f"/v2/tasks?before={job}", headers=ALICE) for job in (theirs, uuid.uuid4()))
    assert foreign.code == "INVALID_PARAMS" and without_ids(foreign, theirs) == without_ids(nobody, theirs)


def test_operators_alone_are_told_whose_a_job_is(guarded_stack):
    """The operator sees the tenant of a job and lists one tenant's; no tenant sees the field, its own jobs' neither, nor asks for a tenant."""
    stack, operator = guarded_stack, bearer(OPERATOR)
    whose = {submit(stack, who, max_tokens=1)["job_id"]: name for who, name in ((ALICE, "alice"), (BOB, "bob"), (operator, None))}
    for job in whose:
        wait_for("the job to end", lambda job=job: status(stack, operator, job) == "completed")

    def listed(who, query=""):
        return {job["job_id"]: job.get("tenant_id") for job in send(stack.url, "GET", f"/v2/tasks?limit=1000{query}", headers=who).json["tasks"]}

    assert {job: tenant for job, tenant in listed(operator).items() if job in whose} == whose
    for job, tenant in whose.items():
        assert send(stack.url, "GET", f"/v2/tasks/{job}", headers=operator).json.get("tenant_id") == tenant
    own = listed(operator, "&tenant=alice")
    assert set(own.values()) == {"alice"} and set(own) & set(whose) == {job for job, tenant in whose.items() if tenant == "alice"}
    assert listed(operator, "&tenant=nobody-of-this-name") == {}
    assert set(listed(ALICE).values()) == {None}
    assert all("tenant_id" not in send(stack.url, "GET", f"/v2/tasks/{job}", headers=ALICE).json for job in whose)
    for name in ("alice", "bob", ""):
        refused = send(stack.url, "GET", f"/v2/tasks?tenant={name}", headers=ALICE)
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), (name, refused.body)
    assert send(stack.url, "GET", "/v2/tasks?tenant=a:b", headers=operator).code == "INVALID_PARAMS"


@pytest.mark.parametrize("task_id", ["8d4dbd8c-1f43-4a4e-9d0c-6d9e1b6f0a52", "nightly-run"])
def test_a_task_id_is_ones_own(guarded_stack, task_id):
    """The same task_id of two tenants: two jobs, no conflict, no hint; a repeat is answered to its owner alone."""
    first = submit(guarded_stack, ALICE, task_id=task_id, max_tokens=2)
    other = submit(guarded_stack, BOB, task_id=task_id, max_tokens=3, seed=8)
    assert first["job_id"] != other["job_id"]
    assert first["task_id"] == other["task_id"] == task_id
    assert submit(guarded_stack, ALICE, task_id=task_id, max_tokens=2)["job_id"] == first["job_id"]
    conflict = send(guarded_stack.url, "POST", "/v2/tasks", {**TASK, "task_id": task_id, "max_tokens": 5}, {**BOB, **JSON})
    assert conflict.code == "CONFLICT" and conflict.json["error"]["details"]["task_id"] == task_id
    # The id of another tenant's job is no better as a task_id.
    stolen = submit(guarded_stack, BOB, task_id=first["job_id"], max_tokens=2)
    assert stolen["job_id"] != first["job_id"]
    for who, mine in ((ALICE, first), (BOB, other), (BOB, stolen)):
        wait_for("the job to end", lambda who=who, mine=mine: status(guarded_stack, who, mine["job_id"]) == "completed")
        assert send(guarded_stack.url, "GET", f"/v2/tasks/{mine['job_id']}", headers=who).json["task_id"] == mine["task_id"]


def test_sessions_are_ones_own(guarded_stack):
    """One session_id, two tenants, two sessions: neither sees, spends nor ends the other's."""
    url = guarded_stack.url

    def session(who, method="GET", name="agent-1"):
        answer = send(url, method, f"/v2/sessions/{name}", headers=who)
        return answer.json if answer.status == 200 else answer.status

    assert send(url, "POST", "/v2/sessions", {"session_id": "agent-1", "token_budget": 20}, {**ALICE, **JSON}).status == 201
    assert session(BOB) == session(BOB, "DELETE") == 404
    assert session(BOB, name="alice:agent-1") == session(BOB, "DELETE", "alice:agent-1") == 404
    assert send(url, "GET", "/v2/sessions", headers=BOB).json["sessions"] == []
    submit(guarded_stack, BOB, session_id="agent-1")  # more than the other's budget
    assert session(ALICE)["turns"] == 0 and session(ALICE)["session_id"] == "agent-1"
    refused = send(url, "POST", "/v2/tasks", {**TASK, "session_id": "agent-1"}, {**ALICE, **JSON})
    assert refused.code == "BUDGET_EXCEEDED" and refused.json["error"]["details"]["session_id"] == "agent-1"
    ids = {entry["session_id"] for entry in send(url, "GET", "/v2/sessions", headers=bearer(OPERATOR)).json["sessions"]}
    assert {"alice:agent-1", "bob:agent-1"} <= ids
    guarded_stack.orchestrator.kill()
    guarded_stack.orchestrator.wait()
    guarded_stack.start_orchestrator()
    assert session(ALICE)["token_budget"] == 20 and "token_budget" not in session(BOB)
    assert session(bearer(OPERATOR), "DELETE", "alice:agent-1") == {"session_id": "alice:agent-1", "deleted": True}
    assert session(ALICE) == 404 and session(BOB)["turns"] == 1


@pytest.mark.parametrize("who", [ALICE, bearer(READER)])
def test_the_node_is_the_operators(guarded_stack, who):
    """Drain, reload, purge, caches, backups and the memory of a model, by a tenant or a reader."""
    for method, path in [("POST", "/v2/pools/pool-1/drain"), ("DELETE", "/v2/pools/pool-1/drain"),
                         ("POST", "/v2/pools/pool-1/reload"), ("POST", "/v2/pools/pool-1/purge"), ("POST", "/v2/cache/clear"),
                         ("POST", "/v2/store/backup"), ("POST", "/v2/pools/register"), ("POST", "/v2/pools/pool-1/heartbeat"),
                         ("DELETE", "/v2/pools/pool-1"), ("POST", "/v2/internal/workers/ready")]:
        refused = send(guarded_stack.url, method, path, {}, {**who, **JSON})
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), path
        assert refused.json["error"]["details"]["role"] in ("tenant", "reader")
    stop = send(guarded_stack.url, "POST", "/api/generate", {"model": "demo", "keep_alive": 0}, {**who, **JSON})
    assert (stop.status, stop.code) == (403, "FORBIDDEN")
    assert [pool["pool_id"] for pool in guarded_stack.pools()] == ["pool-1"]


def test_a_reader_reads_metrics_and_no_job(guarded_stack):
    """What Prometheus gets: metrics of both daemons and the pools."""
    reader = bearer(READER)
    for url, path in [(guarded_stack.url, "/metrics"), (guarded_stack.url, "/v2/pools"), (guarded_stack.url, "/v2/health"),
                      (guarded_stack.pool_url, "/metrics")]:
        assert send(url, "GET", path, headers=reader).status == 200, path
    for path in ("/v2/tasks", "/v2/sessions", "/v2/tasks/x", "/v2/tasks/x/events"):
        assert send(guarded_stack.url, "GET", path, headers=reader).code == "FORBIDDEN", path
    assert send(guarded_stack.pool_url, "GET", "/v2/state", headers=reader).code == "FORBIDDEN"
    for who in (ALICE, BOB):
        assert send(guarded_stack.pool_url, "GET", "/v2/state", headers=who).code == "BAD_TOKEN"
