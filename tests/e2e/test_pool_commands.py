"""What a pool manager does at a command, and what it says of it: start, ready, drain, stop, a worker that never comes, one that is
lost. Commanded over HTTP as orchestratord commands it."""

import hashlib
import hmac
import json
import os
import signal
import sys
import threading
import uuid

import pytest

from metrics_text import parse
from stack import BIN, MODEL, MODEL_F16, Stack, process_runs, request, wait_for

# Writes down how it was started and waits to be let go on as a worker.
HELD_WORKER = """#!{python}
import json, os, sys, time
with open({place!r} + "/new", "w") as file:
    json.dump({{"argv": sys.argv, "env": dict(os.environ), "pid": os.getpid()}}, file)
os.rename({place!r} + "/new", {place!r} + "/started")
while not os.path.exists({place!r} + "/go"):
    time.sleep(0.01)
os.execv({worker!r}, [{worker!r}, *sys.argv[1:]])
"""


def fresh(name):
    """An id that no worker had."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def start(stack, worker_id, **fields):
    return request(stack.pool_url, "POST", "/v2/workers/start",
                   {"worker_id": worker_id, "model_ref": f"file:{MODEL}", "gpu_id": "cpu", "context_tokens": 64, **fields})


def state(stack):
    return request(stack.pool_url, path="/v2/state").json


def worker(stack, worker_id):
    return next((w for w in state(stack)["workers"] if w["worker_id"] == worker_id), None)


def wait_status(stack, status, worker_id):
    return wait_for(f"the worker to be {status}", lambda: (w := worker(stack, worker_id)) and w["status"] == status and w)


def wait_gone(stack, worker_id):
    wait_for("the worker to go", lambda: worker(stack, worker_id) is None)


def allocated(stack):
    return state(stack)["gpus"][0]["vram_allocated_bytes"]


def counted(stack, name, **labels):
    """The sum of a metric's series with these labels, of the pool manager."""
    families = parse(request(stack.pool_url, path="/metrics").body.decode())
    return sum(value for have, value in families[name].series if labels.items() <= have.items())


@pytest.fixture(scope="module")
def pool():
    with Stack({"orchestratord.limits.workers_per_gpu": "2"}) as running:
        yield running


@pytest.fixture(autouse=True)
def empty(request):
    """No worker is left to the next test."""
    yield
    if "pool" in request.fixturenames:
        stack = request.getfixturevalue("pool")
        for left in state(stack)["workers"]:
            os.kill(left["pid"], signal.SIGKILL)
            wait_gone(stack, left["worker_id"])


def test_a_start_is_a_process_that_reports_and_is_accounted(pool):
    """SYS-5.2.3 POOL-2040 SYS-6.2.1 SYS-7.2.1: accepted at once as starting; ready with its memory accounted in one step.

    POOL-2013 POOL-2061 SYS-6.2.2 SYS-2.1.2#file: the state has its device and itself, as they are; file: is a path of this machine.

    CAPI-9010 CAPI-9021 ORCH-1110 SYS-4.4.1#worker-memory POOL-2001 POOL-2002 POOL-2004"""
    name = fresh("first")
    accepted = start(pool, name)
    assert accepted.status == 202 and accepted.json == {"worker_id": name, "status": "starting"}, accepted.body
    seen = set()

    def ready():
        now = state(pool)
        (w,), (gpu,) = now["workers"], now["gpus"]
        seen.add((w["status"], gpu["vram_allocated_bytes"] > 0))
        return w["status"] == "ready" and (now, w, gpu)

    now, w, gpu = wait_for("the worker to be ready", ready)
    assert seen <= {("starting", True), ("starting", False), ("ready", True)} and ("ready", True) in seen
    assert now["pool_id"] == "pool-1" and gpu["gpu_id"] == "cpu" and gpu["workers"] == [name]
    assert gpu["vram_allocated_bytes"] == w["vram_bytes"] > 0
    assert gpu["vram_available_bytes"] + gpu["vram_allocated_bytes"] == gpu["vram_total_bytes"]
    assert w["model_ref"] == f"file:{MODEL}" and w["gpu_id"] == "cpu" and w["started_at"] and process_runs(w["pid"])
    health = request(w["uri"], path="/health").json
    assert health["worker_id"] == name and health["vram_bytes_used"] == w["vram_bytes"], "its server answered before it was ready"
    assert request(pool.pool_url, path=f"/v2/workers/{name}").json["status"] == "ready"
    assert request(pool.pool_url, path="/v2/workers/nobody").code == "WORKER_NOT_FOUND"


