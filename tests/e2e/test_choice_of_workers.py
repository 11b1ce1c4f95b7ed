"""Which worker a job gets, and which device a new worker, where there are several: two pools of one machine with memory of their own.
CPU devices stand for GPUs."""

import json
import os
import signal
import subprocess

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, Stack, clean_env, wait_for
from test_placement import Second

ROOM = 1 << 30


class Two(Stack):
    """Two pools; `second` are settings of the other one that differ."""

    def __init__(self, settings=None, second=None):
        super().__init__({"devices.cpu_memory_bytes": str(ROOM), "orchestratord.limits.workers_per_gpu": "3", **(settings or {})})
        self._second_settings = second or {}
        self.second = None

    def start(self):
        super().start()
        mine = dict(self.settings)
        self.settings.update(self._second_settings)
        try:
            self.second = Second(self)
        finally:
            self.settings = mine
        wait_for("the second pool", lambda: len(self.pools()) == 2)
        return self

    def stop(self):
        if self.second:
            self.second.stop()
        super().stop()

    def run(self, **fields):
        ended = self.wait_terminal(self.submit(max_tokens=2, **fields)["job_id"])
        assert ended["status"] == "completed", ended
        return ended

    def run_at_each(self, model=ALIAS):
        """A ready worker of the model in both pools."""
        for pool in ("pool-1", "pool-2"):
            self.run(model=model, placement={"mode": "pin", "pin_pool_id": pool})
        wait_for("both to be idle", lambda: all(w["status"] == "ready" for p in self.pools() for w in p["workers"]))

    def decisions(self):
        return [json.loads(line) for line in self.log("orchestratord").splitlines() if '"schedule.decided"' in line]

    def preview(self, **fields):
        answer = self.request("POST", "/v2/tasks/preview", {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 2, "seed": 7, **fields})
        assert answer.status == 200, answer.body
        return answer.json["decision"]


@pytest.fixture(scope="module")
def uneven():
    with Two(second={"devices.cpu_memory_bytes": str(2 * ROOM)}) as running:
        yield running


def test_a_worker_starts_where_most_memory_is_free(uneven):
    """ORCH-3012 OC-CORE-1012 ORCH-1033 SCHED-11060 ORCH-1020 SCHED-11050: no worker has the model: one is started where there is most room,
    and job and worker are one decision."""
    assert uneven.preview()["outcome"] == "start_worker" and uneven.preview()["pool_id"] == "pool-2"
    job = uneven.submit(max_tokens=2)["job_id"]
    ended = uneven.wait_terminal(job)
    assert (ended["status"], ended["pool_id"]) == ("completed", "pool-2")
    made = wait_for("its decisions to be logged", lambda: (
        lines := [line for line in uneven.decisions() if line["job_id"] == job]) and lines[-1]["outcome"] == "use_worker" and lines)
    assert made[0]["outcome"] == "start_worker" and made[0]["selected_pool_id"] == "pool-2" and made[0]["candidates_considered"] == 2
    assert made[-1]["outcome"] == "use_worker" and ended["worker_id"]
    (worker,) = [w for pool in uneven.pools() for w in pool["workers"]]
    assert worker["worker_id"] == ended["worker_id"] and worker["model_ref"] == f"file:{MODEL}"


def test_only_a_worker_that_holds_the_model_is_asked(uneven):
    """ORCH-1031: an idle worker of another model is none; a start of the right one is."""
    uneven.run()
    other = uneven.run(model="demo-f16")
    workers = {w["worker_id"]: w["model_ref"] for pool in uneven.pools() for w in pool["workers"]}
    assert workers[other["worker_id"]].endswith("fairytale-5m-f16.gguf")
    again = uneven.run()
    assert workers.get(again["worker_id"], f"file:{MODEL}") == f"file:{MODEL}"


def test_equal_states_give_equal_decisions(uneven):
    """OC-CORE-1018: asked again and again, and by the next process, the same worker."""
    uneven.run_at_each()
    first = uneven.preview()
    assert first["outcome"] == "use_worker" and len(first["worker_ids"]) == 1
    assert all(uneven.preview() == first for _ in range(20))
    known = {w["worker_id"] for pool in uneven.pools() for w in pool["workers"]}
    uneven.orchestrator.kill()
    uneven.orchestrator.wait()
    uneven.start_orchestrator()
    wait_for("both pools to be back", lambda: {w["worker_id"] for pool in uneven.pools() for w in pool["workers"]} == known)
    wait_for("the model to be known", lambda: uneven.request("POST", "/v2/tasks/preview", {
        "model": ALIAS, "prompt": "x", "max_tokens": 1}).status == 200)
    assert uneven.preview() == first


