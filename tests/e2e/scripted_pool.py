"""A pool of GPUs that are not there, as orchestratord sees pools: it registers, says what a test wants of its devices and of the memory
that models need, notes the starts that it is told to make, and runs no worker. A real pool manager behind it reads the models' files.
Standard library only."""

import hashlib
import http.server
import json
import pathlib
import threading
import urllib.parse

from stack import Stack, request
from test_pool_registry import node_headers

GB = 10**9


def gpu(index, total, **fields):
    """A device that nothing runs on."""
    return {"gpu_id": str(index), "model": "Scripted GPU", "device_class": "scripted sm_90", "memory_architecture": "vram-only",
            "vram_total_bytes": total, "vram_allocated_bytes": 0, "vram_available_bytes": total, "healthy": True, "workers": [], **fields}


class ScriptedPool:
    """`needs`: bytes that a worker takes of each of its devices, by the model's reference."""

    def __init__(self, gpus, needs):
        self.gpus = gpus
        self.needs = needs
        self.workers = []
        self.starts = []  # bodies of the commands, in order
        self.asked = 0  # how often for its state
        self.gpus_after_shortage = None  # once a worker's job has met one
        self.behind = None  # the address of the real one
        pool = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                if url.path == "/v2/state":
                    pool.asked += 1
                    self.answer(200, pool.state())
                    return
                real = request(pool.behind, path=self.path, headers={"Authorization": self.headers["Authorization"]})
                body = real.body
                if url.path == "/v2/models/describe" and real.status == 200:
                    body = json.dumps({**real.json, "memory_bytes": pool.needs[real.json["model_ref"]]}).encode()
                self.answer(real.status, body, real.headers["content-type"])

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
                if self.path == "/v2/workers/start":
                    pool.starts.append(body)
                    return self.answer(202, {"worker_id": body["worker_id"], "status": "starting"})
                if self.path == "/execute":
                    return self.out_of_memory()
                self.answer(202, {"worker_id": body.get("worker_id", ""), "status": "draining"})

            def out_of_memory(self):
                """What a worker says of a job for which its device had too little memory."""
                pool.gpus = pool.gpus_after_shortage
                error = {"code": "VRAM_OOM", "message": "the device ran out of memory during the job", "retriable": False}
                data = f"event: error\ndata: {json.dumps(error)}\n\n".encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def answer(self, status, body, content_type="application/json"):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.sequence = 0

    def state(self):
        self.sequence += 1
        return {"pool_id": "pool-1", "endpoint": self.url, "boot_id": "scripted", "version": "0.1.0", "timestamp_ms": self.sequence,
                "sequence": self.sequence, "gpus": self.gpus, "workers": self.workers}

    def make_ready(self, start, memory_bytes, uri=None):
        """A worker that was started is ready, and out of memory at its first job; with `uri` it says that it is there."""
        file = pathlib.Path(start["model_ref"].removeprefix("file:"))
        self.workers.append({
            "worker_id": start["worker_id"], "model_ref": start["model_ref"], "gpu_id": start["gpu_id"], "status": "ready", "uri": uri or self.url,
            "model_digest": "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest(), "vram_bytes": memory_bytes, "slots_total": 1,
            "context_length": 512, "engine_build": "scripted", "numerics": "scripted", "device_class": "scripted sm_90", "sampler": "s1",
            "kv_dtype": "f16", "started_at": "2026-01-01T00:00:00.000Z", "pid": 1})

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class ScriptedStack(Stack):
    """A real orchestratord with a scripted pool. Its models are those of the stack."""

    def __init__(self, pool, settings=None):
        super().__init__({"orchestratord.heartbeat.missed_threshold": "100", **(settings or {})})
        self.scripted = pool

    def spawn_pool(self):
        return self._spawn("pool-managerd", self.pool_bind, ["--cpu"])

    def start_pool(self):
        super().start_pool()
        self.scripted.behind = self.pool_url
        self.tell("register")

    def tell(self, how="heartbeat"):
        """orchestratord hears the pool's state."""
        path = "/v2/pools/register" if how == "register" else "/v2/pools/pool-1/heartbeat"
        answer = self.request("POST", path, self.scripted.state(), node_headers(self))
        assert answer.status in (200, 204), answer.body

    def stop(self):
        super().stop()
        self.scripted.close()
