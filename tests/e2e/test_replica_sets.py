"""Workers of one model that are not of one version: two pools, of which the second one's workers report another engine or sampler."""

import json
import sys

import pytest

from stack import BIN, MODEL, request, wait_for
from test_choice_of_workers import Two

# A worker whose report of readiness is changed on its way. What changes it lives for one report.
OTHER_WORKER = """#!{python}
import http.server, json, os, sys, urllib.request
argv = sys.argv[1:]
at = argv.index("--callback-url") + 1
real = argv[at]


class Between(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {{name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}}
        changed = urllib.request.Request(real, json.dumps({{**report, **{fields!r}}}).encode(), headers, method="POST")
        with urllib.request.urlopen(changed) as answer:
            body = answer.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Between)
if os.fork() == 0:
    server.handle_request()
    os._exit(0)
argv[at] = f"http://127.0.0.1:{{server.server_port}}/"
server.server_close()
os.execv({worker!r}, [{worker!r}, *argv])
"""


@pytest.mark.parametrize("fields", [{"engine_build": "another"}, {"sampler": "s0"}], ids=["engine", "sampler"])
def test_a_replica_set_has_one_version(tmp_path, fields):
    """ORCH-3046 OC-CORE-1031: a worker of another engine or sampler gets no job of the model while one of the first serves, though it is
    free; it is named in the log, and takes over when the last of those has gone."""
    script = tmp_path / "other-worker"
    script.write_text(OTHER_WORKER.format(python=sys.executable, fields=fields, worker=str(BIN / "worker-orcd")))
    script.chmod(0o755)
    with Two({"orchestratord.limits.workers_per_gpu": "1"}, second={"pool-managerd.worker_binary": str(script)}) as stack:
        first = stack.run(placement={"mode": "pin", "pin_pool_id": "pool-1"})["worker_id"]
        started = request(stack.second.pool_url, "POST", "/v2/workers/start",
                          {"worker_id": "other", "model_ref": f"file:{MODEL}", "gpu_id": "cpu", "context_tokens": 512})
        assert started.status == 202, started.body

        def of(worker_id):
            return next((w for pool in stack.pools() for w in pool["workers"] if w["worker_id"] == worker_id), {})

        wait_for("the other one to be ready", lambda: of("other").get("status") == "ready")
        (name, value), = fields.items()
        assert of("other")[name] == value != of(first)[name]
        (told,) = wait_for("the line", lambda: [
            json.loads(line) for line in stack.log("orchestratord").splitlines() if '"worker.version_mismatch"' in line])
        assert (told["worker_id"], told["pool_id"], told["code"]) == ("other", "pool-2", "VERSION_MISMATCH")
        stack.gate.hold()
        running = stack.submit(max_tokens=2)["job_id"]
        stack.wait_running(running)
        waiting = stack.submit(max_tokens=2)["job_id"]
        reason = wait_for("its reason", lambda: stack.job(waiting).get("reason"))
        assert reason["code"] == "WAITING_FOR_SLOT" and "another engine version" in reason["human"], reason
        assert of("other")["status"] == "ready" and stack.job(waiting)["status"] == "queued"
        stack.gate.open()
        assert {stack.wait_terminal(job)["worker_id"] for job in (running, waiting)} == {first}
        stack.pool.terminate()
        stack.pool.wait()
        assert stack.run()["worker_id"] == "other"
