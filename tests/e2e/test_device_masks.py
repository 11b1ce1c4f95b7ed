"""Workers over several devices, and what is heard of a worker while it loads. CPU devices stand for GPUs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, MODEL_F16, Stack, clean_env, llorch, request, wait_for

SPLIT = "demo-f16"

# A worker that says a quarter of its model is loaded and goes on when it may.
WAITING_WORKER = """#!{python}
import json, os, sys, time, urllib.request
argument = lambda name: sys.argv[sys.argv.index(name) + 1]
body = {{"worker_id": argument("--worker-id"), "spawn_token": os.environ["LLORCH_SPAWN_TOKEN"], "percent": 25}}
headers = {{"Authorization": "Bearer " + os.environ["LLORCH_WORKER_CALLBACK_TOKEN"], "Content-Type": "application/json"}}
urllib.request.urlopen(urllib.request.Request(argument("--progress-url"), json.dumps(body).encode(), headers, method="POST")).read()
while not os.path.exists({go!r}):
    time.sleep(0.02)
os.execv({worker!r}, [{worker!r}, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def split():
    with Stack({f"models.tensor_split.{SPLIT}": "2"}) as stack:
        yield stack


def run(stack, **fields):
    job_id = stack.submit(model=SPLIT, **fields)["job_id"]
    events = stack.read_to_end(job_id)
    return "".join(e.data["t"] for e in events if e.name == "token"), stack.job(job_id)


def test_a_split_model_is_shared_by_two_devices(split):
    """SYS-3.3.1 SYS-6.3.3 ORCH-3052"""
    text, job = run(split)
    assert job["status"] == "completed" and text, job
    assert job["receipt"]["numerics"] == "cpu-2/tp2"
    worker = split.ready_worker()
    assert worker["gpu_id"] == "cpu,cpu"
    by_device = worker["vram_bytes_by_device"]
    assert len(by_device) == 2 and sum(by_device) == worker["vram_bytes"]
    # Each holds its part, not the model.
    assert max(by_device) < MODEL_F16.stat().st_size
    gpu = request(split.pool_url, path="/v2/state").json["gpus"][0]
    assert gpu["vram_allocated_bytes"] == worker["vram_bytes"] and gpu["workers"] == [worker["worker_id"]]
    assert run(split)[0] == text


def test_a_job_may_name_the_mask_and_gets_it_exactly(split):
    """HME-012 ORCH-3011 OC-CORE-1011 ORCH-3903"""
    text, job = run(split, placement={"require_device_mask": "cpu,cpu"})
    assert job["status"] == "completed" and job["placement"]["require_device_mask"] == "cpu,cpu"
    refused = split.submit(model=SPLIT, placement={"require_device_mask": "cpu"}, expect=400)
    assert refused["error"]["code"] == "INVALID_PARAMS"
    assert split.submit(placement={"require_device_mask": "cpu,0"}, expect=400)["error"]["details"]["reason"] == "device_mask"
    same = llorch("--url", split.url, "run", SPLIT, "Once upon a time", "--device-mask", "cpu,cpu", "--max-tokens", "32",
                  "--seed", "7", state_dir=split.dir)
    assert same.stdout.decode().rstrip("\n") == text.rstrip("\n"), same.stderr


def test_a_lost_worker_gives_back_every_device_and_its_job_goes_on(split):
    """SYS-3.3.1 SYS-6.2.5"""
    text, _ = run(split)
    worker = split.ready_worker()
    os.kill(worker["pid"], signal.SIGKILL)
    again, job = run(split)
    assert job["status"] == "completed" and again == text
    gpu = request(split.pool_url, path="/v2/state").json["gpus"][0]
    assert gpu["vram_allocated_bytes"] == split.ready_worker()["vram_bytes"]
    assert worker["worker_id"] not in gpu["workers"]


def test_a_mask_that_does_not_fit_is_refused_with_the_numbers(tmp_path):
    """SYS-3.3.1 SYS-6.2.3"""
    settings = {"devices.cpu_memory_bytes": str(12 << 20), f"models.tensor_split.{SPLIT}": "2"}
    with Stack(settings) as stack:
        body = {"worker_id": "w", "model_ref": f"file:{MODEL_F16}", "gpu_id": "cpu,cpu", "context_tokens": 512}
        refused = request(stack.pool_url, "POST", "/v2/workers/start", body)
        assert refused.status == 409 and refused.code == "INSUFFICIENT_VRAM"
        details = refused.json["error"]["details"]
        assert details["required_bytes"] > details["available_bytes"] == 12 << 20
        told = stack.submit(model=SPLIT, expect=503)["error"]
        assert "of each of 2 devices" in told["message"], told


def test_every_device_of_a_worker_has_a_budget_of_its_own(split, tmp_path):
    """M0-W-1020 M0-W-1111 SYS-3.3.1 SYS-6.2.3"""
    run(split)
    exact = split.ready_worker()["vram_bytes_by_device"]
    worker = [str(BIN / "worker-orcd"), "--worker-id", "w", "--model", str(MODEL_F16), "--gpu-device", "cpu,cpu",
              "--memory-budget-bytes"]

    def fails(budgets):
        return subprocess.run(worker + [budgets], env=clean_env(tmp_path), capture_output=True, text=True, timeout=HANG_S)

    short = fails(f"{1 << 40},{exact[1] // 2}")
    logged = [json.loads(line) for line in (short.stdout + short.stderr).splitlines() if line.startswith("{")]
    ends = [line for line in logged if line["event"] == "error"]
    assert short.returncode == 1 and ends[0]["code"] == "OUT_OF_DEVICE_MEMORY", short
    assert ends[0]["gpu_id"] == "cpu,cpu" and ends[0]["model"] == str(MODEL_F16) and "required_bytes=" in ends[0]["numbers"], ends
    assert "device 1 of 2" in ends[0]["message"] and f"of {exact[1] // 2} are free" in ends[0]["message"], ends
    odd = fails("1,2,3")
    assert odd.returncode == 2 and "3 numbers for 2 devices" in odd.stdout + odd.stderr, odd


def test_a_digest_computed_beside_a_load_is_kept(tmp_path):
    """The next start of the same files need not hash them."""
    with Stack() as stack:
        body = {"worker_id": "worker-first", "model_ref": f"file:{MODEL}", "gpu_id": "cpu", "context_tokens": 64}
        assert request(stack.pool_url, "POST", "/v2/workers/start", body).status == 202
        digest = wait_for("the worker", lambda: (stack.ready_worker() or {}).get("model_digest"))
        known = wait_for("the digest", lambda: (stack.dir / "model_digests.json").exists() and
                         json.loads((stack.dir / "model_digests.json").read_text()))
        assert [(entry["path"], "sha256:" + entry["sha256"]) for entry in known] == [(str(MODEL.resolve()), digest)]


@pytest.fixture
def held(tmp_path):
    """A stack whose worker waits in its load until `go` exists."""
    go, script = tmp_path / "go", tmp_path / "waiting-worker"
    script.write_text(WAITING_WORKER.format(python=sys.executable, go=str(go), worker=str(BIN / "worker-orcd")))
    script.chmod(0o755)
    with Stack({"pool-managerd.worker_binary": str(script)}) as stack:
        stack.go = go
        yield stack


def test_a_wait_for_a_load_says_how_far_it_is(held):
    """SYS-7.2.1 ORCH-1040: a start is commanded and awaited, and a job that waits for it says so in numbers."""
    job_id = held.submit(max_tokens=4)["job_id"]
    reason = wait_for("the progress", lambda: held.job(job_id).get("reason", {}).get("load_percent") and
                      held.job(job_id)["reason"])
    assert reason["load_percent"] == 25 and "25 % of the model is loaded" in reason["human"]
    assert held.workers()[0]["load_percent"] == 25
    health = llorch("--url", held.url, "pool", "health", "pool-1", state_dir=held.dir).stdout.decode()
    assert "on cpu: 25 %" in health, health
    held.go.touch()
    assert held.wait_terminal(job_id)["status"] == "completed"
    assert "load_percent" not in held.workers()[0]


@pytest.mark.parametrize("form", ["lines", "json"])
def test_run_shows_the_load_beside_the_answer(held, form):
    """Lines where nobody looks, objects for programs; never in the answer."""
    command = [str(BIN / "llorch"), "--state-dir", str(held.dir), "--url", held.url, "run", ALIAS, "Once", "--max-tokens", "4", "--seed", "7"]
    process = subprocess.Popen(command + ["--json"] * (form == "json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=clean_env(held.dir))
    first = next(line.decode() for line in process.stderr if b"load" in line)  # a slow machine waits for its start first
    held.go.touch()
    out, rest = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, rest
    if form == "json":
        assert json.loads(first) == {"event": "load_progress", "percent": 25}
        assert json.loads(out)["end"]["tokens_out"] == 4
    else:
        assert first == "loading the model: 25 %\n"
        assert b"loading" not in out
