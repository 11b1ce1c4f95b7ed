"""One prompt through three real daemons."""

import hashlib
import http.client
import json
import signal
import subprocess
import uuid

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, EventStream, ResumingClient, Stack, clean_env, request, wait_for


def test_a_job_runs_and_its_stream_is_in_order(stack):
    """AAPI-15010 SYS-5.1.1 SYS-5.1.2 SYS-5.1.3 OC-CTRL-2020 OC-CTRL-2022 SYS-4.3.1 SYS-4.3.2 ORCH-3310 ORCH-2002 ORCH-3029 OC-CTRL-2050
    SYS-7.1.1 OC-CTRL-2021 ORCH-2001#accepted:
    queued, started with the position and the predicted start of the admission, token*, end."""
    reply = stack.submit(max_tokens=12)
    assert reply["status"] == "queued" and reply["job_id"] and reply["task_id"]
    assert reply["events_url"] == f"/v2/tasks/{reply['job_id']}/events" and reply["queue_position"] >= 0
    events = stack.read_to_end(reply["job_id"])
    numbered = [e for e in events if e.id]
    assert [e.name for e in numbered[:2]] == ["queued", "started"]
    assert numbered[-1].name == "end"
    for name in ("queue_position", "predicted_start_ms"):
        assert numbered[1].data[name] == numbered[0].data[name] >= 0

    def logged():
        accepted = [json.loads(line) for line in stack.log("orchestratord").splitlines() if '"admission.accepted"' in line]
        return any(a["job_id"] == reply["job_id"] and a["queue_position"] >= 0 and a["predicted_start_ms"] >= 0 for a in accepted)

    wait_for("the line of the admission", logged)
    tokens = [e for e in numbered if e.name == "token"]
    assert [t.data["i"] for t in tokens] == list(range(12))
    assert [int(e.id.split("-")[0]) for e in numbered] == list(range(len(numbered)))
    end = numbered[-1].data
    assert end["tokens_out"] == 12 and end["stop_reason"] == "max_tokens"
    assert end["receipt"]["seed"] == 7 and end["receipt"]["device_class"] == "cpu-x86"
    assert end["decode_time_ms"] >= 0 and "decode_ms" not in end


def test_event_ids_prove_their_prefix(stack):
    """The hash in every id is the running SHA-256 of all token events so far."""
    job = stack.submit(max_tokens=8)["job_id"]
    running = hashlib.sha256()
    for event in stack.read_to_end(job):
        if event.name == "token":
            text = event.data["t"].encode()
            running.update(event.data["i"].to_bytes(4, "little") + len(text).to_bytes(4, "little") + text)
        if event.id:
            assert event.id.split("-")[1] == running.hexdigest()[:16]


def test_the_receipt_matches_what_was_streamed(stack):
    job = stack.submit(prompt="A king had a daughter", max_tokens=10)["job_id"]
    client = ResumingClient(stack, job).run()
    receipt = stack.job(job)["receipt"]
    assert receipt["output_sha256"] == hashlib.sha256(client.text().encode()).hexdigest()
    assert receipt["prompt_sha256"] == hashlib.sha256(b"A king had a daughter").hexdigest()
    assert receipt["tokens_out"] == 10 and receipt["model_digest"].startswith("sha256:")


def test_last_event_id_continues_without_gap_or_duplicate(stack):
    """SYS-7.5.1: reconnecting is idempotent and continues after the last event the client has."""
    job = stack.submit(max_tokens=40, on_disconnect="resume")["job_id"]
    first = []
    stream = stack.events(job)
    for event in stream:
        if event.id:
            first.append(event)
        if len(first) == 9:
            break
    stream.close()
    rest = [e for e in EventStream(stack.url, f"/v2/tasks/{job}/events", first[-1].id) if e.id]
    ids = [int(e.id.split("-")[0]) for e in first + rest]
    assert ids == list(range(43))
    assert EventStream(stack.url, f"/v2/tasks/{job}/events", rest[-1].id).status == 204, "nothing is left, and a browser asks no more"


def test_a_wrong_prefix_is_told_never_spliced(stack):
    job = stack.submit(max_tokens=6, on_disconnect="resume")["job_id"]
    stack.wait_terminal(job)
    events = list(EventStream(stack.url, f"/v2/tasks/{job}/events", "4-0123456789abcdef"))
    assert [e.name for e in events if e.name in ("token", "end", "error")] == ["error"]
    assert events[-1].data["code"] == "REPLAY_DIVERGED"


