"""Admission and the queue from outside: what is refused before anything is kept, who waits where, who is next, what limits a run, and
how all of it is counted."""

import json
import os
import signal
import time

import pytest

from chat_model import write_chat_model
from metrics_text import parse
from stack import ALIAS, MODEL, EventStream, Stack, llorch, wait_for

PROMPT = "Once upon a time"


def families(stack):
    return parse(stack.request("GET", "/metrics").body.decode())


def counted(stack, name, **labels):
    """The sum of a metric's series with these labels, 0 before there is one; of a histogram the number of its values."""
    family = families(stack).get(name)
    if family is None:
        return 0
    series = family.series
    if family.kind == "histogram":  # the bucket of all values, which is the last of each series
        series = [(have, value) for have, value in series if have.get("le") == "+Inf"]
    return sum(value for have, value in series if labels.items() <= have.items())


def ids_of(stack):
    return {task["job_id"] for task in stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]}


def started(stack, jobs):
    return sorted(jobs, key=lambda job: (stack.job(job)["started_at"], stack.job(job)["finished_at"]))


@pytest.fixture(scope="module")
def queue():
    with Stack({"orchestratord.queue.capacity": "4"}) as running:
        running.wait_terminal(running.submit(max_tokens=1)["job_id"])
        yield running


@pytest.fixture(autouse=True)
def rest(request):
    """What a test that failed leaves held is ended."""
    yield
    if "queue" in request.fixturenames:
        stack = request.getfixturevalue("queue")
        stack.gate.open()
        wait_for("the queue to be empty", lambda: counted(stack, "orchd_jobs_live") == 0)


def test_a_bounded_queue_with_two_classes_in_order(queue):
    """OC-CORE-1001 OC-CORE-1004 ORCH-1010 ORCH-3004 SCHED-11020 OC-CORE-1003#arrival-order SYS-8.2.2#capacity: interactive before batch, each in the order
    of arrival, no more than its capacity.

    HME-020 OC-CTRL-2050: each is told its position and its predicted start, when it is accepted and while it waits; of a session with a
    budget also what is left of it."""
    assert queue.request("GET", "/v2/meta/capabilities").json["limits"]["queue_capacity"] == 4
    shown = json.loads(llorch("--json", "config", "show", state_dir=queue.dir).stdout)
    assert shown["orchestratord"]["queue"]["capacity"] == 100, "where nobody says otherwise"
    held = queue.submit_held(max_tokens=40)
    batch = [queue.submit(max_tokens=2, priority="batch") for _ in range(2)]
    assert queue.request("POST", "/v2/sessions", {"session_id": "told", "token_budget": 100}).status == 201
    interactive = [queue.submit(max_tokens=2, priority="interactive", session_id="told") for _ in range(2)]
    assert 100 > interactive[0]["tokens_budget_remaining"] > interactive[1]["tokens_budget_remaining"] > 0
    full = queue.submit(max_tokens=2, expect=429)["error"]
    assert full["code"] == "QUEUE_FULL"
    assert [job["queue_position"] for job in batch + interactive] == [0, 1, 0, 1], "the second class steps in front"
    assert all(job["predicted_start_ms"] >= 0 and "backoff_ms" in job for job in batch + interactive)
    order = [job["job_id"] for job in interactive + batch]
    now = [queue.job(job) for job in order]
    assert [job["queue_position"] for job in now] == [0, 1, 2, 3]
    assert all(job["reason"]["code"] and job["reason"]["human"] and job["predicted_start_ms"] >= 0 for job in now)
    assert [job["predicted_start_ms"] for job in now] == sorted(job["predicted_start_ms"] for job in now)
    queue.gate.open()
    for job in [held, *order]:
        assert queue.wait_terminal(job)["status"] == "completed"
    assert started(queue, order) == order
    told = next(event for event in queue.read_to_end(order[-1]) if event.name == "started").data
    assert told["queue_position"] == batch[1]["queue_position"] and "predicted_start_ms" in told


