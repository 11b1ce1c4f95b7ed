"""Devices as a driver reports them: a library that says what a test wants in the place of NVIDIA's, with real daemons over it. No worker
runs on these devices; how they are listed, refused and told apart is the same."""

import json
import os
import signal
import subprocess

import pytest

from stack import BIN, HANG_S, MODEL, REPO, Stack, clean_env, request, wait_for

LIBRARY = REPO / "build/release/test/libllorch_fake_nvml.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason=f"no {LIBRARY.name}: build the tests")
MIXED = "count=3;total=8000000000;free=7000000000;free1=3000000000"


class Gpus(Stack):
    """Its pool has what the library says, and no CPU device."""

    def __init__(self, says, directory, **more):
        self.file = directory / "driver"
        self.file.write_text(says)
        super().__init__(env={"FAKE_NVML": f"@{self.file}"}, **more)

    def spawn_pool(self):
        return self._spawn("pool-managerd", self.pool_bind, ["--nvml-library", str(LIBRARY), "--orchestrator", self.url])

    def gpus(self):
        return {gpu["gpu_id"]: gpu for gpu in request(self.pool_url, path="/v2/state").json["gpus"]}


@pytest.fixture(scope="module")
def gpus(tmp_path_factory):
    with Gpus(MIXED, tmp_path_factory.mktemp("driver")) as running:
        yield running


def test_every_gpu_is_listed_as_the_driver_says(gpus):
    """GPUINV-12001 GPUINV-12010: index, name, compute capability, bus address, memory, versions of the driver; orchestratord has the same.

    GPUINV-12082"""
    listed = gpus.gpus()
    assert sorted(listed) == ["0", "1", "2"]
    for index, gpu in listed.items():
        assert gpu["model"] == f"Fake GPU {index}" and gpu["compute_capability"] == "9.0" and gpu["memory_architecture"] == "vram-only"
        assert gpu["vram_total_bytes"] == 8_000_000_000 and gpu["vram_available_bytes"] >= 0 and gpu["vram_allocated_bytes"] == 0
    found = [json.loads(line) for line in gpus.wait_lines("pool-managerd", '"gpu_discovered"', least=3)]
    assert len({line["pci_bus_id"] for line in found}) == 3 and {line["gpu_id"] for line in found} == set(listed)
    driver = json.loads(gpus.wait_lines("pool-managerd", '"gpu_driver"')[0])
    assert driver["driver_version"] and driver["cuda_driver_version"] > 0
    assert {gpu["gpu_id"]: gpu["model"] for gpu in gpus.pools()[0]["gpus"]} == {index: gpu["model"] for index, gpu in listed.items()}


def test_nothing_runs_on_the_cpu_instead(gpus):
    """OC-POOL-3012 POOL-2111: a device that nobody allowed takes no worker, whatever is wrong with the others."""
    assert "cpu" not in gpus.gpus()
    refused = request(gpus.pool_url, "POST", "/v2/workers/start", {"worker_id": "w", "model_ref": f"file:{MODEL}", "gpu_id": "cpu"})
    assert (refused.status, refused.code) == (503, "GPU_UNAVAILABLE"), refused.body
    answer = gpus.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": 1, "placement": {"require_device_mask": "cpu"}})
    assert answer.status == 400, answer.body
    assert request(gpus.pool_url, path="/v2/state").json["workers"] == []


def test_without_a_gpu_it_says_so_at_once(tmp_path):
    """GPU-INFO-022 POOL-2110 POOL-2111 OC-POOL-3012: no driver, or a driver without a device: it ends, and says what to do."""
    for library, says in (("/nowhere/libnvidia-ml.so.1", "count=0"), (str(LIBRARY), "count=0")):
        done = subprocess.run([str(BIN / "pool-managerd"), "--state-dir", str(tmp_path), "--bind", "127.0.0.1:0", "--nvml-library", library],
                              capture_output=True, timeout=HANG_S, env=clean_env(tmp_path, {"FAKE_NVML": says}))
        assert done.returncode == 4, done
        assert b"--cpu" in done.stderr and b"GPU" in done.stderr, done.stderr


def test_faults_of_devices_are_told_apart(tmp_path):
    """ORCH-3053#visible: a lost one, one that needs a reset, one whose memory is wrong; each by its kind, with what to do, at the pool and
    at orchestratord."""
    with Gpus("count=3;total=8000000000;free=7000000000", tmp_path) as stack:
        assert {gpu.get("fault_kind") for gpu in stack.gpus().values()} <= {None, "kernels"}
        stack.file.write_text("count=3;total=8000000000;free=7000000000;lost=1;xid=79;uncorrected=3")
        kinds = {"0": "reset", "1": "lost", "2": "ecc"}
        seen = wait_for("the driver to be looked at again", lambda: (
            now := stack.gpus()) and {index: gpu.get("fault_kind") for index, gpu in now.items()} == kinds and now)
        assert all(not gpu["healthy"] and gpu["fault"] for gpu in seen.values())
        assert "79" in seen["0"]["fault"] and seen["2"]["ecc_uncorrected_errors"] == 3
        stack.wait_lines("pool-managerd", '"gpu_driver_error"')
        wait_for("orchestratord to hear", lambda: {gpu["gpu_id"]: gpu.get("fault_kind") for gpu in stack.pools()[0]["gpus"]} == kinds)


def test_memory_is_accounted_and_never_negative(tmp_path):
    """GPUINV-12030: total, what others hold, what our workers hold, what is left: as the driver says and as workers come and go. What is left
    is nothing, and not less, where others hold more than there is."""
    headroom = 256 << 20
    with Gpus(f"count=2;total=4000000000;free=3900000000;free1=0;pid={os.getpid()}", tmp_path) as stack:
        for index, gpu in stack.gpus().items():
            assert (gpu["vram_total_bytes"], gpu["vram_allocated_bytes"], gpu["foreign_bytes"]) == (4_000_000_000, 0, 5 << 30)
            # A build without kernels gives no memory of a GPU away.
            assert gpu["vram_available_bytes"] == (4_000_000_000 - headroom if index == "0" and gpu["healthy"] else 0), gpu
    total = 12 << 20
    with Stack({"devices.cpu_memory_bytes": str(total), "orchestratord.limits.workers_per_gpu": "2"}) as stack:
        def numbers():
            now = request(stack.pool_url, path="/v2/state").json
            (gpu,) = now["gpus"]
            assert gpu["vram_total_bytes"] == total == gpu["vram_allocated_bytes"] + gpu["vram_available_bytes"]
            assert gpu["vram_allocated_bytes"] >= 0 <= gpu["vram_available_bytes"] and gpu["foreign_bytes"] == 0
            return gpu["vram_allocated_bytes"], [worker for worker in now["workers"] if worker["status"] == "ready"]

        def start(name):
            return request(stack.pool_url, "POST", "/v2/workers/start", {"worker_id": name, "model_ref": f"file:{MODEL}", "gpu_id": "cpu"})

        assert numbers() == (0, [])
        assert start("w-1").status == 202
        held, (worker,) = wait_for("the worker", lambda: (seen := numbers())[1] and seen)
        assert held == worker["vram_bytes"] > total // 2
        refused = start("w-2")
        assert refused.code == "INSUFFICIENT_VRAM" and refused.envelope["details"]["available_bytes"] == total - held
        assert numbers()[0] == held
        os.kill(worker["pid"], signal.SIGKILL)
        wait_for("its memory to be given back", lambda: numbers() == (0, []))
