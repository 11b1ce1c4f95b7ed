"""Workers that die, cancels, slow and vanished clients."""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading

import pytest

from metrics_text import parse
from stack import BIN, HANG_S, MODEL, MODEL_F16, OFTEN_HEARD, EventStream, ResumingClient, Stack, process_runs, request, wait_for

LONG = 400
NUL_TOKEN = 188  # of the demo model's vocabulary: the byte 0x00


def first_token(stream):
    for event in stream:
        if event.name == "token":
            return event
    raise AssertionError("the stream ended without a token")


def test_kill_9_worker_mid_stream_is_replayed():
    """SYS-7.3.1 SYS-6.2.5 SYS-6.1.6: one terminal event, the same bytes, memory accounted back, next job on a new worker."""
    with Stack() as stack:
        calm = ResumingClient(stack, stack.submit(max_tokens=120)["job_id"]).run()
        job = stack.submit_held(steps=20, max_tokens=120, on_disconnect="resume")
        client = ResumingClient(stack, job)
        stream = stack.events(job)
        first_token(stream)
        worker = stack.ready_worker()
        os.kill(worker["pid"], signal.SIGKILL)
        stack.gate.open()
        wait_for("the pool to notice", lambda: all(w["worker_id"] != worker["worker_id"] for w in stack.workers()))
        stream.close()
        client.run()
        assert client.tokens() == calm.tokens()
        assert sum(e.name in ("end", "error") for e in client.events) == 1
        assert stack.job(job)["status"] == "completed" and stack.job(job)["attempts"] >= 2
        assert stack.ready_worker()["worker_id"] != worker["worker_id"]


def test_a_worker_inherits_no_socket_of_its_pool():
    """A worker that kept the pool's listener would hold the port after the pool's death."""
    with Stack() as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        fds = f"/proc/{stack.ready_worker()['pid']}/fd"
        pool = f"/proc/{stack.pool.pid}/fd"

        def sockets(directory):
            links = set()
            for fd in os.listdir(directory):
                with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                    links.add(os.readlink(f"{directory}/{fd}"))
            return {link for link in links if link.startswith("socket:")}

        assert sockets(pool) and not sockets(pool) & sockets(fds)


def test_workers_are_processes_apart():
    """SYS-2.4.1 SYS-2.4.2 SYS-6.3.2 SYS-8.4.3#effective: one process per worker, and none shares memory it could write with another.

    SYS-2.5.1: what manages pools and what decides loads nothing to compute with.

    WORKER-4020 WORKER-4021 WORKER-4022"""
    with Stack(settings={"orchestratord.limits.workers_per_gpu": "2"}) as stack:
        for model in ("demo", "demo-f16"):
            stack.wait_terminal(stack.submit(max_tokens=2, model=model)["job_id"])
        pids = [w["pid"] for w in stack.workers() if w["status"] in ("ready", "busy")]
        assert len(set(pids)) == 2 and stack.pool.pid not in pids

        def maps(pid):
            with open(f"/proc/{pid}/maps") as lines:
                return [line.split(maxsplit=5) for line in lines]

        def shared_and_writable(pid):
            return {(m[3], m[4]) for m in maps(pid) if "w" in m[1] and m[1].endswith("s")}

        for one in (stack.pool.pid, *pids):
            for other in pids:
                assert one == other or not shared_and_writable(one) & shared_and_writable(other)
        for pid in (stack.pool.pid, stack.orchestrator.pid):
            assert not [m for m in maps(pid) if len(m) > 5 and ("libcuda" in m[5] or "libcublas" in m[5])]


def test_pools_report_and_obey_and_decide_nothing():
    """SYS-4.1.1#retry SYS-4.2.1#no-policy SYS-4.4.1#facts-up SYS-4.4.1#commands-down: a lost worker is a fact that goes up; another one comes by a command that goes down."""
    with Stack(settings=OFTEN_HEARD) as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        lost = stack.ready_worker()
        os.kill(lost["pid"], signal.SIGKILL)
        wait_for("orchestratord to know", lambda: not [w for p in stack.pools() for w in p["workers"]])
        ages = []
        for _ in range(2):
            ages.clear()
            wait_for("a heartbeat", lambda: ages.append(stack.pools()[0]["last_heartbeat_ms"]) or ages[-1] < max(ages))
        assert stack.workers() == []  # nobody asked for another one
        job = stack.submit(max_tokens=2)["job_id"]
        assert stack.wait_terminal(job)["status"] == "completed"
        assert stack.ready_worker()["worker_id"] == stack.job(job)["worker_id"] != lost["worker_id"]


