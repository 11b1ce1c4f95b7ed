"""Which worker a job gets, and which device a new worker, where there are several: two pools of one machine with memory of their own.
CPU devices stand for GPUs."""

import json
import os
import signal
import subprocess

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, MODEL_F16, Stack, clean_env, llorch, request, wait_for
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
    and job and worker are one decision.

    HME-010 SYS-4.1.1#scheduling

    OC-CORE-1042 OC-CORE-1043 OC-CORE-1044"""
    assert uneven.preview()["outcome"] == "start_worker" and uneven.preview()["pool_id"] == "pool-2"
    job = uneven.submit(max_tokens=2)["job_id"]
    ended = uneven.wait_terminal(job)
    assert (ended["status"], ended["pool_id"]) == ("completed", "pool-2")
    made = wait_for("its decisions to be logged", lambda: (
        lines := [line for line in uneven.decisions() if line["job_id"] == job]) and lines[-1]["outcome"] == "use_worker" and lines)
    assert made[0]["outcome"] == "start_worker" and made[0]["selected_pool_id"] == "pool-2" and made[0]["candidates_considered"] == 2
    assert made[-1]["outcome"] == "use_worker" and ended["worker_id"]
    assert made[0]["candidates_feasible"] == 2 and made[-1]["candidates_feasible"] == 1 and {line["reason"] for line in made} <= {"", "WAITING_FOR_WORKER_START"}
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
    """OC-CORE-1018 ORCH-3950 ORCH-3960: asked again and again, and by the next process, the same worker."""
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
    """ORCH-3810 ORCH-1041 ORCH-1103 SCHED-11061: of two devices only the one that has room for the model gets it; where none has, the
    submission is refused with the numbers and no pool is asked.

    AH-1007#no-fallback OC-CORE-1019#no-fallback: nor goes a pinned job to the pool that has room."""
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


@pytest.mark.parametrize("memory, expected", [(ROOM, ["pool-1", "pool-2", "pool-1", "pool-2"]), (2 * ROOM, ["pool-2", "pool-2", "pool-1", "pool-1"])])
def test_ties_are_broken_by_memory_then_load_then_name(memory, expected):
    """OC-CORE-1017: of workers with free slots the one with more free memory, however busy; of equal memory the less busy; of equal load the
    first by name."""
    with Two({"orchestratord.scheduling.algorithm": "most-vram-free", "orchestratord.worker_slots": "2",
              "orchestratord.limits.workers_per_gpu": "1"}, second={"devices.cpu_memory_bytes": str(memory)}) as stack:
        stack.run_at_each()
        free = {pool["pool_id"]: pool["gpus"][0]["vram_available_bytes"] for pool in stack.pools()}
        assert (free["pool-1"] == free["pool-2"]) == (memory == ROOM), free
        for gate in (stack.gate, stack.second.gate):
            gate.hold()
        jobs = []
        for _ in expected:
            jobs.append(stack.submit(max_tokens=2)["job_id"])
            stack.wait_running(jobs[-1])
        assert [stack.job(job)["pool_id"] for job in jobs] == expected
        for gate in (stack.gate, stack.second.gate):
            gate.open()
        assert all(stack.wait_terminal(job)["status"] == "completed" for job in jobs)


def start_by_hand(stack, worker_id, **fields):
    """A worker that orchestratord did not ask for, ready and known to it."""
    body = {"worker_id": worker_id, "model_ref": f"file:{MODEL}", "gpu_id": "cpu", **fields}
    answer = request(stack.pool_url, "POST", "/v2/workers/start", body)
    assert answer.status == 202, answer.body
    return wait_for("orchestratord to know it", lambda: next(
        (w for pool in stack.pools() for w in pool["workers"] if w["worker_id"] == worker_id and w["status"] == "ready"), None))


