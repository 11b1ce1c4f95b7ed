"""An engine in a container that a real podman runs, and what may be killed around it: its worker, its pool, both, the container itself, each
while it starts, serves and answers. No container is left behind, and no second one runs beside a first. Skipped, visibly, where no
container can run."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import tempfile
import threading
import time

import pytest

from adapter import text
from engine_stack import EngineStack
from fake_engine import tokens_of
from podman import real_podman
from stack import HANG_S, process_runs, wait_for
from test_engine_install import PROMPT, Node, serves

FAKE = pathlib.Path(__file__).with_name("fake_engine.py")
KILLS = int(os.environ.get("LLORCH_CONTAINER_KILLS", "12"))
# Behind its first token an answer waits as long as there is a file `held`.
SERVE = """
import pathlib, signal, sys, time
import fake_engine
here = pathlib.Path(__file__).parent
token = fake_engine._Handler._token
def held(self, job, i, *more):
    while i == 1 and (here / "held").exists():
        time.sleep(0.01)
    return token(self, job, i, *more)
fake_engine._Handler._token = held
fake_engine.FakeEngine("llamacpp", port=int(sys.argv[sys.argv.index("--port") + 1]), version="packed", host="0.0.0.0")
signal.sigwait([signal.SIGTERM, signal.SIGINT])
"""


def kill(worker):
    with contextlib.suppress(ProcessLookupError):  # it may have gone by itself
        os.kill(worker["pid"], signal.SIGKILL)


class World:
    """A stack whose engine runs in a container, and the podman that runs it."""

    def __init__(self, directory, podman, registry):
        self.podman = podman
        self.program = directory / "program"
        self.program.mkdir()
        (self.program / "serve.py").write_text(SERVE)
        shutil.copy(FAKE, self.program)
        entry = {"name": "tale", "engine": "llamacpp", "endpoint": "http://127.0.0.1:{port}", "device": "cpu", "slots": 4,
                 "memory_bytes": 1 << 20, "command": ["/usr/bin/python3", str(self.program / "serve.py"), "--port", "{port}"],
                 "environment": {"TALE": "told"},
                 "provisioning": {"mode": "container", "version": "1.0",
                                  "container": {"image": registry.name, "digest": registry.digest,
                                                "volumes": ["/usr", str(self.program)]}}}
        node = Node(directory, entry, policy={"allow_container_pulls": True}, path=podman.path)
        node.llorch("engine", "install", "tale")
        self.stack = node.stack()
        self.stack.settings["pool-managerd.worker_drain_grace_ms"] = "1000"
        self.stack.settings["orchestratord.retry.max_delay_ms"] = "100"  # starts that are killed are failed starts
        self.stack.settings["orchestratord.restart.worker_crashes_max"] = "0"

    def hold(self):
        (self.program / "held").touch()

    def let_go(self):
        (self.program / "held").unlink(missing_ok=True)

    def running(self):
        """The name of the only container there is, once its engine serves."""
        self.stack.adapter()
        names = self.podman.containers()
        assert len(names) == 1, names
        return names[0]

    def wait_gone(self, name):
        wait_for(f"{name} to be gone", lambda: name not in self.podman.containers(), every_s=0.05)

    def held_job(self):
        """A job whose answer has begun and waits."""
        serves(self.stack)  # a worker that starts asks its engine as well
        self.hold()
        job = self.stack.submit(model="tale", max_tokens=12)["job_id"]
        wait_for("its first token", lambda: self.stack.job(job)["tokens_out"] > 0)
        return job

    def calls(self, what):
        return [line for line in self.podman.log.read_text().splitlines() if line.startswith(what)]


@pytest.fixture(name="world")
def running_world():
    # Not tmp_path: podman takes no directory of a long name.
    with tempfile.TemporaryDirectory(prefix="llorch-e2e-") as directory, real_podman(directory) as (podman, registry):
        world = World(pathlib.Path(directory), podman, registry)
        with world.stack:
            yield world
        assert podman.containers() == [] and podman.processes() == set()


def test_it_serves_and_stops_with_its_worker(world):
    """ORCH-3200 OC-CONFIG-6023: pulled by its digest from a registry, run on this machine's loopback; and ended with its worker."""
    serves(world.stack)
    name = world.running()
    worker = world.stack.adapter()
    run = world.calls("run ")[0]
    assert f"--name {name}" in run and "--env TALE" in run and "told" not in world.podman.log.read_text()
    os.kill(worker["pid"], signal.SIGTERM)
    world.wait_gone(name)


def test_a_killed_worker_leaves_no_container(world):
    """SYS-6.2.5: its memory counts as used until the container is gone, and only then another one starts."""
    job = world.held_job()
    name, worker = world.running(), world.stack.adapter()
    os.kill(worker["pid"], signal.SIGKILL)

    def gone():
        listed = any(w["worker_id"] == worker["worker_id"] for w in world.stack.workers())
        assert listed or name not in world.podman.containers(), "its memory is free while it runs"
        return not listed

    wait_for("its worker to leave", gone)
    world.let_go()
    assert world.stack.wait_terminal(job)["error"]["code"] == "WORKER_RESET"
    serves(world.stack)
    assert world.running() != name