@pytest.mark.parametrize("fields, status, code", [
    ({"model_ref": "file:/nowhere/at/all.gguf"}, 404, "MODEL_NOT_FOUND"), ({"model_ref": "demo"}, 404, "MODEL_NOT_FOUND"),
    ({"context_tokens": 10_000_000}, 400, "INVALID_PARAMS"), ({"gpu_id": "7"}, 503, "GPU_UNAVAILABLE"),
    ({"slots": 1024}, 409, "INSUFFICIENT_VRAM")])
def test_a_start_that_cannot_be_is_refused_before_a_process(pool, fields, status, code):
    """SYS-5.2.3 SYS-6.2.3 POOL-2040: preflight first: a stable code, no process, no memory."""
    with Stack({"devices.cpu_memory_bytes": str(32 << 20)}) if code == "INSUFFICIENT_VRAM" else _as_it_is(pool) as stack:
        spawned = counted(stack, "pool_mgr_worker_starts_total", outcome="success")
        name = fresh("refused")
        refused = start(stack, name, **fields)
        assert (refused.status, refused.code) == (status, code), refused.body
        assert state(stack)["workers"] == [] and allocated(stack) == 0
        assert counted(stack, "pool_mgr_worker_starts_total", outcome="success") == spawned
        assert not list(stack.dir.rglob(f"*{name}*"))


def test_a_pool_decides_nothing_for_others():
    """POOL-2003 SYS-4.2.1#executes: a start that there is no room for is refused, and nobody is stopped for it; a worker that is lost is
    not started again; of two devices or models none is chosen."""
    with Stack({"orchestratord.limits.workers_per_gpu": "4", "devices.cpu_memory_bytes": str(12 << 20),
                "pool-managerd.heartbeat_interval_ms": "200", "orchestratord.heartbeat.interval_ms": "200"}) as stack:
        assert start(stack, "w-1").status == 202
        first = wait_status(stack, "ready", "w-1")
        for fields in ({}, {"slots": 1}):
            assert start(stack, fresh("more"), **fields).code == "INSUFFICIENT_VRAM"
        assert start(stack, fresh("none"), gpu_id="").status >= 400 and start(stack, fresh("any"), gpu_id="any").status >= 400
        assert [w["worker_id"] for w in state(stack)["workers"]] == ["w-1"] and process_runs(first["pid"])
        os.kill(first["pid"], signal.SIGKILL)
        wait_gone(stack, "w-1")
        beats = counted(stack, "pool_mgr_heartbeats_sent_total", outcome="success")
        wait_for("a report without it", lambda: counted(stack, "pool_mgr_heartbeats_sent_total", outcome="success") > beats)
        assert state(stack)["workers"] == [] and counted(stack, "pool_mgr_worker_starts_total", outcome="success") == 1
        assert start(stack, "w-2").status == 202
        wait_status(stack, "ready", "w-2")


class _as_it_is:
    def __init__(self, stack):
        self.stack = stack

    def __enter__(self):
        return self.stack

    def __exit__(self, *_):
        pass


def test_a_stop_drains_and_gives_everything_back(pool):
    """POOL-2042 WLIFE-10040 SYS-6.2.1 POOL-2062 ORCH-1004: ready, draining while its job runs, gone; registry and memory follow.

    SYS-4.2.1#executes: a command is carried out, whatever runs.

    CAPI-9011 CAPI-9012 M0-W-1340 M0-W-1630#intake M0-W-1630#finish-and-free"""
    for path in ("/v2/workers/stop", "/v2/workers/{id}/drain"):
        name = fresh("stopped")
        assert start(pool, name).status == 202
        w = wait_status(pool, "ready", name)
        pool.gate.hold()
        body = {"job_id": "held", "prompt_tokens": [1, 2, 3], "max_tokens": 4}
        token = control_token(pool)
        running = _Reader(w["uri"], body, token)
        wait_for("the job to run", lambda: request(w["uri"], path="/health", headers=token).json["slots_free"] == 0)
        answer = request(pool.pool_url, "POST", path.format(id=name), {"worker_id": name} if path.endswith("stop") else None)
        assert answer.status in (200, 202) and answer.json == {"worker_id": name, "status": "draining"}, answer.body
        assert worker(pool, name)["status"] == "draining" and process_runs(w["pid"])
        refused = request(w["uri"], "POST", "/execute", {**body, "job_id": "late"}, token)
        assert refused.status == 503, "no new job"
        pool.gate.open()
        assert running.last() == "end", "what ran was finished"
        wait_gone(pool, name)
        assert allocated(pool) == 0 and not process_runs(w["pid"])
        assert counted(pool, "pool_mgr_worker_stops_total") > 0


