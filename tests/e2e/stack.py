"""Real processes on free ports, driven over HTTP. Standard library only."""

import array
import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import termios
import time
import urllib.parse

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("LLORCH_BIN_DIR", REPO / "build/release/bin"))
MODEL = REPO / "models/demo/fairytale-5m-q8_0.gguf"
MODEL_F16 = REPO / "models/demo/fairytale-5m-f16.gguf"
ALIAS = "demo"


# Bounds a hang and nothing else: a machine may be as slow as it likes.
HANG_S = 180.0


# Seconds that a test waits before each of its requests. A machine that is quick beside its tests finds what races them.
LAG_S = float(os.environ.get("LLORCH_TEST_LAG_MS", 0)) / 1000


def wait_for(what, predicate, timeout_s=HANG_S, every_s=0.01):
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
    def envelope(self):
        """The error of an envelope, or that which an error in another API's format holds, or has beside it."""
        error = self.json if "code" in self.json else self.json.get("llorch") or self.json["error"]  # the router of /v1 is flat
        return error.get("llorch", error)

    @property
    def code(self):
        return self.envelope["code"]


def request(url, method="GET", path="/", body=None, headers=None, timeout_s=HANG_S):
    time.sleep(LAG_S)
    parsed = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        typed = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body=body, headers={**typed, **(headers or {})})
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

    def __init__(self, url, path, last_event_id=None, timeout_s=HANG_S, body=None, metrics=False, headers=None):
        """`body`: of a POST that is answered with a stream; else it is asked for with GET. `metrics`: those events as well."""
        self.metrics = metrics
        time.sleep(LAG_S)
        parsed = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=timeout_s)
        headers = {"Accept": "text/event-stream", **(headers or {})}
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        if body is None:
            self.connection.request("GET", path, headers=headers)
        else:
            self.connection.request("POST", path, json.dumps(body), {**headers, "Content-Type": "application/json"})
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
                if data and (self.metrics or name != "metrics"):
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


# A pool is heard of often, and no delay makes it count as gone.
OFTEN_HEARD = {"orchestratord.heartbeat.interval_ms": "200", "orchestratord.heartbeat.missed_threshold": "100"}