def test_a_worker_that_offers_less_than_the_model_needs_gets_no_job():
    """OC-CORE-1014 OC-CORE-1016: what jobs need follows from the model's file and the operator's settings: its digest, its context, the
    elements of its cache. An idle worker that lacks one of them is passed over, in the preview and by the job; one that has all is used."""
    with Stack({"orchestratord.limits.workers_per_gpu": "5", "devices.cpu_memory_bytes": str(ROOM),
                "orchestratord.worker_context_tokens": "128"}) as stack:
        def preview(model=ALIAS):
            answer = wait_for("the model to be known", lambda: (
                got := stack.request("POST", "/v2/tasks/preview", {"model": model, "prompt": "Once", "max_tokens": 2, "seed": 7})).status == 200 and got)
            return answer.json["decision"]

        short = start_by_hand(stack, "w-short", context_tokens=127, kv_dtype="f16")
        other_cache = start_by_hand(stack, "w-cache", context_tokens=128, kv_dtype="f32")
        other_model = start_by_hand(stack, "w-model", model_ref=f"file:{MODEL_F16}", context_tokens=128, kv_dtype="f16")
        assert (short["context_length"], other_cache["kv_dtype"]) == (127, "f32") and other_model["model_digest"] != short["model_digest"]
        assert preview()["outcome"] == "start_worker"
        fits = start_by_hand(stack, "w-fits", context_tokens=128, kv_dtype="f16")
        assert fits["model_digest"] == short["model_digest"]
        assert (preview()["outcome"], preview()["worker_ids"]) == ("use_worker", ["w-fits"])
        jobs = [stack.wait_terminal(stack.submit(max_tokens=2)["job_id"]) for _ in range(4)]
        assert {(job["status"], job["worker_id"]) for job in jobs} == {("completed", "w-fits")}
        assert preview("demo-f16")["worker_ids"] == ["w-model"]


def of_another_build(directory):
    """The worker's program under another build id; nothing else of it differs."""
    program = (BIN / "worker-orcd").read_bytes()
    said = subprocess.run([str(BIN / "worker-orcd"), "--version"], capture_output=True, text=True, timeout=HANG_S, check=True).stdout
    build = bytes.fromhex(said.partition("+")[2][:12])
    assert program.count(build) == 1
    copy = directory / "worker-orcd"
    copy.write_bytes(program.replace(build, bytes(byte ^ 0xFF for byte in build)))
    copy.chmod(0o755)
    return str(copy)


def test_workers_of_two_builds_never_serve_side_by_side(tmp_path):
    """OC-CORE-1031 ORCH-3046: the second pool was updated. Its worker gets no job of the model while one of the older build serves, not even
    when that one is busy, and its log says why; it takes over when the older one has gone.

    OC-CORE-1032: between the builds nothing is promised: a receipt of the older one is not compared with what the newer one says.

    ORCH-3047"""
    with Two({"orchestratord.limits.workers_per_gpu": "1"}, second={"pool-managerd.worker_binary": of_another_build(tmp_path)}) as stack:
        stack.run_at_each()
        builds = {pool["pool_id"]: worker["engine_build"] for pool in stack.pools() for worker in pool["workers"]}
        assert builds["pool-1"] != builds["pool-2"]
        warned = wait_for("the warning", lambda: [json.loads(line) for line in stack.log("orchestratord").splitlines()
                                                  if '"worker.version_mismatch"' in line])
        assert {(line["pool_id"], line["code"], line["engine_version"]) for line in warned} == {("pool-2", "VERSION_MISMATCH", builds["pool-2"])}
        for gate in (stack.gate, stack.second.gate):
            gate.hold()
        jobs = [stack.submit(max_tokens=2)["job_id"] for _ in range(3)]
        stack.wait_running(jobs[0])
        wait_for("the next one to wait for a slot", lambda: stack.job(jobs[1]).get("reason", {}).get("code") == "WAITING_FOR_SLOT")
        assert [stack.job(job)["status"] for job in jobs] == ["running", "queued", "queued"]
        for gate in (stack.gate, stack.second.gate):
            gate.open()
        ended = [stack.wait_terminal(job) for job in jobs]
        assert {(job["status"], job["pool_id"], job["receipt"]["engine_build"]) for job in ended} == {("completed", "pool-1", builds["pool-1"])}

        def verify():
            done = llorch("--json", "--url", stack.url, "verify", jobs[0], "--prompt", "Once upon a time", state_dir=stack.dir)
            return done.returncode, json.loads(done.stdout or done.stderr)

        assert verify()[1]["verdict"] == "match"
        assert stack.request("POST", "/v2/pools/pool-1/drain", {"deadline_ms": 60_000}).status == 202
        after = [stack.run() for _ in range(2)]
        assert {(job["pool_id"], job["receipt"]["engine_build"]) for job in after} == {("pool-2", builds["pool-2"])}
        code, said = verify()
        assert code == 4 and said["verdict"] == "not_comparable" and "VERSION_MISMATCH" in said["explanation"], said
        assert [difference["field"] for difference in said["differences"]] == ["engine_build"]
