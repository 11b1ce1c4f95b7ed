"""Workers that end for lack of memory: of the device's, and of the machine's."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from stack import BIN, MODEL, Stack, request, wait_for

# A worker that is given less memory of its device than the pool meant.
SHORT_WORKER = """#!{python}
import os, sys
argv = sys.argv[1:]
argv[argv.index("--memory-budget-bytes") + 1] = "1000000"
os.execv({worker!r}, [{worker!r}, *argv])
"""
# The kernel's counts are a file that a test writes: /sys/fs/cgroup is another directory for this process alone.
OWN_COUNTS = 'mount --bind "$0" /sys/fs/cgroup && exec "$@"'
UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def counts_can_be_told(directory):
    if not shutil.which("unshare") or "0::/" not in open("/proc/self/cgroup").read():
        return False
    return subprocess.run([*UNSHARE, "sh", "-c", OWN_COUNTS, str(directory), "true"], capture_output=True).returncode == 0


class Counted(Stack):
    """Its pool reads the kernel's counts of killed processes from a directory of the test."""

    def __init__(self, counts, **more):
        super().__init__(**more)
        path = next(line for line in open("/proc/self/cgroup").read().splitlines() if line.startswith("0::"))[3:].strip("/")
        self.counts = counts
        self.file = counts / path / "memory.events"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.kills(0)

    def kills(self, count):
        self.file.write_text(f"low 0\nhigh 0\nmax 0\noom {count}\noom_kill {count}\noom_group_kill 0\n")

    def spawn_pool(self):
        command = [str(BIN / "pool-managerd"), "--state-dir", str(self.dir), "--bind", self.pool_bind, "--cpu", "--orchestrator", self.url,
                   *self._args()]
        with self._output("pool-managerd") as log:
            return subprocess.Popen([*UNSHARE, "sh", "-c", OWN_COUNTS, str(self.counts), *command], stdout=log, stderr=log,
                                    stdin=subprocess.DEVNULL, env=self.env)


def start(stack, worker_id):
    answer = request(stack.pool_url, "POST", "/v2/workers/start",
                     {"worker_id": worker_id, "model_ref": f"file:{MODEL}", "gpu_id": "cpu", "context_tokens": 64})
    assert answer.status == 202, answer.body


def failure(stack, worker_id):
    """What the pool says of the loss."""
    return wait_for("the line", lambda: next((json.loads(line) for line in stack.log("pool-managerd").splitlines()
                                              if '"worker_failed"' in line and json.loads(line)["worker_id"] == worker_id), None))


def test_a_shortage_of_device_memory_is_told_from_one_of_host_memory(tmp_path):
    """ORCH-3039#told-apart: a worker whose device has too little ends with a code that says so; one that the kernel killed for the
    machine's sake is told as that; one that somebody killed is neither."""
    counts = tmp_path / "counts"
    counts.mkdir()
    if not counts_can_be_told(counts):
        pytest.skip("no mount namespace here to put the kernel's counts in")
    script = tmp_path / "short-worker"
    script.write_text(SHORT_WORKER.format(python=sys.executable, worker=str(BIN / "worker-orcd")))
    script.chmod(0o755)
    with Stack({"pool-managerd.worker_binary": str(script)}) as stack:
        start(stack, "device")
        device = failure(stack, "device")
        assert (device["category"], device["error_code"]) == ("oom", "OUT_OF_DEVICE_MEMORY") and "host memory" not in device["message"], device
    with Counted(counts) as stack:
        for name, kills in (("killed", 0), ("host", 1)):
            start(stack, name)
            worker = wait_for("the worker to be ready", stack.ready_worker)
            stack.kills(kills)
            os.kill(worker["pid"], signal.SIGKILL)
            failure(stack, name)
            wait_for("it to go", lambda: not stack.workers())
        killed, host = failure(stack, "killed"), failure(stack, "host")
        assert killed["category"] == "crash" and "memory" not in killed["message"], killed
        assert host["category"] == "oom" and "host memory ran out" in host["message"], host
        assert host["error_code"] != device["error_code"]
