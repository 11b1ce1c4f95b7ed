"""An operator's levers on a pool, with real processes: drain, undrain, reload, purge, health; and unloading after idle time."""

import json
import shutil
import signal
import subprocess

from stack import ALIAS, BIN, HANG_S, MODEL, MODEL_F16, ResumingClient, Stack, clean_env, llorch, process_runs, wait_for


def health(stack):
    return stack.request("GET", "/v2/pools/pool-1/health").json


def control(stack, what, body=None, method="POST", expect=202):
    response = stack.request(method, f"/v2/pools/pool-1/{what}", body)
    assert response.status == expect, response.body
    return response.json


def cli(stack, *args):
    return llorch("--url", stack.url, *args, state_dir=stack.dir)


def test_a_drain_waits_for_what_runs_and_is_taken_back():
    """OC-CTRL-2001 OC-CTRL-2002 ORCH-2101 ORCH-2103 ORCH-3038: no new lease, what runs finishes, the worker goes; undrain brings the pool back.

    AAPI-15050 ORCH-3500 ORCH-3501 ORCH-3505"""
    with Stack() as stack:
        running = stack.submit_held(max_tokens=150)
        worker = stack.ready_worker()
        done = cli(stack, "--json", "pool", "drain", "pool-1", "--deadline-ms", "3600000")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["status"] == "draining"
        waiting = stack.submit(max_tokens=4)["job_id"]
        state = health(stack)
        assert state["live"] and state["draining"] and not state["ready"]
        assert state["operation"]["state"] == "running" and state["metrics"]["active_leases"] == 1
        assert stack.pools()[0]["status"] == "draining"
        reasons = " ".join(reason["human"] for reason in stack.request("GET", "/v2/health").json["reasons"])
        assert "llorch pool undrain pool-1" in reasons and "Start pool-managerd" not in reasons, reasons
        waiter = subprocess.Popen([str(BIN / "llorch"), "--url", stack.url, "--state-dir", str(stack.dir), "--json", "pool", "drain",
                                   "pool-1", "--deadline-ms", "3600000", "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env=clean_env(stack.dir))
        left = subprocess.Popen([str(BIN / "llorch"), "--url", stack.url, "--state-dir", str(stack.dir), "pool", "drain", "pool-1",
                                 "--deadline-ms", "3600000", "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=clean_env(stack.dir))
        assert b"pool-1: " in left.stderr.readline(), "it says what it waits for"
        left.send_signal(signal.SIGINT)
        assert b"llorch pool health pool-1" in left.communicate(timeout=HANG_S)[1] and left.returncode == 130
        assert waiter.poll() is None, "the job still runs"
        stack.gate.open()
        assert stack.wait_terminal(running)["status"] == "completed"
        wait_for("the worker to go", lambda: not process_runs(worker["pid"]))
        out, err = waiter.communicate(timeout=HANG_S)
        assert waiter.returncode == 0 and json.loads(out)["operation"]["state"] == "done", err
        assert health(stack)["operation"]["state"] == "done"
        job = stack.job(waiting)
        assert job["status"] == "queued" and "undrain pool-1" in job["reason"]["human"], job
        assert cli(stack, "pool", "undrain", "pool-1").returncode == 0
        assert stack.wait_terminal(waiting)["status"] == "completed"
        assert health(stack)["ready"]


def test_at_the_deadline_jobs_go_back_to_the_queue_and_lose_nothing():
    """OC-CTRL-2002: forced out, replayed with the same bytes, the attempt not counted; and the drain outlives a kill -9."""
    with Stack() as stack:
        calm = ResumingClient(stack, stack.submit(max_tokens=120)["job_id"]).run()
        job = stack.submit_held(steps=20, max_tokens=120, on_disconnect="resume")
        control(stack, "drain", {"deadline_ms": 0})
        wait_for("the job to be put back", lambda: stack.job(job)["status"] == "queued")
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        wait_for("the pool", lambda: stack.pools())
        assert health(stack)["draining"], "a drain is the operator's word until it is taken back"
        assert stack.job(job)["status"] == "queued"
        control(stack, "drain", method="DELETE", expect=200)
        stack.gate.open()
        client = ResumingClient(stack, job).run()
        assert client.tokens() == calm.tokens()
        ended = stack.wait_terminal(job)
        assert ended["status"] == "completed" and ended["attempts"] == 1, ended


def test_reload_switches_the_model_or_rolls_back(tmp_path):
    """AAPI-15051 OC-CTRL-2003 ORCH-2102 ORCH-3038 HME-031: the new model is loaded in place of the old one; a broken one leaves the old one."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(MODEL.read_bytes()[:-200_000])
    settings = {"models.allowed_roots": f"{MODEL.parent},{tmp_path}", "models.aliases.broken": f"file:{broken}"}
    with Stack(settings=settings) as stack:
        stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])
        before = stack.ready_worker()
        assert cli(stack, "pool", "reload", "pool-1", "demo-f16").returncode == 0
        wait_for("the reload", lambda: health(stack)["operation"]["state"] == "done")
        after = stack.ready_worker()
        assert after["model_ref"] == f"file:{MODEL_F16}" and after["worker_id"] != before["worker_id"]
        assert not process_runs(before["pid"]) and health(stack)["ready"]

        # A file that is no model is refused before anything is stopped.
        response = stack.request("POST", "/v2/pools/pool-1/reload", {"new_model_ref": "broken"})
        assert response.status >= 400, response.body
        assert stack.ready_worker()["worker_id"] == after["worker_id"] and health(stack)["ready"]

        assert control(stack, "drain", {"deadline_ms": 0})["status"] == "draining"
        response = stack.request("POST", "/v2/pools/pool-1/reload", {"new_model_ref": ALIAS})
        assert response.status == 409 and response.code == "CONFLICT"


def test_a_reload_whose_worker_dies_brings_the_old_model_back(tmp_path):
    """ORCH-3038: every worker of the new model dies while it starts."""
    dying = tmp_path / "dying-worker"
    dying.write_text(f'#!/bin/sh\ncase "$*" in *{MODEL_F16.name}*) kill -9 $$;; esac\nexec {BIN / "worker-orcd"} "$@"\n')
    dying.chmod(0o755)
    with Stack({"pool-managerd.worker_binary": str(dying)}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])
        old = stack.ready_worker()["model_ref"]
        control(stack, "reload", {"new_model_ref": "demo-f16", "deadline_ms": 1000})
        wait_for("the reload to end", lambda: health(stack)["operation"]["state"] != "running")
        state = health(stack)
        assert state["operation"]["state"] == "rolled_back" and state["last_error"], state
        assert stack.ready_worker()["model_ref"] == old
        assert state["ready"]
        stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])


def test_purge_frees_the_memory():
    """ORCH-2104: the workers of one model leave, by the operator's word; a busy one only when it is idle, or by force."""
    with Stack() as stack:
        job = stack.submit_held(max_tokens=100)
        pid = stack.ready_worker()["pid"]
        refused = cli(stack, "pool", "purge", "pool-1", "--model", ALIAS, "--idle-only")
        assert refused.returncode != 0 and b"CONFLICT" in refused.stderr
        forced = cli(stack, "pool", "purge", "pool-1", "--model", ALIAS, "--force")
        assert forced.returncode == 0 and b"go back to the queue" in forced.stdout, forced
        wait_for("the worker to go", lambda: not process_runs(pid))
        stack.gate.open()
        assert stack.wait_terminal(job)["status"] == "completed"
        assert stack.job(job)["attempts"] == 1
        response = stack.request("POST", "/v2/pools/pool-1/purge", {"delete_cache_dirs": True})
        assert response.status == 400 and response.code == "INVALID_PARAMS"
        text = cli(stack, "pool", "health", "pool-1").stdout.decode()
        assert "ready      true" in text


def test_a_model_is_stopped_by_its_name():
    """As `ollama stop` and `keep_alive: 0`: its workers end once their jobs have, and the next request starts one."""
    empty = {"model": ALIAS, "keep_alive": 0}
    with Stack() as stack:
        job = stack.submit_held(max_tokens=4)
        worker = stack.ready_worker()
        stopped = cli(stack, "stop", ALIAS)
        assert stopped.returncode == 0 and f"{worker['worker_id']} of pool-1 is stopped when it is idle" in stopped.stdout.decode()
        stack.gate.open()
        assert stack.wait_terminal(job)["status"] == "completed" and stack.job(job)["attempts"] == 1
        wait_for("the worker to go", lambda: not process_runs(worker["pid"]))
        assert b"no worker has" in cli(stack, "stop", ALIAS).stdout
        unknown = cli(stack, "stop", "nobody")
        assert unknown.returncode != 0 and b"MODEL_NOT_FOUND" in unknown.stderr, "a slip does not stop the stack"
        stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])
        pid = stack.ready_worker()["pid"]
        assert stack.request("POST", "/api/generate", empty).json["done_reason"] == "unload"
        wait_for("the worker to go", lambda: not process_runs(pid))


def test_any_name_of_its_bytes_stops_a_worker(tmp_path):
    """A worker has the name of the job that started it, and serves jobs of every name whose file is the same."""
    copy = shutil.copy(MODEL, tmp_path / "copy.gguf")
    settings = {"models.aliases.copy": f"file:{copy}", "models.allowed_roots": f"{MODEL.parent},{tmp_path}"}
    with Stack(settings) as stack:
        for model in (ALIAS, "copy"):
            assert stack.wait_terminal(stack.submit(max_tokens=4, model=model)["job_id"])["status"] == "completed"
        worker, = stack.workers()
        assert worker["worker_id"] in cli(stack, "stop", "copy").stdout.decode()
        wait_for("the worker to go", lambda: not process_runs(worker["pid"]))


def test_an_idle_worker_is_unloaded_and_the_next_request_is_served():
    """llama-swap #946: the memory comes back after the idle time, and requests around that moment never hang."""
    with Stack(settings={"orchestratord.eviction.worker_idle_ttl_ms": "300"}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        wait_for("the unload", lambda: not stack.workers())
        for n in range(6):
            job = stack.submit(prompt=f"again {n}", max_tokens=2)["job_id"]
            assert stack.wait_terminal(job)["status"] == "completed"
            # The next one comes right when the worker is told to go.
            wait_for("the stop", lambda: not stack.ready_worker(), every_s=0.002)


def test_unknown_pools_and_bodies_are_refused():
    """ORCH-3503: a pool that nobody knows has no leases, and no health."""
    with Stack() as stack:
        for method, what in (("POST", "drain"), ("DELETE", "drain"), ("POST", "purge"), ("GET", "health")):
            response = stack.request(method, f"/v2/pools/nobody/{what}", {"deadline_ms": 1} if what == "drain" else None)
            assert response.status == 404 and response.code == "POOL_NOT_FOUND", (method, what, response.body)
        assert stack.request("POST", "/v2/pools/pool-1/drain", {}).status == 400
        assert stack.request("POST", "/v2/pools/pool-1/drain", {"deadline_ms": 1, "more": 1}).status == 400
        assert health(stack)["ready"]