def test_streams_tell_the_queue_and_the_chance_to_be_in_time(queue):
    """HME-021 ORCH-3100 OC-CTRL-2023: whoever coordinates several programs reads both in the stream of a job that runs."""
    running = queue.submit_held(max_tokens=60, deadline_ms=180_000)
    waiting = [queue.submit(max_tokens=2)["job_id"] for _ in range(2)]
    told = []
    for event in queue.events(running, metrics=True):
        if event.name == "metrics":
            told.append(event)
        if told and told[-1].data["queue_depth"] == len(waiting):
            queue.gate.open()
        elif event.name == "token":
            time.sleep(0.2)  # they are told about once a second, with a token
            queue.gate.let_pass(1)
    assert all(event.id is None for event in told)
    data = next(event.data for event in told if event.data["queue_depth"] == len(waiting))
    assert 0 <= data["on_time_probability"] <= 1
    assert data["tokens_out"] >= 2 and data["decode_time_ms"] > 0 and data["vram_bytes"] > 0


def test_a_verbose_stream_says_what_its_job_waits_for(queue):
    """AAPI-15011: whenever that changes, and only where it was asked for."""
    queue.submit_held(max_tokens=40)
    waiting = queue.submit(max_tokens=2)["job_id"]
    streams = [EventStream(queue.url, f"/v2/tasks/{waiting}/events{query}", metrics=True) for query in ("?verbose=true", "?verbose=false")]
    told = next(event for event in streams[0] if event.name == "metrics").data
    reason = queue.job(waiting)["reason"]
    assert (told["phase"], told["human"]) == (reason["code"], reason["human"]) and told["phase"] == "WAITING_FOR_SLOT", told
    queue.gate.open()
    rest = list(streams[0])
    assert rest[-1].name == "end" and not any("phase" in e.data for e in rest)
    streams[1].close()
    body = {"model": ALIAS, "prompt": "x", "max_tokens": 2}
    events = list(EventStream(queue.url, "/v2/tasks?stream=true&verbose=true", body=body, metrics=True))
    assert events[-1].name == "end"
    for path in ("/v2/tasks?verbose=true", "/v2/tasks?wait=true&verbose=true", "/v2/tasks?stream=true&verbose=yes"):
        assert queue.request("POST", path, body).json["error"]["details"]["field"] == "verbose"
    assert queue.request("GET", f"/v2/tasks/{waiting}/events?verbose=1").status == 400


def test_the_queue_is_counted(queue):
    """ORCH-1013 SCHED-11100 OC-CTRL-2051: depth by class, accepted and refused, dropped, waiting times as a histogram, errors by class."""
    names = {"accepted": ("orchd_tasks_enqueued_total", {"outcome": "accepted"}), "refused": ("orchd_tasks_enqueued_total", {"outcome": "rejected"}),
             "full": ("orchd_errors_total", {"code": "QUEUE_FULL"}), "wrong": ("orchd_errors_total", {"code": "INVALID_PARAMS"}),
             "waited": ("orchd_queue_wait_time_ms", {"priority": "batch"})}

    def now():
        return {name: counted(queue, metric, **labels) for name, (metric, labels) in names.items()}

    before = now()
    queue.submit(max_tokens=0, expect=400)
    held = queue.submit_held(max_tokens=40)
    waiting = [queue.submit(max_tokens=2, priority=priority)["job_id"] for priority in ("batch", "batch", "interactive", "interactive")]
    depth = {priority: counted(queue, "orchd_queue_depth", priority=priority) for priority in ("batch", "interactive")}
    assert depth == {"batch": 2, "interactive": 2}
    queue.submit(max_tokens=2, expect=429)
    cancelled = waiting.pop()
    queue.request("DELETE", f"/v2/tasks/{cancelled}")
    assert counted(queue, "orchd_queue_depth", priority="interactive") == 1
    queue.gate.open()
    for job in [held, *waiting]:
        queue.wait_terminal(job)
    assert {name: value - before[name] for name, value in now().items()} == {"accepted": 5, "refused": 1, "full": 1, "wrong": 1, "waited": 2}
    classes = {labels["code"]: labels["class"] for labels, _ in families(queue)["orchd_errors_total"].series}
    assert classes["QUEUE_FULL"] == "retry_later" and classes["INVALID_PARAMS"] == "reject"
    assert counted(queue, "orchd_queue_depth") == 0


