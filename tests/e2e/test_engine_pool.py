"""Engines of other systems as pool-managerd has them: facts, devices, workers. No orchestratord."""

import json
import os
import signal
import subprocess

import pytest

from adapter import one_end, text
from engine_stack import entry
from fake_engine import CONTEXT, FakeEngine, tokens_of
from stack import BIN, HANG_S, EventStream, clean_env, request, wait_for


class Pool:
    """A pool-managerd that nobody has paired: it serves this machine."""

    def __init__(self, directory, engines, cpu=True):
        config = directory / "config.yaml"
        config.write_text(json.dumps({"pool-managerd": {"engines": engines}}))
        env = {**clean_env(directory), "LLORCH_CONFIG": str(config)}
        self.log = open(directory / "pool.log", "ab")
        self.process = subprocess.Popen(
            [str(BIN / "pool-managerd"), "--state-dir", str(directory), "--bind", "127.0.0.1:0", *(["--cpu"] if cpu else [])],
            stdout=self.log, stderr=self.log, env=env)

        def listening():
            assert self.process.poll() is None, (directory / "pool.log").read_text()[-2000:]
            try:
                record = json.loads((directory / "run/pool-managerd.json").read_text())
            except (OSError, ValueError):
                return None
            return record["bind"] if record["pid"] == self.process.pid else None

        self.url = "http://" + wait_for("the pool to listen", listening)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(HANG_S)
        self.log.close()

    def request(self, method, path, body=None):
        return request(self.url, method, path, body)

    def workers(self):
        return {w["worker_id"]: w for w in self.request("GET", "/v2/state").json["workers"]}

    def start(self, worker_id, name="tale", device="engine-tale"):
        body = {"worker_id": worker_id, "model_ref": f"engine:{name}", "gpu_id": device}
        return self.request("POST", "/v2/workers/start", body)

    def ready(self, worker_id):
        return wait_for("the worker to be ready",
                        lambda: self.workers().get(worker_id, {}).get("status") == "ready" and self.workers()[worker_id])


def test_an_engine_is_a_model_and_a_device(tmp_path):
    """AH-1001 ORCH-3600 OC-ADAPT-5011: facts that say what it is; its context is known once it was asked."""
    with FakeEngine("vllm") as engine, Pool(tmp_path, [entry(engine)]) as pool:
        facts = pool.request("GET", "/v2/models/describe?ref=engine:tale").json
        assert (facts["takes"], facts["replayable"], facts["device"]) == ("text", False, "engine-tale")
        assert facts["memory_bytes"] == 0 and facts["context_length"] == 0 and "top_k" in facts["parameters"]
        devices = {d["gpu_id"]: d for d in pool.request("GET", "/v2/state").json["gpus"]}
        assert set(devices) == {"cpu", "engine-tale"}
        assert devices["engine-tale"]["device_class"] == "external" and devices["engine-tale"]["vram_total_bytes"] == 0
        assert pool.start("w1").status == 202
        worker = pool.ready("w1")
        assert worker["model_digest"] == facts["digest"] and worker["context_length"] == CONTEXT
        assert worker["slots_total"] == 4 and worker["engine_build"] == "vllm/1.2.3"
        assert pool.request("GET", "/v2/models/describe?ref=engine:tale").json["context_length"] == CONTEXT
        events = list(EventStream(worker["uri"], "/execute",
                                  body={"job_id": "j", "prompt": "Once", "max_tokens": 6, "seed": 1}))
        assert one_end(events).name == "end" and text(events) == "".join(tokens_of("Once", 1, 6))
        assert one_end(events).data["receipt"]["model_digest"] == facts["digest"]


def test_a_worker_of_an_engine_is_watched_like_any_other(tmp_path):
    """AH-1002 ORCH-3601"""
    with FakeEngine("vllm") as engine, Pool(tmp_path, [entry(engine)]) as pool:
        pool.start("w1")
        os.kill(pool.ready("w1")["pid"], signal.SIGKILL)
        wait_for("the pool to notice", lambda: "w1" not in pool.workers())
        assert pool.start("w2").status == 202
        pool.ready("w2")
        second = pool.start("w3")
        assert (second.status, second.code) == (409, "CONFLICT")
        assert pool.request("POST", "/v2/workers/stop", {"worker_id": "w2"}).status == 200
        wait_for("the worker to leave", lambda: "w2" not in pool.workers())


@pytest.mark.parametrize("body,code", [
    ({"model_ref": "engine:nobody", "gpu_id": "engine-tale"}, "MODEL_NOT_FOUND"),
    ({"model_ref": "engine:tale", "gpu_id": "engine-nobody"}, "GPU_UNAVAILABLE"),
])
def test_starts_that_cannot_be(tmp_path, body, code):
    with FakeEngine("vllm") as engine, Pool(tmp_path, [entry(engine)]) as pool:
        refused = pool.request("POST", "/v2/workers/start", {"worker_id": "w", **body})
        assert refused.status >= 400 and refused.code == code


def test_a_pool_of_engines_alone_needs_no_device(tmp_path):
    with FakeEngine("tgi") as engine, Pool(tmp_path, [entry(engine)], cpu=False) as pool:
        assert "cpu" not in [d["gpu_id"] for d in pool.request("GET", "/v2/state").json["gpus"]]
        pool.start("w1")
        assert pool.ready("w1")["context_length"] == CONTEXT


def test_an_engine_that_does_not_answer_is_a_failed_start_with_the_reason(tmp_path):
    with FakeEngine("vllm", key="sk-right") as engine, Pool(tmp_path, [entry(engine)]) as pool:
        pool.start("w1")
        wait_for("the worker to leave", lambda: "w1" not in pool.workers())
        # Lines are written by a thread of their own.
        wait_for("the reason in the log", lambda: "WORKER_START_FAILED" in (log := (tmp_path / "pool.log").read_text())
                 and "api_key_file" in log)