class Gate:
    """Holds the steps of the workers that know it (src/worker/step_gate), so that what must still run still runs."""

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix="llorch-e2e-gate-")
        os.chmod(self._directory.name, 0o711)
        self.path = pathlib.Path(self._directory.name) / "gate"
        os.mkfifo(self.path)
        os.chmod(self.path, 0o644)
        self._fd = None
        self.env = {"LLORCH_STEP_GATE": str(self.path)}

    def hold(self):
        """From now on no step begins. The one under way ends."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 4096):
                pass

    def let_pass(self, steps):
        """Of whichever worker comes first. A step is a token of every job that runs; the first one is the prompt's as well."""
        os.write(self._fd, b"." * steps)

    def steps_left(self):
        """Of those that were let pass."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._fd, termios.FIONREAD, waiting)
        return waiting[0]

    def open(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def remove(self):
        self.open()
        self._directory.cleanup()


class Stack:
    """orchestratord and pool-managerd in a directory of their own, started one by one so that tests can kill them.

    `gate` holds the steps of its workers; it stands open until a test holds it.
    """

    def __init__(self, settings=None, env=None, state_dir=None, token=None, spawn=None):
        self._temporary = None if state_dir else tempfile.TemporaryDirectory(prefix="llorch-e2e-")
        self.dir = pathlib.Path(state_dir or self._temporary.name)
        self.token = token
        self.spawn = spawn or {}  # more arguments of Popen
        self.gate = Gate()
        self.env = clean_env(self.dir, {**(env or {}), **self.gate.env, **({"LLORCH_API_TOKEN": token} if token else {})})
        self.settings = {
            f"models.aliases.{ALIAS}": f"file:{MODEL}",
            "models.aliases.demo-f16": f"file:{MODEL_F16}",
            "models.allowed_roots": str(MODEL.parent),
            "orchestratord.retry.initial_delay_ms": "50",
            # A job that is held by the gate is neither silent nor late; who tests these limits sets them.
            "orchestratord.timeout.idle_ms": "1800000",
            "orchestratord.timeout.default_ms": "1800000",
            "log.level": "debug",  # the way of every job, not only its end
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
        command = [str(BIN / name), "--state-dir", str(self.dir), "--bind", bind, *more, *self._args()]
        with self._output(name) as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env, **self.spawn)

    def _output(self, name):
        """Where a daemon writes its log."""
        return open(self.dir / f"{name}.log", "ab")

    def _ready(self, name, process):
        def run_file():
            if process.poll() is not None:
                raise AssertionError(f"{name} exited {process.returncode}:\n{self.log(name)[-2000:]}")
            try:
                record = json.loads((self.dir / f"run/{name}.json").read_text())
            except (OSError, ValueError):
                return None
            return record["bind"] if record["pid"] == process.pid else None

        return wait_for(f"{name} to listen", run_file)

    @property
    def credential_file(self):
        return self.dir / "pool_credential"

    def pair(self):
        """Makes the credential of this stack's pool, as `llorch up` does, unless it has one."""
        if self.credential_file.exists():
            return
        pool_id = self.settings.get("pool-managerd.pool_id", "pool-1")
        subprocess.run([str(BIN / "orchestratord"), "--state-dir", str(self.dir), *self._args(), "--pair-pool", pool_id,
                        "--credential-file", str(self.credential_file)], env=self.env, check=True, timeout=HANG_S, **self.spawn)

    def spawn_orchestrator(self):
        return self._spawn("orchestratord", self.bind)

    def spawn_pool(self):
        return self._spawn("pool-managerd", self.pool_bind, ["--cpu", "--orchestrator", self.url])

    def start_orchestrator(self):
        self.pair()
        self.orchestrator = self.spawn_orchestrator()
        self.bind = self._ready("orchestratord", self.orchestrator)

    def start_pool(self):
        self.pool = self.spawn_pool()
        self.pool_bind = self._ready("pool-managerd", self.pool)

    def start(self):
        self.start_orchestrator()
        self.start_pool()
        wait_for("the pool to register", self.pools)
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
        self.gate.open()
        for process in (self.pool, self.orchestrator):
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(HANG_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def stop(self):
        self.stop_daemons()
        self.gate.remove()
        if self._temporary:
            self._temporary.cleanup()

    def log(self, name):
        with contextlib.suppress(OSError):
            return (self.dir / f"{name}.log").read_text(errors="replace")
        return ""

    def wait_lines(self, name, *words, least=1):
        """The whole lines of a daemon's log that have all these words, once there are so many: it writes them behind its answers."""
        def written():
            whole, _, _ = self.log(name).rpartition("\n")
            lines = [line for line in whole.splitlines() if all(word in line for word in words)]
            return lines if len(lines) >= least else None

        return wait_for(f"{' and '.join(words)} in the log of {name}", written)

    # What a client does.
    def request(self, method, path, body=None, headers=None):
        if headers is None and self.token:
            headers = {"Authorization": f"Bearer {self.token}"}
        return request(self.url, method, path, body, headers)

    def submit(self, prompt="Once upon a time", max_tokens=32, expect=202, **fields):
        body = {"model": ALIAS, "prompt": prompt, "max_tokens": max_tokens, "seed": 7, **fields}
        # On a busy machine a pool may say that it still reads the model's file, and to come again.
        response = wait_for("the model to be read", lambda: (
            answer := self.request("POST", "/v2/tasks", body)) and b"MODEL_BEING_READ" not in answer.body and answer)
        assert response.status == expect, response.body
        return response.json

    def job(self, job_id):
        response = self.request("GET", f"/v2/tasks/{job_id}")
        assert response.status == 200, response.body
        return response.json

    def events(self, job_id, last_event_id=None, metrics=False):
        return EventStream(self.url, f"/v2/tasks/{job_id}/events", last_event_id, metrics=metrics)

    def read_to_end(self, job_id):
        return list(self.events(job_id))

    def submit_held(self, steps=1, **fields):
        """A job that has said `steps` tokens and will say no more until the gate lets it."""
        self.gate.hold()
        job_id = self.submit(**fields)["job_id"]
        self.wait_running(job_id)
        self.gate.let_pass(steps)
        wait_for("the job to say them", lambda: self.gate.steps_left() == 0 and self.job(job_id)["tokens_out"] > 0)
        return job_id

    def wait_running(self, job_id):
        wait_for("the job to run", lambda: self.job(job_id)["status"] == "running")

    def wait_terminal(self, job_id, timeout_s=HANG_S):
        def ended():
            job = self.job(job_id)
            return job if job["status"] in ("completed", "failed", "cancelled") else None

        return wait_for(f"{job_id} to end", ended, timeout_s)

    def pools(self):
        response = self.request("GET", "/v2/pools")
        return response.json["pools"] if response.status == 200 else []

    def workers(self):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else None
        return request(self.pool_url, path="/v2/state", headers=headers).json["workers"]

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
        self.connections = 0  # that were answered

    def run(self, timeout_s=HANG_S):
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


def llorch(*args, state_dir, timeout_s=HANG_S, env=None, **kwargs):
    return subprocess.run([str(BIN / "llorch"), "--state-dir", str(state_dir), *args], capture_output=True, timeout=timeout_s,
                          env=clean_env(state_dir, env), **kwargs)