def test_a_job_that_is_dropped_is_counted():
    """ORCH-1013 SCHED-11100: of a queue that makes room."""
    with Stack({"orchestratord.queue.capacity": "1", "orchestratord.queue.policy": "drop-lru"}) as stack:
        stack.submit_held(max_tokens=40)
        first = stack.submit(max_tokens=2, priority="batch")["job_id"]
        stack.submit(max_tokens=2)
        assert stack.wait_terminal(first)["error"]["code"] == "QUEUE_FULL_DROP_LRU"
        assert counted(stack, "admission_backpressure_events_total", policy="drop-lru") == 1


@pytest.mark.parametrize("fields, status, code, reason", [
    ({"model": "nobody"}, 404, "MODEL_NOT_FOUND", None), ({"model": "old"}, 409, "MODEL_DEPRECATED", None),
    ({"prompt": PROMPT * 200}, 400, "INVALID_PARAMS", "CONTEXT_TOO_LARGE"), ({"max_tokens": 511}, 400, "INVALID_PARAMS", "CONTEXT_TOO_LARGE"),
    ({"temperature": 99}, 400, "INVALID_PARAMS", None), ({"priority": "urgent"}, 400, "INVALID_PARAMS", None),
    ({"deadline_ms": 0}, 400, "INVALID_PARAMS", "range"), ({"session_id": "poor"}, 400, "BUDGET_EXCEEDED", None)],
    ids=["unknown", "retired", "prompt", "generation", "range", "priority", "deadline", "budget"])
def test_what_cannot_be_is_refused_before_it_is_kept(queue, fields, status, code, reason):
    """SCHED-11010 SCHED-11011 ORCH-3014 OC-CORE-1020 OC-CTRL-2010: model, context, budget, ranges, priority, deadline: a stable code
    with its reason, and nothing of it in the queue or among the jobs."""
    if fields.get("model") == "old" and queue.request("GET", "/v2/catalog/models/old").status == 404:
        made = queue.request("POST", "/v2/catalog/models", {"model_id": "old", "model_ref": f"file:{MODEL}"})
        assert made.status in (200, 201, 202), made.body
        wait_for("the name", lambda: queue.request("GET", "/v2/catalog/models/old").status == 200)
        assert queue.request("POST", "/v2/catalog/models/old/state", {"lifecycle_state": "Retired"}).status == 200
    if "session_id" in fields:
        assert queue.request("POST", "/v2/sessions", {"session_id": "poor", "token_budget": 3}).status in (200, 201)
    before = ids_of(queue)
    refused = queue.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": PROMPT, "max_tokens": 8, **fields})
    assert (refused.status, refused.code) == (status, code), refused.body
    assert refused.envelope["message"] and (reason is None or refused.envelope["details"]["reason"] == reason)
    assert ids_of(queue) == before and counted(queue, "orchd_queue_depth") == 0


