"""pool-managerd against an orchestratord that only listens: what a pool says of itself, and when."""

import http.server
import json
import os
import signal
import subprocess
import threading

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, clean_env, request, wait_for


class Listener(http.server.BaseHTTPRequestHandler):
    """Takes everything a pool says and answers as orchestratord does."""

    def answer(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        refused = self.server.refusals and self.server.refusals.pop()
        self.server.said.append((self.command, self.path, body))
        if self.path.endswith("/register"):
            reply = {"pool_id": body["pool_id"], "status": "registered", "heartbeat_interval_ms": 100}
        else:
            reply = {"status": "healthy", "next_heartbeat_ms": 100}
        data = json.dumps(reply).encode()
        self.send_response(refused or 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_DELETE = answer

    def log_message(self, *_):
        pass


@pytest.fixture
def listener():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    server.said, server.refusals = [], [503]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_pool_registers_beats_and_leaves(listener, tmp_path):
    """SYS-5.2.2#payload SYS-5.2.2#interval SYS-6.2.4 POOLREG-18010 POOLREG-18040 POOLREG-18050: tried again until it is taken;
    a beat at the interval of the reply, also without change, with device memory, workers and a time; a deregistration at the end.

    SYS-2.1.2#normalized: it resolves no alias."""
    credential = tmp_path / "pool_credential"
    credential.write_text("pool-1:" + "c" * 64 + "\n")
    credential.chmod(0o600)
    pool = subprocess.Popen(
        [str(BIN / "pool-managerd"), "--state-dir", str(tmp_path), "--bind", "127.0.0.1:0", "--cpu",
         "--orchestrator", f"http://127.0.0.1:{listener.server_port}", "--set", f"models.allowed_roots={MODEL.parent}",
         "--set", f"models.aliases.{ALIAS}=file:{MODEL}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_env(tmp_path))
    try:
        def said(what):
            return [body for method, path, body in list(listener.said) if path.endswith(what)]

        wait_for("a second registration", lambda: len(said("/register")) == 2)
        state = said("/register")[1]
        assert state["pool_id"] == "pool-1" and state["endpoint"].startswith("http://127.0.0.1:")
        (device,) = state["gpus"]
        assert device["gpu_id"] == "cpu" and device["vram_total_bytes"] >= device["vram_available_bytes"] > 0
        wait_for("beats without change", lambda: len(said("/heartbeat")) >= 3)

        start = {"worker_id": "w", "model_ref": ALIAS, "gpu_id": "cpu", "context_tokens": 64}
        assert request(state["endpoint"], "POST", "/v2/workers/start", start).status in (400, 403, 404)
        assert request(state["endpoint"], "POST", "/v2/workers/start", {**start, "model_ref": f"file:{MODEL}"}).status == 202
        beat = wait_for("a beat that shows the worker", lambda: [
            b for b in said("/heartbeat") if b["workers"] and b["workers"][0]["status"] == "ready"])[0]
        assert beat["timestamp_ms"] > state["timestamp_ms"] > 0
        assert beat["gpus"][0]["vram_allocated_bytes"] == beat["workers"][0]["vram_bytes"] > 0

        os.kill(pool.pid, signal.SIGTERM)
        assert pool.wait(HANG_S) == 0
        method, path, _ = listener.said[-1]
        assert (method, path) in (("DELETE", "/v2/pools/pool-1"), ("POST", "/v2/pools/pool-1/deregister"))
    finally:
        pool.kill()
        pool.wait()