def test_status_pools_health_capabilities_and_metrics(stack):
    """AAPI-15040 AAPI-15041 ORCH-1002 SYS-10.1.1 OC-CTRL-2004 OC-CTRL-2060 OC-CTRL-2062 ORCH-3095 ORCH-3096: what a person and a scraper ask for.

    Discovery is by capabilities; /v1/replicasets is not served."""
    job = stack.submit(max_tokens=4)["job_id"]
    stack.wait_terminal(job)
    view = stack.job(job)
    assert view["status"] == "completed" and view["tokens_in"] > 0 and view["tokens_out"] == 4
    pool = stack.pools()[0]
    assert pool["gpus"][0]["gpu_id"] == "cpu" and pool["gpus"][0]["memory_architecture"] == "host"
    for path in ("/v2/health", "/health"):
        assert stack.request("GET", path).json["status"] == "healthy", path
    capabilities = stack.request("GET", "/v2/meta/capabilities").json
    assert all(capabilities["features"][name] is True for name in ("determinism", "streaming", "sessions", "cancellation"))
    assert capabilities["version"] and capabilities["limits"]["max_context_length"] == 512 and capabilities["limits"]["max_batch_size"] == 1
    metrics = stack.request("GET", "/metrics")
    assert metrics.status == 200 and "orchd_queue_depth" in metrics.body.decode()
    assert "pool_mgr_gpus_total" in request(stack.pool_url, path="/metrics").body.decode()
    worker = stack.ready_worker()
    assert "worker_vram_bytes" in request(worker["uri"], path="/metrics").body.decode()
    assert stack.request("GET", "/v1/replicasets").status == 404


def test_aliases_end_at_orchestratord(stack):
    """SYS-2.1.2#alias: a job that names an alias runs on a worker that was started for what it stands for."""
    view = stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
    assert view["model"] == ALIAS and view["model_ref"] == f"file:{MODEL}" == stack.ready_worker()["model_ref"]


def test_a_seed_is_kept_or_chosen_and_recorded(stack):
    """OC-CORE-1034: with the seed that was chosen the same request says the same."""
    body = {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 1.0}
    first = stack.request("POST", "/v2/tasks", body)
    chosen = stack.wait_terminal(first.json["job_id"])["receipt"]
    again = stack.wait_terminal(stack.request("POST", "/v2/tasks", {**body, "seed": chosen["seed"]}).json["job_id"])["receipt"]
    assert again["seed"] == chosen["seed"] and again["output_sha256"] == chosen["output_sha256"]


def test_every_job_has_an_id_of_its_own(stack):
    """ORCH-3024: unguessable, and never given twice."""
    jobs = {stack.submit(max_tokens=1, seed=1)["job_id"] for _ in range(20)}
    assert len(jobs) == 20 and all(uuid.UUID(j).version == 4 for j in jobs)
    for job in jobs:
        stack.wait_terminal(job)


def test_streams_are_plain_http_1_1_and_never_compressed(stack):
    """OC-CTRL-2025: a client that offers HTTP/2 and gzip is served with HTTP/1.1 and plain text."""
    job = stack.submit(max_tokens=2)["job_id"]
    stack.wait_terminal(job)
    connection = http.client.HTTPConnection(stack.bind, timeout=HANG_S)
    connection.request("GET", f"/v2/tasks/{job}/events", headers={
        "Accept-Encoding": "gzip, br", "Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAARAAAAA"})
    response = connection.getresponse()
    assert response.status == 200 and response.version == 11
    assert response.getheader("Content-Encoding") is None
    assert b"event: end" in response.read()
    connection.close()


def test_correlation_id_is_echoed_everywhere(stack):
    """SYS-5.6.1 OC-CTRL-2052 SYS-10.3.1 ORCH-1092: accepted or made, echoed, in error bodies, and in the logs of who worked on the job.

    NARR-2001 NARR-2002 NARR-2003 NARR-2004 NARR-2005"""
    made = stack.request("GET", "/v2/health").headers["x-correlation-id"]
    assert uuid.UUID(made).version == 4
    response = stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": "x", "max_tokens": 2},
                             headers={"X-Correlation-Id": "corr-of-a-job"})
    assert response.headers["x-correlation-id"] == "corr-of-a-job"
    stack.wait_terminal(response.json["job_id"])
    stream = stack.events(response.json["job_id"])
    assert stream.response.getheader("X-Correlation-Id"), "a stream has one, too"
    wait_for("the lines of orchestratord", lambda: '"correlation_id":"corr-of-a-job"' in stack.log("orchestratord"))
    wait_for("the lines of the worker", lambda: any('"correlation_id":"corr-of-a-job"' in p.read_text(errors="replace")
                                                    for p in (stack.dir / "logs").glob("worker-*.log")))
    for path in ("/v2/health", "/v2/tasks/nope", "/no/such/path"):
        response = stack.request("GET", path, headers={"X-Correlation-Id": "corr-accept-1"})
        assert response.headers["x-correlation-id"] == "corr-accept-1"
        if response.status >= 400:
            assert response.json["error"]["correlation_id"] == "corr-accept-1"