def test_the_context_that_is_told_is_what_a_user_has(tmp_path):
    """OC-CORE-1015: the template's own tokens count; to the last token of ctx_max a request is served, and one beyond is refused."""
    write_chat_model(tmp_path / "chat")
    with Stack({"models.aliases.chat": f"file:{tmp_path / 'chat'}", "models.allowed_roots": str(tmp_path),
                "orchestratord.worker_context_tokens": "64"}) as stack:
        task = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "seed": 1, "temperature": 0}
        done = wait_for("an answer", lambda: (r := stack.request("POST", "/v2/tasks?wait=true", {**task, "max_tokens": 1})).status == 200 and r)
        told = stack.request("GET", "/v2/meta/capabilities").json["models"][0]["ctx_max"]
        prompt = done.json["tokens_in"]
        assert told == 64 and prompt > len("Hello"), "one byte is one token, and the template says more"
        exact = stack.request("POST", "/v2/tasks?wait=true", {**task, "max_tokens": told - prompt})
        assert exact.status == 200 and exact.json["tokens_out"] <= told - prompt, exact.body
        beyond = stack.request("POST", "/v2/tasks", {**task, "max_tokens": told - prompt + 1})
        assert (beyond.status, beyond.envelope["details"]["reason"]) == (400, "CONTEXT_TOO_LARGE")


def test_the_limit_of_a_run_is_the_requests_then_the_models_then_everybodys(tmp_path):
    """TIMEOUT-22010 TIMEOUT-22011 OC-CORE-1022 SYS-6.1.1: nobody asks for more than the largest; a run that is over it is ended."""
    settings = {"orchestratord.timeout.default_ms": "400", "orchestratord.timeout.max_ms": "600000", "models.timeout_ms.demo-f16": "600000",
                "orchestratord.limits.workers_per_gpu": "4", "models.aliases.third": f"file:{MODEL}"}
    with Stack(settings) as stack:
        for model in (ALIAS, "demo-f16"):
            stack.wait_terminal(stack.submit(model=model, max_tokens=1, timeout_ms=600_000)["job_id"])
        stack.gate.hold()
        of_all = stack.submit(max_tokens=9)["job_id"]
        of_model = stack.submit(model="demo-f16", max_tokens=9)["job_id"]
        ended = stack.wait_terminal(of_all)
        assert ended["error"]["code"] == "TIMEOUT" and ended["error"]["details"]["timeout_ms"] == 400
        assert ended["error"]["details"]["stage"] == "execution", ended
        of_request = stack.submit(max_tokens=9, timeout_ms=600_000)["job_id"]
        shorter = stack.submit(model="demo-f16", max_tokens=9, timeout_ms=300)["job_id"]
        again = stack.submit(max_tokens=9)["job_id"]
        assert stack.job(of_model)["status"] == "running", "its model's limit is longer"
        stack.gate.open()
        assert [stack.wait_terminal(job)["status"] for job in (of_model, of_request)] == ["completed"] * 2
        for job in (shorter, again):
            assert stack.wait_terminal(job)["status"] in ("completed", "failed")
    with Stack({"orchestratord.timeout.default_ms": "100", "orchestratord.timeout.max_ms": "300"}) as stack:
        stack.gate.hold()
        ended = stack.wait_terminal(stack.submit(max_tokens=9, timeout_ms=600_000)["job_id"])
        assert ended["error"]["code"] == "TIMEOUT" and ended["error"]["details"]["timeout_ms"] == 300, ended


def test_a_cancel_ends_a_job_whether_its_worker_hears_or_not():
    """ORCH-1072 CANCEL-21010 SYS-5.4.2 SYS-7.4.1: the worker is told and stops; one that does not answer within the deadline is not waited for.
    Said again, it changes nothing."""
    with Stack({"orchestratord.timeout.cancellation_deadline_ms": "500"}) as stack:
        heard = stack.submit_held(max_tokens=400)
        assert stack.request("POST", f"/v2/tasks/{heard}/cancel").status == 202
        assert stack.wait_terminal(heard)["status"] == "cancelled"
        stack.gate.open()
        assert stack.request("POST", f"/v2/tasks/{heard}/cancel").status == 200
        worker = stack.ready_worker()
        log = next(stack.dir.rglob(f"*{worker['worker_id']}*.log")).read_text()
        assert '"execute_end"' in log and '"code":"CANCELLED"' in log.replace(": ", ":"), "the worker was told"
        deaf = stack.submit_held(max_tokens=400)
        stream = stack.events(deaf)
        os.kill(worker["pid"], signal.SIGSTOP)
        try:
            assert stack.request("POST", f"/v2/tasks/{deaf}/cancel").status == 202
            last = list(stream)[-1]
            assert last.name == "error" and last.data["code"] == "CANCELLED"
            assert stack.wait_terminal(deaf)["status"] == "cancelled"
        finally:
            os.kill(worker["pid"], signal.SIGCONT)
        stack.gate.open()
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"


