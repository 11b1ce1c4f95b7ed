"""SIGKILL at seeded moments, the restarts that follow, and how soon orchestratord serves again."""

import contextlib
import datetime
import os
import pathlib
import random
import signal
import socket
import threading
import time

from clients import ask
from stack import process_runs, request, wait_for


LULL_MAX_S = 10.0


class Weather:
    """Whether a broken connection is excused: orchestratord was down, or died meanwhile. Thread-safe."""

    def __init__(self):
        self.lock = threading.Lock()
        self.changes = 0  # odd: down, dying or starting
        self.deaths = []  # Unix ms

    def goes_down(self):
        """Before the kill."""
        with self.lock:
            self.changes += self.changes % 2 == 0

    def has_died(self):
        """After it, when the process is gone: what it did to its last moment is older than this."""
        with self.lock:
            self.deaths.append(time.time() * 1000)

    def is_up(self):
        with self.lock:
            self.changes += self.changes % 2 == 1

    def state(self):
        with self.lock:
            return self.changes

    def excuses(self, before):
        return before % 2 == 1 or self.state() != before

    def died_after(self, rfc3339):
        moment = datetime.datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).timestamp() * 1000
        with self.lock:
            return any(death >= moment - 1 for death in self.deaths)


def children_of(pid):
    out = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                out.append(int(stat.parent.name))
        except OSError:
            continue
    return [child for child in out if process_runs(child)]


def process_start_s(pid):
    """When it was started, on the clock of time.monotonic()."""
    ticks = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def quiet_ports(count):
    """Free ports below those the kernel hands out: while a daemon is dead, no connection of anybody may take its port."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = []
    while len(found) < count:
        port = random.randrange(10_000, first)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


class HarnessRestarts:
    """Starts a killed daemon itself and at once."""

    def __init__(self, stack):
        self.stack = stack

    def ended_by_themselves(self):
        """Names of daemons that are not there though nobody killed them."""
        return [name for name in ("orchestrator", "pool") if getattr(self.stack, name).poll() is not None]

    def orchestrator_pid(self):
        return self.stack.orchestrator.pid

    def pool_pid(self):
        return self.stack.pool.pid

    def reap_orchestrator(self):
        self.stack.orchestrator.wait()

    def restart_orchestrator(self):
        """When it was started, by time.monotonic()."""
        started = time.monotonic()
        self.stack.orchestrator = self.stack.spawn_orchestrator()
        return started

    def restart_pool(self):
        self.stack.pool.wait()
        self.stack.pool = self.stack.spawn_pool()


class Killer:
    def __init__(self, stack, restarts, weather, ledger, rng, gap_s=(0.0, 0.7)):
        self.stack, self.restarts, self.weather, self.ledger, self.rng = stack, restarts, weather, ledger, rng
        self.gap_s = gap_s
        self.health_s = []  # from start to the first 200 of /v2/health
        self.query_s = []  # and to the first answer about a job
        self.on_death = lambda: None  # called while orchestratord is dead
        self.killed_while_starting = False

    def run(self, kills, progress=lambda done: None):
        """`kills`: letters o, w, p in the order they are to die."""
        for done, who in enumerate(kills, 1):
            if self.rng.random() < 0.75:
                self.wait_for_tokens()
            time.sleep(self.rng.uniform(*self.gap_s))
            {"o": self.kill_orchestrator, "w": self.kill_worker, "p": self.kill_pool}[who]()
            progress(done)

    def wait_for_tokens(self):
        """So that most kills meet running streams however slow the machine is; the others meet what comes."""
        before = self.ledger.counts["token events compared"]
        deadline = time.monotonic() + LULL_MAX_S
        while self.ledger.counts["token events compared"] == before and time.monotonic() < deadline:
            time.sleep(0.005)

    def wait_for_submission(self):
        """So that some kills meet a submission on its way, which would be chance otherwise."""
        deadline = time.monotonic() + LULL_MAX_S
        while not self.ledger.submitting and time.monotonic() < deadline:
            time.sleep(0.0005)

    def kill_orchestrator(self):
        if self.rng.random() < 0.5:
            self.wait_for_submission()
        self.weather.goes_down()
        self.end_orchestrator("SIGKILL orchestratord")
        self.on_death()
        started = self.restarts.restart_orchestrator()
        if self.rng.random() < 0.1:  # and once more while it starts, or has just begun to serve
            time.sleep(self.rng.uniform(0.0, 0.08))
            self.end_orchestrator("SIGKILL orchestratord while it starts, besides")
            started = self.restarts.restart_orchestrator()
        self.wait_serving(started)

    def end_orchestrator(self, counted_as):
        os.kill(self.restarts.orchestrator_pid(), signal.SIGKILL)
        self.ledger.count(counted_as)
        self.restarts.reap_orchestrator()
        self.weather.has_died()

    def wait_serving(self, started):
        with self.ledger.lock:
            known = self.ledger.jobs[0].path if self.ledger.jobs else "/v2/tasks"

        def answers(path):
            def asked():
                reply = ask(self.stack, "GET", path)
                return reply is not None and reply.status == 200
            return asked

        wait_for("orchestratord to serve", answers("/v2/health"), every_s=0.001)
        self.health_s.append(time.monotonic() - started)
        wait_for("orchestratord to know its jobs", answers(known), every_s=0.001)
        self.query_s.append(time.monotonic() - started)
        self.weather.is_up()

    def worker(self):
        """(pid, whether it was ready) of a worker that lives. One that dies twice in a row while it starts makes the
        jobs that wait for it fail (ORCH-1042), so the next kill waits for a ready one."""
        try:
            known = {w["pid"]: w["status"] for w in request(self.stack.pool_url, path="/v2/state", timeout_s=5).json["workers"]}
        except (OSError, ValueError, KeyError):
            return None
        for pid in children_of(self.restarts.pool_pid()):
            ready = known.get(pid) in ("ready", "busy")
            if ready or not self.killed_while_starting:
                return pid, ready
        return None

    def kill_worker(self):
        try:
            pid, ready = wait_for("a worker to kill", self.worker)
        except AssertionError as error:
            said = [ask(self.stack, "GET", path) for path in ("/v2/pools", "/v2/tasks?limit=20")]
            ended = self.restarts.ended_by_themselves()
            raise AssertionError(f"{error}; ended by themselves: {ended}; {[reply and reply.body for reply in said]}") from error
        os.kill(pid, signal.SIGKILL)
        self.killed_while_starting = not ready
        self.ledger.count("SIGKILL worker-orcd")
        if not ready:
            self.ledger.count("workers killed before they were ready")

    def kill_pool(self):
        os.kill(self.restarts.pool_pid(), signal.SIGKILL)
        self.ledger.count("SIGKILL pool-managerd")
        self.restarts.restart_pool()
