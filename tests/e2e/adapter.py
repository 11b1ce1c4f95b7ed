"""worker-adapterd by itself, in front of an engine, driven over HTTP as orchestratord does."""

import json
import os
import subprocess
import tempfile

from stack import BIN, HANG_S, EventStream, clean_env, request, wait_for


class Adapter:
    def __init__(self, engine, slots=4, more=(), key=None, state_dir=None, start_timeout_ms=20_000):
        self._temporary = tempfile.TemporaryDirectory(prefix="llorch-e2e-adapter-")
        self.dir = state_dir or self._temporary.name
        self.log_path = os.path.join(self.dir, "adapter.log")
        args = [str(BIN / "worker-adapterd"), "--worker-id", "adapter-1", "--engine", engine.kind, "--endpoint", engine.url,
                "--model-ref", "engine:test", "--model-digest", "sha256:" + "0" * 64, "--slots", str(slots), "--log-level",
                "debug", "--start-timeout-ms", str(start_timeout_ms), *more]
        if engine.kind != "llamacpp":
            args += ["--model", engine.model]
        if key:
            path = os.path.join(self.dir, "key")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(key + "\n")
            args += ["--api-key-file", path]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
                                            env=clean_env(self.dir))

    def __enter__(self):
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait(HANG_S)
            raise AssertionError(f"worker-adapterd exited {code}:\n{self.log()[-3000:]}")
        self.url = "http://" + json.loads(line)["bind"]
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(HANG_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self._temporary.cleanup()

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def request(self, method, path, body=None):
        return request(self.url, method, path, body)

    def run(self, **job):
        """The events of a job."""
        return list(self.stream(**job))

    def stream(self, **job):
        body = {"job_id": "job-1", "max_tokens": 12, "seed": 7, "temperature": 0.5, **job}
        if "messages" not in body:
            body.setdefault("prompt", "Once upon a time")
        return EventStream(self.url, "/execute", body=body)

    def health(self):
        return self.request("GET", "/health").json

    def metric(self, name):
        text = self.request("GET", "/metrics").body.decode()
        return sum(int(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + "{"))

    def wait_idle(self):
        wait_for("every slot to be free", lambda: self.health()["slots_free"] == self.health()["slots_total"])


def text(events):
    return "".join(e.data["t"] for e in events if e.name == "token")


def one_end(events):
    """The last event, if it is the only end and everything before it is in order."""
    assert [e.name for e in events if e.name in ("end", "error")] == [events[-1].name]
    tokens = [e for e in events if e.name == "token"]
    assert [e.data["i"] for e in tokens] == list(range(len(tokens)))
    assert events[0].name == "started"
    return events[-1]