def test_a_killed_pool_removes_what_it_left(world):
    """SYS-6.2.5: when it starts again, before it starts anything else."""
    serves(world.stack)
    name = world.running()
    world.stack.pool.kill()
    world.stack.pool.wait()
    assert name in world.podman.containers()
    world.stack.start_pool()
    assert name not in world.podman.containers()
    serves(world.stack)
    assert world.running() != name


def test_worker_and_pool_killed_together(world):
    """SYS-6.2.5"""
    job = world.held_job()
    name, worker = world.running(), world.stack.adapter()
    os.kill(worker["pid"], signal.SIGKILL)
    world.stack.pool.kill()
    world.stack.pool.wait()
    world.let_go()
    world.stack.start_pool()
    assert name not in world.podman.containers()
    assert world.stack.wait_terminal(job)["error"]["code"] == "WORKER_RESET"
    serves(world.stack)


def test_a_killed_container_is_a_lost_worker(world):
    """SYS-6.2.5: a job that has tokens ends with WORKER_RESET, the next one starts another."""
    job = world.held_job()
    name, worker = world.running(), world.stack.adapter()
    assert world.podman.run("kill", name).returncode == 0
    wait_for("its worker to leave", lambda: not process_runs(worker["pid"]))
    world.let_go()
    assert world.stack.wait_terminal(job)["error"]["code"] == "WORKER_RESET"
    serves(world.stack)


def test_a_program_that_is_gone_when_it_starts(world):
    """A start that failed says so and leaves nothing."""
    (world.program / "serve.py").rename(world.program / "away.py")
    job = world.stack.wait_terminal(world.stack.submit(model="tale", max_tokens=2)["job_id"])
    assert job["error"]["code"] == "WORKER_START_FAILED", job
    wait_for("its container to be gone", lambda: not world.podman.containers(), every_s=0.05)
    (world.program / "away.py").rename(world.program / "serve.py")
    serves(world.stack)


def test_workers_killed_while_they_start(world):
    """SYS-6.2.5: at any moment between the start of the runtime and the first answer."""
    delays = random.Random(7)
    for _ in range(KILLS):
        begun = len(world.calls("run "))
        job = world.stack.submit(model="tale", max_tokens=2)["job_id"]
        wait_for("a container to be started", lambda: len(world.calls("run ")) > begun)
        workers = [w for w in world.stack.workers() if w["model_ref"].startswith("engine:")]
        time.sleep(delays.uniform(0, 1.0))
        for worker in workers:
            kill(worker)
        world.stack.wait_terminal(job)
        wait_for("no worker, or a ready one", lambda: all(w["status"] in ("ready", "busy") for w in world.stack.workers()))
        assert len(world.podman.containers()) <= 1
        for worker in world.stack.workers():
            kill(worker)
        wait_for("its worker to leave", lambda: not world.stack.workers())
        assert world.podman.containers() == [] and world.podman.processes() == set()


def test_kills_under_load(world):
    """SYS-6.2.5: whoever is killed, every job has one end, none is lost, and at most one container runs."""
    most, over = 0, threading.Event()

    def watch():
        nonlocal most
        while not over.is_set():
            most = max(most, len(world.podman.run("ps", "--quiet").stdout.split()))

    def engine_workers():
        return [w for w in world.stack.workers() if w["model_ref"].startswith("engine:")]

    def ended(job):
        return world.stack.job(job)["status"] in ("completed", "failed")

    watcher = threading.Thread(target=watch)
    watcher.start()
    choose = random.Random(11)
    jobs = []
    try:
        for turn in range(KILLS):
            new = [world.stack.submit(model="tale", max_tokens=12, seed=turn)["job_id"] for _ in range(4)]
            jobs += new
            # Two starts in a row that fail end the jobs that wait for them, so that every other turn lets one of them answer.
            wait_for("a worker, or an answer", (lambda: any(ended(job) for job in new)) if turn % 2 else
                     (lambda: engine_workers() or all(ended(job) for job in new)))
            time.sleep(choose.uniform(0, 1.5))
            if turn % 3 == 0:
                for worker in world.stack.workers():
                    kill(worker)
            elif turn % 3 == 1:
                for name in world.podman.containers():
                    world.podman.run("kill", name)
            else:
                world.stack.pool.kill()
                world.stack.pool.wait(HANG_S)
                world.stack.start_pool()
                wait_for("the pool to be seen again", lambda: [p for p in world.stack.pools() if p["status"] == "healthy"])
        ends = [world.stack.wait_terminal(job) for job in jobs]
    finally:
        over.set()
        watcher.join()
    assert most == 1
    for job, end in zip(jobs, ends):
        assert end["status"] in ("completed", "failed"), end
        events = world.stack.read_to_end(job)
        assert [e.name for e in events if e.name in ("end", "error")] == [events[-1].name]
        if end["status"] == "completed" and any(e.name == "token" for e in events):
            assert text(events) == "".join(tokens_of(PROMPT, jobs.index(job) // 4, 12))
    assert sum(e["status"] == "completed" for e in ends) >= KILLS // 2, [e.get("error") for e in ends]
    serves(world.stack)