def test_memory_accounting_returns_to_zero():
    """POOL-2043 GPUINV-12031: allocated memory follows the workers, up and down."""
    with Stack() as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])

        def allocated():
            return request(stack.pool_url, path="/v2/state").json["gpus"][0]["vram_allocated_bytes"]

        assert allocated() > 0
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        wait_for("the accounting to return to zero", lambda: allocated() == 0)
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"


def test_delete_mid_stream_stops_at_once_and_frees_the_slot():
    """ORCH-3026 OC-CTRL-2012 SYS-7.4.1 SYS-5.4.2 ORCH-2003 SSE-1002 SYS-6.3.5: no token after the 202; the slot takes the next job at once."""
    with Stack() as stack:
        job = stack.submit_held(max_tokens=LONG)
        stream = stack.events(job)
        first_token(stream)
        reply = stack.request("DELETE", f"/v2/tasks/{job}")
        assert reply.status == 202 and reply.json["status"] in ("cancelling", "cancelled")
        # Whatever is still on the way was sent before the 202; the stored stream must not grow after it.
        rest = [e for e in stream if e.id]
        assert rest[-1].name == "error" and rest[-1].data["code"] == "CANCELLED"
        wait_for("a free slot", lambda: request(stack.ready_worker()["uri"], path="/health").json["slots_free"] == 1)
        stack.gate.open()  # the next token could be said now
        tokens = stack.job(job)["tokens_out"]
        again = stack.request("DELETE", f"/v2/tasks/{job}")
        assert again.status == 200
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"
        assert stack.job(job)["status"] == "cancelled" and stack.job(job)["tokens_out"] == tokens


def test_cancel_of_a_queued_job_by_post():
    """OC-CORE-1005 OC-CTRL-2012 SYS-8.2.2#one-job M0-W-1301: a waiting job ends at once and never starts."""
    with Stack() as stack:
        running = stack.submit_held(max_tokens=LONG)
        waiting = stack.submit(max_tokens=2)["job_id"]
        assert stack.request("POST", f"/v2/tasks/{waiting}/cancel").status == 202
        view = stack.wait_terminal(waiting)
        assert view["status"] == "cancelled" and "started_at" not in view
        assert [e.name for e in stack.read_to_end(waiting) if e.id][-1] == "error"
        stack.request("DELETE", f"/v2/tasks/{running}")


def test_a_vanished_client_cancels_its_job_by_default():
    """SYS-7.4.1: disconnect means cancel unless the request says resume."""
    with Stack() as stack:
        job = stack.submit_held(max_tokens=LONG)
        stream = stack.events(job)
        first_token(stream)
        stream.close()
        assert stack.wait_terminal(job)["status"] == "cancelled"


def test_a_model_may_say_nul(stack):
    """What a model says is never a reason to fail: this request draws a NUL byte, the token of the byte 0x00."""
    job = stack.submit(max_tokens=8, logit_bias={str(NUL_TOKEN): 100})["job_id"]
    client = ResumingClient(stack, job).run()
    assert stack.job(job)["status"] == "completed" and "\0" in client.text()


def test_a_job_nobody_reads_runs_to_its_end(stack):
    job = stack.submit(max_tokens=8)["job_id"]
    assert stack.wait_terminal(job)["status"] == "completed"


def test_resume_keeps_the_job_for_the_grace():
    """Whoever comes back within the grace goes on; the job of who does not is cancelled when it is over."""
    with Stack(settings={"orchestratord.stream.reconnect_grace_ms": "60000"}) as stack:
        job = stack.submit_held(max_tokens=LONG, on_disconnect="resume")
        stream = stack.events(job)
        event = first_token(stream)
        stream.close()
        stack.gate.let_pass(1)
        again = EventStream(stack.url, f"/v2/tasks/{job}/events", event.id)
        assert first_token(again).data["i"] == 1
        again.close()
        assert stack.job(job)["status"] == "running"
    with Stack(settings={"orchestratord.stream.reconnect_grace_ms": "100"}) as stack:
        job = stack.submit_held(max_tokens=LONG, on_disconnect="resume")
        stream = stack.events(job)
        first_token(stream)
        stream.close()
        assert stack.wait_terminal(job)["status"] == "cancelled"