def control_token(stack):
    """Calls to a worker carry the token that orchestratord makes from the pool's credential."""
    pool_id, secret = stack.credential_file.read_text().strip().split(":")
    return {"Authorization": "Bearer " + hmac.new(bytes.fromhex(secret), f"llorch/1 to pool and worker {pool_id}".encode(),
                                                  hashlib.sha256).hexdigest()}


class _Reader:
    """Reads a job of a worker's own in a thread."""

    def __init__(self, uri, body, token):
        self.names = []

        def read():
            answer = request(uri, "POST", "/execute", body, {**token, "Content-Type": "application/json"})
            self.names = [line[7:] for line in answer.body.decode().splitlines() if line.startswith("event: ")]

        self.thread = threading.Thread(target=read)
        self.thread.start()

    def last(self):
        self.thread.join()
        return self.names[-1] if self.names else None


def test_a_stop_that_is_not_heard_ends_the_process():
    """POOL-2042 WLIFE-10040: after the grace SIGTERM and SIGKILL; its memory comes back."""
    with Stack({"pool-managerd.worker_drain_grace_ms": "200"}) as stack:
        assert start(stack, "w-1").status == 202
        w = wait_status(stack, "ready", "w-1")
        os.kill(w["pid"], signal.SIGSTOP)  # hears neither HTTP nor SIGTERM
        assert request(stack.pool_url, "POST", "/v2/workers/stop", {"worker_id": "w-1"}).status in (200, 202)
        wait_gone(stack, "w-1")
        assert not process_runs(w["pid"]) and allocated(stack) == 0


@pytest.fixture
def held(tmp_path):
    """A pool whose workers wait before they load; where they wrote how they were started."""
    script = tmp_path / "held-worker"
    script.write_text(HELD_WORKER.format(python=sys.executable, place=str(tmp_path), worker=str(BIN / "worker-orcd")))
    script.chmod(0o755)
    with Stack({"pool-managerd.worker_binary": str(script)}) as stack:
        stack.place = tmp_path
        yield stack


def test_only_the_worker_itself_reports_itself_ready(held):
    """POOL-2060 POOL-2100 SYS-5.3.1 WLIFE-10010: by its id, its spawn token, an address that answers and memory that there is; until
    then it is starting. A forged report changes nothing.

    CAPI-9030 M0-W-1100"""
    assert start(held, "w-1").status == 202
    started = json.loads(wait_for("the process", lambda: (held.place / "started").exists() and (held.place / "started").read_text()))
    arguments = started["argv"]
    assert arguments[arguments.index("--worker-id") + 1] == "w-1" and arguments[arguments.index("--model") + 1] == str(MODEL)
    assert arguments[arguments.index("--gpu-device") + 1] == "cpu"
    callback = arguments[arguments.index("--callback-url") + 1]
    assert callback.startswith(held.pool_url)
    spawn_token = started["env"]["LLORCH_SPAWN_TOKEN"]
    assert spawn_token not in " ".join(arguments)
    headers = {"Authorization": "Bearer " + started["env"]["LLORCH_WORKER_CALLBACK_TOKEN"]}
    good = {"worker_id": "w-1", "spawn_token": spawn_token, "model_ref": f"file:{MODEL}", "uri": "http://127.0.0.1:9",
            "vram_bytes": 1 << 20, "slots_total": 1, "context_length": 64, "engine_build": "x", "numerics": "x", "device_class": "x",
            "sampler": "x", "kv_dtype": "f16"}
    for wrong in ({"spawn_token": spawn_token[::-1]}, {"spawn_token": ""}, {"spawn_token": spawn_token + "0"}, {"worker_id": "w-2"},
                  {"vram_bytes": 1 << 60}, {"uri": "http://192.0.2.1:1"}, {"uri": "no address"}):
        refused = request(held.pool_url, "POST", "/v2/internal/workers/ready", {**good, **wrong}, headers)
        assert refused.code in ("INVALID_PARAMS", "FORBIDDEN", "INSUFFICIENT_VRAM", "WORKER_NOT_FOUND", "WORKER_UNAVAILABLE"), (wrong, refused.body)
        assert worker(held, "w-1")["status"] == "starting"
    assert allocated(held) < 1 << 40
    (held.place / "go").touch()
    w = wait_status(held, "ready", "w-1")
    assert w["pid"] == started["pid"] and allocated(held) == w["vram_bytes"]
    again = request(held.pool_url, "POST", "/v2/internal/workers/ready", good, headers)
    assert again.status >= 400, "a worker is ready once"
    assert worker(held, "w-1")["uri"] == w["uri"]


