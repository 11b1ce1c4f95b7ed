"""Real processes on free ports, driven over HTTP. Standard library only."""

import atexit
import contextlib
import functools
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.parse

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LLORCH_BIN_DIR", REPO / "build/release/bin"))
MODEL = REPO / "models/demo/fairytale-5m-q8_0.gguf"
MODEL_F16 = REPO / "models/demo/fairytale-5m-f16.gguf"
ALIAS = "demo"


@functools.cache
def slow_model():
    """Path of a model that is slow enough to be interrupted; made once per test run."""
    from slow_model import write_slow_model

    folder = tempfile.TemporaryDirectory(prefix="llorch-e2e-model-")
    atexit.register(folder.cleanup)
    return write_slow_model(pathlib.Path(folder.name) / "slow.gguf")


def wait_for(what, predicate, timeout_s=30.0, every_s=0.01):
    """The first truthy value of predicate(); fails with `what` when time runs out."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out waiting for {what}")
        time.sleep(every_s)


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The error code of an envelope."""
        return self.json["error"]["code"]


def request(url, method="GET", path="/", body=None, headers=None, timeout_s=30):
    parsed = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body=body, headers=headers or {})
        raw = connection.getresponse()
        return Response(raw.status, {k.lower(): v for k, v in raw.getheaders()}, raw.read())
    finally:
        connection.close()


class Event:
    def __init__(self, name, event_id, data):
        self.name = name
        self.id = event_id
        self.data = json.loads(data) if data else None

    def __repr__(self):
        return f"Event({self.name}, {self.id}, {self.data})"