def test_who_waits_too_long_may_come_again():
    """TIMEOUT-22051: the operator's limit of a wait ends it with a code of its own, which says that the same request may be tried again."""
    with Stack({"orchestratord.timeout.queue_ms": "5000", "models.preload": ALIAS}) as stack:
        wait_for("a worker, whose start would be a wait as well, and the end of the preload's own job",
                 lambda: stack.request("GET", "/v2/health").json["ready"])
        running = stack.submit_held(max_tokens=2)
        job = stack.submit(max_tokens=2)["job_id"]
        ended = stack.wait_terminal(job)
        assert (ended["status"], ended["error"]["code"], ended["attempts"]) == ("failed", "QUEUE_TIMEOUT", 0), ended
        assert ended["error"]["retriable"] is True and "orchestratord.timeout.queue_ms" in ended["error"]["message"]
        stack.gate.open()
        assert stack.wait_terminal(running)["status"] == "completed", "what runs waits no more"


def test_a_job_goes_forward_to_one_end(queue):
    """SCHED-11031: it is queued, runs and is completed, or is cancelled from any of the two; from an end nothing leads away."""
    cancelled = queue.submit_held(max_tokens=400)
    waiting, dropped = (queue.submit(max_tokens=2)["job_id"] for _ in range(2))
    assert [queue.job(job)["status"] for job in (cancelled, waiting, dropped)] == ["running", "queued", "queued"]
    for job in (dropped, cancelled):
        queue.request("DELETE", f"/v2/tasks/{job}")
        assert queue.wait_terminal(job)["status"] == "cancelled"
    queue.wait_running(waiting)
    queue.gate.open()
    assert queue.wait_terminal(waiting)["status"] == "completed"
    for job, end in ((cancelled, "cancelled"), (dropped, "cancelled"), (waiting, "completed")):
        queue.request("DELETE", f"/v2/tasks/{job}")
        assert queue.job(job)["status"] == end
        assert sum(event.name in ("end", "error") for event in queue.events(job)) == 1


def test_the_lines_of_a_job_say_what_it_was(queue):
    """OC-CORE-1040 ORCH-3027 ORCH-1090#where ORCH-1090#execution ORCH-1090#scheduling: job, session, engine and its version, pool, replica, model, quantization, context, warmth, times, counts."""
    job = queue.submit(max_tokens=3, session_id="logged")["job_id"]
    queue.wait_terminal(job)

    def written():
        return [json.loads(line) for line in queue.log("orchestratord").splitlines() if job in line]

    line = wait_for("the line of its end", lambda: next((line for line in written() if line["event"] == "stream.ended"), None))
    lines = written()
    wanted = {"job_id", "session_id", "engine", "engine_version", "pool_id", "replica_id", "model_id", "quant", "ctx", "kv_warmth",
              "queue_time_ms", "execution_latency_ms", "decode_time_ms", "tokens_in", "tokens_out", "queue_position", "predicted_start_ms"}
    assert wanted <= set(line), wanted - set(line)
    assert (line["session_id"], line["pool_id"], line["quant"], line["ctx"], line["tokens_out"]) == ("logged", "pool-1", "Q8_0", 512, 3)
    assert (line["engine"], line["gpu_id"], line["model_ref"], line["worker_id"]) == (
        "llama-orch", "cpu", f"file:{MODEL}", queue.ready_worker()["worker_id"])
    assert line["scheduling_latency_ms"] > 0, "it was measured"
    assert line["execution_latency_ms"] >= line["decode_time_ms"] >= 0
    assert PROMPT not in json.dumps(lines)