def test_a_finished_job_serves_its_terminal_event(stack):
    job = stack.submit(max_tokens=3)["job_id"]
    stack.read_to_end(job)
    stack.wait_terminal(job)
    events = [e for e in stack.read_to_end(job) if e.id]
    assert events[-1].name == "end" and sum(e.name in ("end", "error") for e in events) == 1


def test_jobs_of_two_models_share_the_box():
    """SYS-4.1.1#eviction: different models take turns on one device: orchestratord has the idle worker stopped, hears that its memory is free,
    then has the next one started."""
    with Stack() as stack:
        a = stack.submit(max_tokens=4)["job_id"]
        b = stack.submit(max_tokens=4, model="demo-f16")["job_id"]
        c = stack.submit(max_tokens=4)["job_id"]
        assert [stack.wait_terminal(j)["status"] for j in (a, b, c)] == ["completed"] * 3
        told = [json.loads(line) for line in stack.wait_lines("orchestratord", '"worker.st', least=3)]
        assert [line["event"] for line in told] == ["worker.start", "worker.stop", "worker.start", "worker.stop", "worker.start"][:len(told)]


def test_without_a_pool_jobs_are_refused_with_a_reason():
    """ORCH-3091#said: never hangs; says what is missing."""
    stack = Stack()
    stack.start_orchestrator()
    try:
        response = stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": "x", "max_tokens": 1})
        assert response.status == 503 and response.code == "POOL_UNREADY"
        assert response.json["error"]["retriable"] is True and response.json["error"]["message"]
    finally:
        stack.stop()


@pytest.mark.parametrize("end", ["read", "interrupted"])
def test_llorch_run_waits_until_the_pool_has_read_the_model(end):
    """Right after a start the API says that the model is being read; a person at the CLI sees it and gets the answer all the same."""
    with Stack() as stack:
        stack.pool.send_signal(signal.SIGSTOP)  # reads nothing
        run = subprocess.Popen([BIN / "llorch", "--state-dir", stack.dir, "--url", stack.url, "run", "demo-f16", "Once", "--max-tokens", "4", "--seed", "7"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(stack.dir))
        line = run.stderr.readline()
        assert line == b"waiting: The pool reads the model for the first time.\n", line
        if end == "interrupted":
            run.send_signal(signal.SIGINT)
        else:
            stack.pool.send_signal(signal.SIGCONT)
        out, err = run.communicate(timeout=HANG_S)
        stack.pool.send_signal(signal.SIGCONT)
        if end == "interrupted":
            assert run.returncode == 130 and b"no job was submitted" in err and not out
        else:
            assert run.returncode == 0 and out.strip(), err


def test_a_model_made_for_less_than_the_context_of_workers_has_its_own():
    with Stack({"orchestratord.worker_context_tokens": "2048"}) as stack:
        assert stack.wait_terminal(stack.submit(max_tokens=3)["job_id"])["status"] == "completed"
        refused = stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": "x", "max_tokens": 1000})
        assert refused.status == 400 and refused.json["error"]["details"]["context_tokens"] == 512


def test_a_slow_stream_keeps_alive():
    """OC-CTRL-2027: comments on an idle stream do not disturb parsers."""
    with Stack(settings={"orchestratord.stream.keep_alive_ms": "50"}) as stack:
        running = stack.submit_held(max_tokens=40)
        waiting = stack.submit(max_tokens=4)["job_id"]
        streams = [stack.events(job) for job in (running, waiting)]
        for stream in streams:
            raw = b""
            while raw.count(b": keep-alive\n\n") < 3:
                part = stream.response.read1(4096)
                assert part, raw
                raw += part
        stack.gate.open()
        events = stack.read_to_end(running)
        assert [e.data["i"] for e in events if e.name == "token"] == list(range(40)) and events[-1].name == "end"
