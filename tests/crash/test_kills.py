"""SIGKILL under load. More of it: storm.py, which `make nightly` runs."""

import json
import os
import pathlib
import random
import threading
import time

import workload
from clients import TERMINAL, ask
from killer import process_start_s
from stack import ALIAS, MODEL, Stack, llorch, process_runs, request, wait_for
from storm import Storm, distribution, run

KILLS = 25  # of orchestratord, and as many of workers
# What a run must have met to show anything.
PROBES = (
    "jobs run more than once", "streams reconnected", "submissions that nobody answered", "submissions repeated after their 202",
    "submissions given up before their answer", "cancel answered cancelled", "stored as cancelled", "ended streams asked for again",
    "dispatches checked for order", "streams read whole",
)


def seed():
    value = int(os.environ.get("LLORCH_TEST_SEED", time.time_ns()))
    print("seed", value)
    return value


def report(storm):
    for what, count in sorted(storm.ledger.counts.items()):
        print(f"{count:>10}  {what}")
    print("ms from start to a job query:", distribution(storm.killer.query_s))
    assert not storm.ledger.faults, "\n".join(storm.ledger.faults[:20])


def test_every_accepted_job_ends_once_and_as_undisturbed():
    """SYS-6.1.2 SYS-6.1.3 SYS-7.5.1 SYS-7.3.1 SYS-8.3.2 SYS-6.1.6 SYS-5.1.3 SYS-2.3.1 ORCH-3045 OC-CORE-1003#arrival-order
    OC-CORE-1004
    OC-CTRL-2012 OC-CTRL-2027: see README.md."""
    storm = run(seed(), KILLS, KILLS, max(1, KILLS // 20), until=("cancel answered cancelled", "submissions given up before their answer"))
    report(storm)
    assert storm.ledger.counts["SIGKILL orchestratord"] == storm.ledger.counts["SIGKILL worker-orcd"] == KILLS
    assert not [probe for probe in PROBES if not storm.ledger.counts[probe]]


class Supervised:
    """The stack as `llorch up --detach` runs it; its supervisor restarts what dies."""

    def __init__(self, state_dir):
        self.dir = pathlib.Path(state_dir)

    def record(self, name):
        try:
            return json.loads((self.dir / f"run/{name}.json").read_text())
        except (OSError, ValueError):
            return None

    def __enter__(self):
        settings = {**workload.SETTINGS, "log.level": "debug", "orchestratord.bind": "127.0.0.1:0", "pool-managerd.bind": "127.0.0.1:0",
                    "models.aliases.demo": f"file:{MODEL}", "models.allowed_roots": str(MODEL.parent)}
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        done = llorch(*flags, "up", "--cpu", "--detach", state_dir=self.dir)
        assert done.returncode == 0, done.stderr
        self.bind, self.pool_bind = self.record("orchestratord")["bind"], self.record("pool-managerd")["bind"]
        self.url, self.pool_url = f"http://{self.bind}", f"http://{self.pool_bind}"
        wait_for("the pool to register", lambda: request(self.url, path="/v2/pools").json["pools"])
        return self

    def __exit__(self, *_):
        llorch("down", state_dir=self.dir)

    # What Killer asks of whoever restarts.
    def ended_by_themselves(self):
        return [name for name in ("orchestratord", "pool-managerd") if not process_runs(self.record(name)["pid"])]

    def orchestrator_pid(self):
        return self.record("orchestratord")["pid"]

    def pool_pid(self):
        return self.record("pool-managerd")["pid"]

    def reap_orchestrator(self):
        self.died = self.orchestrator_pid()
        wait_for("orchestratord to die", lambda: not process_runs(self.died))

    def restart_orchestrator(self):
        record = wait_for("the supervisor", lambda: (r := self.record("orchestratord")) and r["pid"] != self.died and r)
        return process_start_s(record["pid"])

    def restart_pool(self):
        died = self.pool_pid()
        wait_for("the supervisor", lambda: (r := self.record("pool-managerd")) and r["pid"] != died and process_runs(r["pid"]))


def test_the_supervisor_brings_the_stack_back_under_load(tmp_path):
    """SYS-6.1.2 SYS-8.3.1: the same through `llorch up`, whose restarts wait longer from death to death."""
    value = seed()
    bodies = workload.requests(random.Random(f"{value}-requests"), 12)
    with Supervised(tmp_path) as stack:
        storm = Storm(stack, (bodies, workload.reference(bodies)), value, clients=6, restarts=stack)
        storm.start_load()
        storm.kill(orchestrator=3, worker=4, pool=2)
        storm.drain()
    storm.judge(tmp_path, log=tmp_path / "logs/orchestratord.log")
    report(storm)


def post(stack, task_id):
    """The job's id, or None when nobody answered or it was put off."""
    body = {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 2, "seed": 1, "task_id": task_id}
    reply = ask(stack, "POST", "/v2/tasks", body)
    assert reply is None or reply.status in (202, 503), reply.body
    return reply.json["job_id"] if reply and reply.status == 202 else None


def test_a_death_in_the_middle_of_many_submissions_takes_none_back():
    """SYS-6.1.2 SYS-5.1.1: whoever got a 202 finds the job; whoever got none asks again under the same task_id and finds
    one job, not two."""
    rng = random.Random(seed())
    with Stack(settings=workload.SETTINGS) as stack:
        accepted = {}
        for burst in range(5):
            names = [f"burst-{burst}-{n}" for n in range(40)]
            killer = threading.Timer(rng.uniform(0.0, 0.15), stack.orchestrator.kill)
            killer.start()
            for name in names:
                if job_id := post(stack, name):
                    accepted[name] = job_id
            killer.join()
            stack.orchestrator.wait()
            stack.start_orchestrator()
            for name in names:
                again = wait_for("a 202", lambda: post(stack, name))
                assert accepted.setdefault(name, again) == again
        assert len(set(accepted.values())) == len(accepted) == 200
        for job_id in accepted.values():
            assert stack.wait_terminal(job_id)["status"] == "completed"
        listed = stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]
        assert {job["job_id"] for job in listed} == set(accepted.values())
        assert all(job["status"] in TERMINAL for job in listed)