class EventStream:
    """One connection to an event stream. Iterate for events; ends when the connection does."""

    def __init__(self, url, path, last_event_id=None, timeout_s=60):
        parsed = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
        headers = {"Accept": "text/event-stream"}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        self.connection.request("GET", path, headers=headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def __iter__(self):
        name, event_id, data = "message", None, []
        while True:
            try:
                line = self.response.readline()
            except (OSError, http.client.HTTPException):
                return
            if not line:
                return
            line = line.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield Event(name, event_id, "\n".join(data))
                name, event_id, data = "message", None, []
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("id: "):
                event_id = line[4:]
            elif line.startswith("data: "):
                data.append(line[6:])

    def close(self):
        with contextlib.suppress(OSError):
            self.connection.sock and self.connection.sock.close()
        self.connection.close()


def clean_env(state_dir, more=None):
    """The environment without the user's own stack and configuration."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLORCH_")}
    return {**env, "LLORCH_CONFIG": os.devnull, "LLORCH_STATE_DIR": str(state_dir), **(more or {})}


def process_runs(pid):
    """False also for a zombie that nobody has reaped."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Stack:
    """orchestratord and pool-managerd in a folder of their own, started one by one so that tests can kill them.

    `slow` puts a model of a few hundred tokens per second behind the alias instead of the demo model.
    """

    def __init__(self, settings=None, env=None, state_dir=None, slow=False, token=None, spawn=None):
        self._temporary = None if state_dir else tempfile.TemporaryDirectory(prefix="llorch-e2e-")
        self.dir = pathlib.Path(state_dir or self._temporary.name)
        self.token = token
        self.spawn = spawn or {}  # more arguments of Popen
        self.env = clean_env(self.dir, {**(env or {}), **({"LLORCH_API_TOKEN": token} if token else {})})
        self.settings = {
            f"models.aliases.{ALIAS}": f"file:{slow_model() if slow else MODEL}",
            "models.aliases.demo-f16": f"file:{MODEL_F16}",
            "models.allowed_roots": f"{MODEL.parent},{slow_model().parent}" if slow else str(MODEL.parent),
            "orchestratord.retry.initial_delay_ms": "50",
            **(settings or {}),
        }
        self.orchestrator = None
        self.pool = None
        self.bind = "127.0.0.1:0"
        self.pool_bind = "127.0.0.1:0"

    @property
    def url(self):
        return f"http://{self.bind}"

    @property
    def pool_url(self):
        return f"http://{self.pool_bind}"

    def _args(self):
        return [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]

    def _spawn(self, name, bind, more=()):
        log = open(self.dir / f"{name}.log", "ab")
        command = [str(BIN / name), "--state-dir", str(self.dir), "--bind", bind, *more, *self._args()]
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env, **self.spawn)

    def _ready(self, name, process):
        def run_file():
            if process.poll() is not None:
                raise AssertionError(f"{name} exited {process.returncode}:\n{self.log(name)[-2000:]}")
            try:
                record = json.loads((self.dir / f"run/{name}.json").read_text())
            except (OSError, ValueError):
                return None
            return record["bind"] if record["pid"] == process.pid else None

        return wait_for(f"{name} to listen", run_file, 20)

    def spawn_orchestrator(self):
        return self._spawn("orchestratord", self.bind)

    def spawn_pool(self):
        return self._spawn("pool-managerd", self.pool_bind, ["--cpu", "--orchestrator", self.url])

    def start_orchestrator(self):
        self.orchestrator = self.spawn_orchestrator()
        self.bind = self._ready("orchestratord", self.orchestrator)

    def start_pool(self):
        self.pool = self.spawn_pool()
        self.pool_bind = self._ready("pool-managerd", self.pool)

    def start(self):
        self.start_orchestrator()
        self.start_pool()
        wait_for("the pool to register", lambda: self.pools(), 20)
        return self

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def stop_daemons(self):
        for process in (self.pool, self.orchestrator):
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def stop(self):
        self.stop_daemons()
        if self._temporary:
            self._temporary.cleanup()

    def log(self, name):
        with contextlib.suppress(OSError):
            return (self.dir / f"{name}.log").read_text(errors="replace")
        return ""

    # What a client does.
    def request(self, method, path, body=None, headers=None):
        if headers is None and self.token:
            headers = {"Authorization": f"Bearer {self.token}"}
        return request(self.url, method, path, body, headers)

    def submit(self, prompt="Once upon a time", max_tokens=32, expect=202, **fields):
        body = {"model": ALIAS, "prompt": prompt, "max_tokens": max_tokens, "seed": 7, **fields}
        response = self.request("POST", "/v2/tasks", body)
        assert response.status == expect, response.body
        return response.json

    def job(self, job_id):
        response = self.request("GET", f"/v2/tasks/{job_id}")
        assert response.status == 200, response.body
        return response.json

    def events(self, job_id, last_event_id=None):
        return EventStream(self.url, f"/v2/tasks/{job_id}/events", last_event_id)

    def read_to_end(self, job_id):
        return list(self.events(job_id))

    def wait_terminal(self, job_id, timeout_s=60):
        def ended():
            job = self.job(job_id)
            return job if job["status"] in ("completed", "failed", "cancelled") else None

        return wait_for(f"{job_id} to end", ended, timeout_s)

    def pools(self):
        response = self.request("GET", "/v2/pools")
        return response.json["pools"] if response.status == 200 else []

    def workers(self):
        return request(self.pool_url, path="/v2/state").json["workers"]

    def ready_worker(self):
        ready = [w for w in self.workers() if w["status"] in ("ready", "busy")]
        return ready[0] if ready else None


class ResumingClient:
    """Reads one job's stream to its terminal event over any number of connections, as a careful client does."""

    def __init__(self, stack, job_id):
        self.stack = stack
        self.job_id = job_id
        self.events = []  # every event with an id, in order
        self.last_id = None
        self.connections = 0

    def run(self, timeout_s=120):
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                stream = EventStream(self.stack.url, f"/v2/tasks/{self.job_id}/events", self.last_id)
            except (OSError, http.client.HTTPException):
                time.sleep(0.02)
                continue
            self.connections += 1
            if stream.status == 503:
                stream.close()
                time.sleep(0.05)
                continue
            assert stream.status == 200, (stream.status, stream.response.read())
            for event in stream:
                if event.id:
                    self.events.append(event)
                    self.last_id = event.id
                if event.name in ("end", "error"):
                    stream.close()
                    return self
            stream.close()
        raise AssertionError(f"no terminal event for {self.job_id}; {len(self.events)} events")

    def tokens(self):
        return [(e.id, e.data["i"], e.data["t"]) for e in self.events if e.name == "token"]

    def text(self):
        return "".join(t for _, _, t in self.tokens())

    def terminal(self):
        return self.events[-1]


def llorch(*args, state_dir, timeout_s=120, env=None, **kwargs):
    return subprocess.run([str(BIN / "llorch"), "--state-dir", str(state_dir), *args], capture_output=True, timeout=timeout_s,
                          env=clean_env(state_dir, env), **kwargs)
