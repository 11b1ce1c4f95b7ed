"""Where orchestratord has workers started on GPUs of different sizes, and what it learns of their memory and faults. The GPUs are those
of a scripted pool: what it is told to start is all that happens there."""

import socket

import pytest

from scripted_pool import GB, ScriptedPool, ScriptedStack, gpu
from stack import MODEL, MODEL_F16, wait_for

SMALL, LARGE = f"file:{MODEL}", f"file:{MODEL_F16}"
FAULT = {"healthy": False, "fault_kind": "reset", "fault": "the driver reports error 79 (Xid)"}


@pytest.fixture
def scripted():
    """Starts a stack over a scripted pool and ends it."""
    running = []

    def start(gpus, needs, **settings):
        running.append(ScriptedStack(ScriptedPool(gpus, needs), settings))
        return running[-1].__enter__()

    yield start
    for stack in running:
        stack.stop()


def started(stack):
    return [start["gpu_id"] for start in stack.scripted.starts]


def masked(stack, mask, expect=202, **fields):
    return stack.submit(max_tokens=1, placement={"require_device_mask": mask}, expect=expect, **fields)


def test_a_worker_starts_on_the_named_device_or_on_none(scripted):
    """OC-POOL-3020: not where more is free, not where a fault leaves the named one without, and not where the model would fit."""
    stack = scripted([gpu(0, 8 * GB), gpu(1, 4 * GB), gpu(2, 8 * GB, **FAULT)], {SMALL: 2 * GB, LARGE: 5 * GB})
    job = masked(stack, "1")["job_id"]
    wait_for("the start", lambda: started(stack) == ["1"])
    assert stack.job(job)["status"] == "queued"
    faulty = masked(stack, "2", expect=503)["error"]
    assert faulty["code"] == "POOL_UNREADY", faulty
    too_small = masked(stack, "1", expect=503, model="demo-f16")["error"]
    assert too_small["code"] == "POOL_UNAVAILABLE" and too_small["details"] == {"required_bytes": 5 * GB, "available_bytes": 4 * GB}
    for mask in ("7", "0,1"):
        assert masked(stack, mask, expect=400)["error"]["code"] == "INVALID_PARAMS", mask
    # The same model without a mask is started where it fits: after it no other start can be on its way.
    stack.submit(model="demo-f16", max_tokens=1)
    wait_for("the start", lambda: len(started(stack)) > 1)
    assert started(stack) == ["1", "0"]


def test_a_model_is_split_only_where_somebody_said_so_and_only_as_the_smallest_gpu_allows(scripted):
    """OC-POOL-3021#explicit OC-POOL-3021#capped: two GPUs that have room together are none for a model that nobody split; what a split
    model may take of each is what the smaller one has."""
    stack = scripted([gpu(0, 8 * GB), gpu(1, 4 * GB)], {SMALL: 10 * GB, LARGE: 5 * GB}, **{"models.tensor_split.demo-f16": "2"})
    whole = stack.submit(max_tokens=1, expect=503)["error"]
    assert whole["code"] == "POOL_UNAVAILABLE" and whole["details"] == {"required_bytes": 10 * GB, "available_bytes": 8 * GB}, whole
    split = stack.submit(model="demo-f16", max_tokens=1, expect=503)["error"]
    assert split["code"] == "POOL_UNAVAILABLE" and split["details"] == {"required_bytes": 5 * GB, "available_bytes": 4 * GB}, split
    assert "of each of 2 devices" in split["message"] and started(stack) == []
    stack.scripted.gpus[1] = gpu(1, 5 * GB)
    stack.tell()
    stack.submit(model="demo-f16", max_tokens=1)
    wait_for("the start", lambda: started(stack))
    assert started(stack) == ["0,1"]
    assert stack.submit(max_tokens=1, expect=503)["error"]["details"] == {"required_bytes": 10 * GB, "available_bytes": 8 * GB}


def test_a_pool_whose_gpus_report_faults_gets_no_start(scripted):
    """WORKER-4962 OC-POOL-3010#unready: it says so of itself, and a job waits until the driver is well again."""
    stack = scripted([gpu(0, 8 * GB)], {SMALL: 2 * GB, LARGE: 2 * GB})
    assert stack.request("GET", "/v2/pools/pool-1/health").json["ready"] is True
    stack.scripted.gpus[0] = gpu(0, 8 * GB, **FAULT)
    stack.tell()
    health = stack.request("GET", "/v2/pools/pool-1/health").json
    assert health["ready"] is False and health["live"] is True, health
    job = stack.submit(max_tokens=1)["job_id"]
    assert wait_for("its reason", lambda: stack.job(job).get("reason"))["code"].startswith("WAITING_FOR_")
    assert started(stack) == []
    stack.scripted.gpus[0] = gpu(0, 8 * GB)
    stack.tell()
    wait_for("the start", lambda: started(stack) == ["0"])


def test_a_worker_that_nobody_reaches_is_told_of_as_that(scripted):
    """STREAM-20050: a job whose worker is not at its address ends with a code of its own, where it may not be tried again."""
    stack = scripted([gpu(0, 8 * GB)], {SMALL: 4 * GB, LARGE: 4 * GB}, **{"orchestratord.retry.enabled": "false"})
    pool = stack.scripted
    job = stack.submit(max_tokens=1)["job_id"]
    wait_for("the start", lambda: pool.starts)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        pool.make_ready(pool.starts[0], 4 * GB, f"http://127.0.0.1:{taken.getsockname()[1]}")
        stack.tell()
        ended = stack.wait_terminal(job)
    assert (ended["status"], ended["error"]["code"]) == ("failed", "UNREACHABLE"), ended
    assert ended["error"]["retriable"] is True


@pytest.mark.parametrize("left", [1 * GB, 4 * GB], ids=["short", "enough"])
def test_a_shortage_of_device_memory_has_the_device_measured_again(scripted, left):
    """ORCH-3039#re-estimate: the job that met it ends with its code; the pool is asked at once, and a model for which what is left is too
    little is not started there."""
    stack = scripted([gpu(0, 8 * GB)], {SMALL: 4 * GB, LARGE: 3 * GB}, **{"orchestratord.limits.workers_per_gpu": "2"})
    pool = stack.scripted
    pool.gpus_after_shortage = [gpu(0, 8 * GB, vram_allocated_bytes=4 * GB, vram_available_bytes=left)]
    job = stack.submit(max_tokens=1)["job_id"]
    wait_for("the start", lambda: pool.starts)
    pool.make_ready(pool.starts[0], 4 * GB)
    pool.gpus = [gpu(0, 8 * GB, vram_allocated_bytes=4 * GB, vram_available_bytes=4 * GB)]
    asked = pool.asked
    stack.tell()
    ended = stack.wait_terminal(job)
    assert (ended["status"], ended["error"]["code"], ended["attempts"]) == ("failed", "VRAM_OOM", 1), ended
    wait_for("the pool to be asked", lambda: pool.asked > asked)
    wait_for("its answer", lambda: stack.pools()[0]["gpus"][0]["vram_available_bytes"] == left)
    other = stack.submit(model="demo-f16", max_tokens=1)["job_id"]
    if left >= 3 * GB:
        wait_for("the start", lambda: len(pool.starts) == 2)
    else:
        assert wait_for("its reason", lambda: stack.job(other).get("reason"))["code"] == "WAITING_FOR_MEMORY"
        assert len(pool.starts) == 1