def test_a_worker_that_never_reports_is_ended_and_reported(tmp_path):
    """POOL-2041 ERROPS-16040 ORCH-1042: killed when its time is over, reported as failed; the start is tried once more, then its job
    fails with the reason."""
    script = tmp_path / "held-worker"
    script.write_text(HELD_WORKER.format(python=sys.executable, place=str(tmp_path), worker="/bin/false"))
    script.chmod(0o755)
    with Stack({"pool-managerd.worker_binary": str(script), "pool-managerd.worker_start_timeout_ms": "300"}) as stack:
        ended = stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        assert ended["status"] == "failed" and ended["error"]["code"] == "WORKER_START_TIMEOUT", ended

        def lines(daemon, event):
            return [json.loads(line) for line in stack.log(daemon).splitlines() if f'"{event}"' in line]

        wait_for("both losses to be logged", lambda: len(lines("orchestratord", "worker.gone")) >= 2 <= len(lines("pool-managerd", "worker_failed")))
        lost = lines("pool-managerd", "worker_failed")
        assert len(lost) == 2 and {line["error_code"] for line in lost} == {"WORKER_START_TIMEOUT"}
        assert all(line["category"] == "timeout" and line["vram_released_bytes"] == 0 for line in lost)
        assert [line["code"] for line in lines("orchestratord", "worker.gone")] == ["WORKER_START_TIMEOUT"] * 2, "each was reported"
        assert stack.workers() == []
        started = tmp_path / "started"  # a slow machine ends it before it has come to write this
        assert not started.exists() or not process_runs(json.loads(started.read_text())["pid"])


def test_a_lost_worker_is_reported_with_what_was_seen(pool):
    """ERROPS-16040 SYS-6.2.2 SYS-7.3.1 POOL-2070: which one, where, how it ended, what came back; nobody here starts
    another one."""
    lost = fresh("lost")
    assert start(pool, lost).status == 202
    w = wait_status(pool, "ready", lost)
    os.kill(w["pid"], signal.SIGKILL)
    wait_gone(pool, lost)
    line = wait_for("the line", lambda: next((json.loads(line) for line in pool.log("pool-managerd").splitlines()
                                              if '"worker_failed"' in line and lost in line), None))
    assert (line["pool_id"], line["gpu_id"], line["exit_code"], line["category"]) == ("pool-1", "cpu", 137, "crash")
    assert line["vram_released_bytes"] == w["vram_bytes"] and allocated(pool) == 0
    heard = wait_for("the report", lambda: next((json.loads(line) for line in pool.log("orchestratord").splitlines()
                                                 if '"worker.gone"' in line and lost in line), None))
    assert heard["code"] == "WORKER_RESET" and heard["gpu_id"] == "cpu"
    ready = json.loads(pool.wait_lines("pool-managerd", '"worker_registered"', lost)[0])
    assert ready["vram_allocated_bytes"] == w["vram_bytes"] and ready["gpu_id"] == "cpu" and ready["pool_id"] == "pool-1"
    assert state(pool)["workers"] == []


def test_a_worker_says_what_its_model_is(pool):
    """M0-W-1364 M0-W-1360: the kind of its tokenizer, its vocabulary and its context, as orchestratord uses them."""
    name = fresh("f16")
    assert start(pool, name, model_ref=f"file:{MODEL_F16}").status == 202
    health = request(wait_status(pool, "ready", name)["uri"], path="/health").json
    facts = request(pool.pool_url, path=f"/v2/models/describe?ref=file:{MODEL_F16}").json
    assert (health["tokenizer_kind"], health["vocab_size"], health["context_length"]) == ("gguf-bpe", facts["vocab_size"], 64)
    assert health["quant_kind"] == facts["quant_kind"] == "F16"