def test_a_job_over_its_time_ends_with_timeout():
    """SYS-4.1.1#timeout OC-CORE-1022: the wall limit of the request, with the stage in the error."""
    with Stack() as stack:
        stack.gate.hold()
        job = stack.submit(max_tokens=LONG, timeout_ms=1000)["job_id"]
        view = stack.wait_terminal(job)
        assert view["status"] == "failed" and view["error"]["code"] == "TIMEOUT"


def test_kill_9_of_the_pool_takes_its_workers_along_and_jobs_survive():
    """A dead pool manager leaves no orphan on the device; the job is replayed when the pool is back."""
    with Stack(settings={"orchestratord.stream.reconnect_grace_ms": "600000"}) as stack:
        calm = ResumingClient(stack, stack.submit(max_tokens=100)["job_id"]).run()
        job = stack.submit_held(steps=20, max_tokens=100, on_disconnect="resume")
        first_token(stack.events(job))
        worker = stack.ready_worker()
        stack.pool.kill()
        stack.pool.wait()
        wait_for("the worker to die with its parent", lambda: not process_runs(worker["pid"]))
        stack.gate.open()
        stack.start_pool()
        client = ResumingClient(stack, job).run()
        assert client.tokens() == calm.tokens()


def test_a_worker_used_alone(tmp_path):
    """ORCH-3001 M0-W-1302 M0-W-1310 M0-W-1320 M0-W-1330 SYS-6.3.1: one model in memory of its own; execute, health, cancel, shutdown.

    SYS-5.4.1: started, tokens and metrics, one terminal event; the correlation id comes back.

    ORCH-3049#preload ORCH-3049#cancel ORCH-3049#metrics-and-logs: before it says that it listens it has loaded, run and cancelled a job, and counted both.

    M0-W-1300 M0-W-1311 M0-W-1312 M0-W-1510 M0-W-1340 M0-W-1630#exit-code"""
    worker = subprocess.Popen(
        [str(BIN / "worker-orcd"), "--model", str(MODEL), "--gpu-device", "cpu", "--self-test-dir", str(tmp_path / "st")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    try:
        url = "http://" + json.loads(worker.stdout.readline())["bind"]
        health = request(url, path="/health").json
        assert health["status"] == "healthy" and health["quant_kind"] == "Q8_0" and health["resident"] is True

        def ended():
            series = parse(request(url, path="/metrics").body.decode())["worker_requests_total"].series
            return {labels["outcome"]: value for labels, value in series if value}

        proven = ended()  # of the self-test, whose second job may end before its cancel comes
        assert proven in ({"success": 1, "cancelled": 1}, {"success": 2})
        body = {"job_id": "j1", "prompt": "Once upon a time", "max_tokens": 5, "temperature": 0}
        done = request(url, "POST", "/execute", body, headers={"X-Correlation-Id": "corr-1"})
        assert done.headers["content-type"].startswith("text/event-stream")
        assert done.headers["x-correlation-id"] == "corr-1"
        names = [line[7:] for line in done.body.decode().splitlines() if line.startswith("event: ")]
        assert names[0] == "started" and names[-1] == "end" and set(names[1:-1]) <= {"token", "metrics"}
        assert done.body.count(b"event: token") == 5 and done.body.count(b"event: end") == 1
        told = [json.loads(line[6:]) for line in done.body.decode().splitlines() if line.startswith("data: ")]
        assert told[0]["job_id"] == "j1" and told[0]["model"] and told[0]["started_at"]
        assert [t["i"] for t in told if "t" in t] == list(range(5)) and told[-1]["tokens_out"] == 5 and told[-1]["decode_time_ms"] >= 0
        metrics = parse(request(url, path="/metrics").body.decode())
        assert {"worker_vram_bytes", "worker_tokens_generated_total", "worker_uptime_seconds"} <= metrics.keys()
        assert ended() == {**proven, "success": proven["success"] + 1}
        assert request(url, "POST", "/cancel", {"job_id": "nobody"}).status == 202
        bad = request(url, "POST", "/execute", {"job_id": "j1", "prompt": "", "max_tokens": 5})
        assert bad.status == 400 and bad.code == "INVALID_PARAMS"
        assert request(url, "POST", "/shutdown").status == 202
        assert worker.wait(HANG_S) == 0
    finally:
        worker.kill()


def test_a_worker_keeps_its_model_for_life(tmp_path):
    """M0-W-1001 M0-W-1002: whatever becomes of the file, and whatever a request names: there is nothing to load another one with."""
    file = tmp_path / "m.gguf"
    file.write_bytes(MODEL.read_bytes())
    worker = subprocess.Popen([str(BIN / "worker-orcd"), "--model", str(file), "--gpu-device", "cpu", "--self-test-dir", str(tmp_path / "st")],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        url = "http://" + json.loads(worker.stdout.readline())["bind"]

        def state():
            done = request(url, "POST", "/execute", {"job_id": "j", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
            return request(url, path="/health").json["model_digest"], [line for line in done.body.decode().splitlines() if '"t":' in line]

        before = state()
        assert before[0].endswith(hashlib.sha256(file.read_bytes()).hexdigest()) and len(before[1]) == 8
        os.replace(shutil.copy(MODEL_F16, tmp_path / "other"), file)
        assert state() == before
        named = request(url, "POST", "/execute", {"job_id": "j", "prompt": "Once", "max_tokens": 1, "model": str(MODEL_F16)})
        assert named.status == 400 and named.code == "INVALID_PARAMS", named.body
        for path in ("/load", "/v2/workers/start", "/model"):
            assert request(url, "POST", path, {"model": str(MODEL_F16)}).status == 404
        assert state() == before
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_believes_a_digest_of_the_files_as_they_are(tmp_path):
    """A digest that no file has shows whether it was taken over; with another stamp the worker computes its own."""
    model = tmp_path / "m.gguf"
    model.write_bytes(MODEL.read_bytes())
    now = model.stat()
    times = " ".join(f"{ns // 10**9} {ns % 10**9}" for ns in (now.st_mtime_ns, now.st_ctime_ns))
    stamp = hashlib.sha256(f"m.gguf {now.st_dev} {now.st_ino} {now.st_size} {times}\n".encode()).hexdigest()
    computed = hashlib.sha256(model.read_bytes()).hexdigest()
    for told, digest in ((stamp, "a" * 64), ("b" * 64, computed)):
        worker = subprocess.Popen(
            [str(BIN / "worker-orcd"), "--model", str(model), "--gpu-device", "cpu", "--self-test-dir", str(tmp_path / "st"),
             "--model-digest", "a" * 64, "--model-stamp", told],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        try:
            url = "http://" + json.loads(worker.stdout.readline())["bind"]
            assert request(url, path="/health").json["model_digest"] == f"sha256:{digest}"
        finally:
            worker.kill()
            worker.wait()


@pytest.mark.parametrize("status", [200, 500])
def test_a_worker_reports_once_it_serves_and_ends_if_nobody_hears(tmp_path, status):
    """M0-W-1110 SYS-6.3.4 SYS-2.1.3: a concrete path in, the resolved reference out; the server answers before the report is made."""
    seen = []

    class Pool(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            report = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((report, request(report["uri"], path="/health").json))
            self.send_response(status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    pool = http.server.HTTPServer(("127.0.0.1", 0), Pool)
    threading.Thread(target=pool.serve_forever, daemon=True).start()
    worker = subprocess.Popen(
        [str(BIN / "worker-orcd"), "--model", str(MODEL), "--model-ref", f"file:{MODEL}", "--gpu-device", "cpu",
         "--worker-id", "worker-1", "--self-test-dir", str(tmp_path / "st"),
         "--callback-url", f"http://127.0.0.1:{pool.server_port}/v2/internal/workers/ready"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
    try:
        wait_for("the report", lambda: seen)
        report, health = seen[0]
        assert report["worker_id"] == "worker-1" and report["model_ref"] == f"file:{MODEL}"
        assert health["status"] == "healthy" and health["resident"] is True
        if status == 500:
            assert worker.wait(HANG_S) != 0
        else:
            assert b"listening" in worker.stdout.readline(), "said when the report was taken"
            assert worker.poll() is None
    finally:
        worker.kill()
        worker.wait()
        pool.shutdown()