@pytest.fixture(scope="module")
def even():
    with Two({"orchestratord.limits.workers_per_gpu": "1"}) as running:
        running.run_at_each()
        yield running


def test_a_busy_worker_is_passed_over_and_a_stopped_one_too(even):
    """OC-CORE-1010 ORCH-3010 SYS-6.1.1 SYS-8.4.3#set: jobs go to ready workers: not to one that has a job, nor to one that is about to go;
    and no more workers are started than a device may have."""
    for gate in (even.gate, even.second.gate):
        gate.hold()
    first = even.submit(max_tokens=4)["job_id"]
    even.wait_running(first)
    second = even.submit(max_tokens=4)["job_id"]
    even.wait_running(second)
    assert even.job(first)["worker_id"] != even.job(second)["worker_id"], "the idle one"
    third = even.submit(max_tokens=4)["job_id"]
    assert even.job(third)["status"] == "queued"
    for gate in (even.gate, even.second.gate):
        gate.open()
    for job in (first, second, third):
        assert even.wait_terminal(job)["status"] == "completed"
    assert even.request("POST", "/v2/pools/pool-1/drain", {"deadline_ms": 60_000}).status == 202
    assert {even.run()["pool_id"] for _ in range(4)} == {"pool-2"}
    assert even.request("DELETE", "/v2/pools/pool-1/drain").status in (200, 202, 204)
    even.run_at_each()


@pytest.mark.parametrize("algorithm", ["least-loaded", "most-vram-free", "round-robin"])
def test_the_algorithm_is_the_operators_choice(algorithm):
    """ORCH-1032 SCHED-11051 SYS-4.2.1#configured: each does what its name says: the more memory, or each in turn."""
    with Two({"orchestratord.scheduling.algorithm": algorithm}, second={"devices.cpu_memory_bytes": str(2 * ROOM)}) as stack:
        stack.run_at_each()
        chosen = [stack.run()["pool_id"] for _ in range(6)]
        if algorithm == "round-robin":
            assert all(a != b for a, b in zip(chosen, chosen[1:])), chosen
        else:
            assert set(chosen) == {"pool-2"}, chosen
        assert f'algorithm="{algorithm}"' in stack.request("GET", "/metrics").body.decode()


def test_an_algorithm_that_nobody_knows_is_refused(tmp_path):
    """ORCH-1032: no other one is taken instead."""
    done = subprocess.run([str(BIN / "orchestratord"), "--state-dir", str(tmp_path), "--set", "orchestratord.scheduling.algorithm=guess"],
                          capture_output=True, timeout=HANG_S, env=clean_env(tmp_path))
    assert done.returncode == 2 and b"must be one of: least-loaded, most-vram-free, round-robin" in done.stderr, done


def test_no_start_is_commanded_without_room():
    """ORCH-1041 ORCH-1103 SCHED-11061: of two devices only the one that has room for the model gets it; where none has, the
    submission is refused with the numbers and no pool is asked."""
    small = str(5 << 20)
    with Two({"devices.cpu_memory_bytes": small}) as stack:
        refused = stack.submit(max_tokens=2, expect=503)["error"]
        assert refused["code"] == "POOL_UNAVAILABLE" and sum(letter.isdigit() for letter in refused["message"]) >= 4, refused
        assert not [line for line in stack.log("orchestratord").splitlines() if '"worker.start"' in line]
    with Two({"devices.cpu_memory_bytes": small}, second={"devices.cpu_memory_bytes": str(ROOM)}) as stack:
        for _ in range(3):
            assert stack.run()["pool_id"] == "pool-2"
        pinned = stack.submit(max_tokens=2, placement={"mode": "pin", "pin_pool_id": "pool-1"})["job_id"]
        error = stack.wait_terminal(pinned)["error"]
        assert error["code"] == "POOL_UNAVAILABLE" and error["details"]["required_bytes"] > error["details"]["available_bytes"] == int(small)
        starts = wait_for("the start to be logged", lambda: [
            line for line in stack.log("orchestratord").splitlines() if '"worker.start"' in line])
        assert all('"pool_id":"pool-2"' in line for line in starts)


def test_a_worker_that_stops_answering_gets_no_job(even):
    """OC-CORE-1010 SCHED-11060: its pool hears nothing of it, and jobs go on at the other one."""
    (worker,) = [w for pool in even.pools() if pool["pool_id"] == "pool-1" for w in pool["workers"] if w["model_ref"] == f"file:{MODEL}"][:1]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for("it to be gone", lambda: worker["worker_id"] not in {w["worker_id"] for pool in even.pools() for w in pool["workers"]})
    assert {even.run()["worker_id"] for _ in range(3)}.isdisjoint({worker["worker_id"]})
