"""Pools as orchestratord keeps them: who registers, what a heartbeat brings, who is lost, and what its own loss changes."""

import hashlib
import hmac
import json
import os
import signal

from said_server import SaidServer
from stack import Stack, llorch, request, wait_for

OFTEN = {"orchestratord.heartbeat.interval_ms": "100", "pool-managerd.heartbeat_interval_ms": "100",
         "orchestratord.heartbeat.missed_threshold": "3"}


def node_headers(stack, text=None):
    """What a pool sends with what it says to orchestratord."""
    pool_id, secret = (text or stack.credential_file.read_text()).strip().split(":")
    token = hmac.new(bytes.fromhex(secret), f"llorch/1 pool to orchestratord {pool_id}".encode(), hashlib.sha256).hexdigest()
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def logged(stack, event):
    return [json.loads(line) for line in stack.log("orchestratord").splitlines() if f'"event":"{event}"' in line]


def pool(stack, pool_id="pool-1"):
    return next((p for p in stack.pools() if p["pool_id"] == pool_id), None)


def test_a_pool_id_is_one_pools():
    """POOLREG-19010 SYS-5.2.1#unique SYS-5.2.1#inventory: who claims the id of a pool that answers is refused; the pool stays what it is.

    SYS-4.2.1#reports"""
    with Stack() as stack:
        there = pool(stack)
        state = request(stack.pool_url, path="/v2/state").json
        assert there["gpus"] == state["gpus"] and there["endpoint"] == stack.pool_url
        claim = {**state, "endpoint": "http://127.0.0.1:9", "boot_id": "another", "workers": []}
        refused = stack.request("POST", "/v2/pools/register", claim, node_headers(stack))
        assert (refused.status, refused.code) == (409, "CONFLICT"), refused.body
        assert pool(stack)["endpoint"] == stack.pool_url
        nameless = {key: value for key, value in state.items() if key != "gpus"}
        assert stack.request("POST", "/v2/pools/register", nameless, node_headers(stack)).status == 400
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"


def test_heartbeats_are_taken_in_and_missed_ones_cost_the_pool_its_work():
    """ORCH-3502 POOLREG-19030 POOLREG-19040 SYS-5.2.2#missing SYS-8.3.2 OC-CORE-1010: each is counted and its facts are shown; after three that are
    missing the pool is unhealthy and gets no job; when they come again it serves what waits."""
    with Stack(OFTEN) as stack:
        first = stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        assert first["status"] == "completed"
        taken = wait_for("heartbeats", lambda: stack.request("GET", "/metrics").body.decode().count("orchd_heartbeats_received_total") and
                         [line for line in stack.request("GET", "/metrics").body.decode().splitlines()
                          if line.startswith("orchd_heartbeats_received_total{")])
        assert all('pool_id="pool-1"' in line for line in taken) and sum(float(line.rpartition(" ")[2]) for line in taken) > 0
        assert {w["worker_id"] for w in pool(stack)["workers"]} == {w["worker_id"] for w in stack.workers()}
        worker = stack.ready_worker()
        stack.gate.hold()
        for pid in (stack.pool.pid, worker["pid"]):
            os.kill(pid, signal.SIGSTOP)
        try:
            wait_for("the pool to be unhealthy", lambda: pool(stack)["status"] == "unhealthy")
            assert wait_for("the line", lambda: logged(stack, "pool.unavailable"))[0]["pool_id"] == "pool-1"
            waiting = stack.submit(max_tokens=2, on_disconnect="resume")["job_id"]
            assert stack.job(waiting)["status"] == "queued"
            assert stack.job(waiting)["reason"]["code"] == "WAITING_FOR_POOL" and stack.job(waiting)["reason"]["human"]
            assert not [line for line in logged(stack, "dispatch.sent") if line["job_id"] == waiting]
        finally:
            for pid in (worker["pid"], stack.pool.pid):
                os.kill(pid, signal.SIGCONT)
        stack.gate.open()
        wait_for("the pool to be healthy", lambda: pool(stack)["status"] == "healthy")
        assert stack.wait_terminal(waiting)["status"] == "completed"


def test_the_loss_of_orchestratord_changes_nothing_at_a_pool():
    """POOLREG-18020 POOLREG-18030: its workers live on without it; it registers again by itself, with all it holds."""
    with Stack(OFTEN) as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        before = request(stack.pool_url, path="/v2/state").json
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        wait_for("a heartbeat to fail", lambda: any(
            line.startswith("pool_mgr_heartbeats_sent_total{") and 'outcome="failure"' in line and not line.endswith(" 0")
            for line in request(stack.pool_url, path="/metrics").body.decode().splitlines()))
        alone = request(stack.pool_url, path="/v2/state").json
        assert [w["worker_id"] for w in alone["workers"]] == [w["worker_id"] for w in before["workers"]]
        assert alone["workers"][0]["status"] == "ready" and alone["boot_id"] == before["boot_id"]
        stack.start_orchestrator()
        back = wait_for("the pool to be there with its worker", lambda: (p := pool(stack)) and p["workers"] and p)
        assert back["workers"][0]["worker_id"] == before["workers"][0]["worker_id"] and back["gpus"][0]["workers"]
        done = stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        assert done["worker_id"] == before["workers"][0]["worker_id"], "the worker it had"


def test_a_pool_takes_its_leave():
    """POOL-2122 POOLREG-18050: it says so at its end, and is heard; when it comes back it is a pool as before."""
    with Stack() as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        stack.pool.terminate()
        assert stack.pool.wait() == 0
        assert [line["pool_id"] for line in wait_for("the line", lambda: logged(stack, "pool.left"))] == ["pool-1"]
        stack.start_pool()
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"
        assert stack.request("DELETE", "/v2/pools/pool-1", headers=node_headers(stack)).status in (200, 204)


def test_a_pool_is_paired_anew_only_where_its_credential_can_be_kept(tmp_path):
    """The old one ends with the new one, so that nobody is asked for one that would be lost."""
    with SaidServer() as server:
        (tmp_path / "a directory").mkdir()
        for place in ("missing/credential", "a directory"):
            done = llorch("--url", server.url, "pool", "pair", "pool-1", "--out", str(tmp_path / place), state_dir=tmp_path)
            assert done.returncode == 1 and b"IO_ERROR" in done.stderr and server.asked == [], (done.stderr, server.asked)
        llorch("--url", server.url, "pool", "pair", "pool-1", "--out", str(tmp_path / "credential"), state_dir=tmp_path)
        assert [path for path, _, _ in server.asked] == ["/v2/pools/pool-1/credential"]
        assert [entry.name for entry in tmp_path.iterdir()] == ["a directory"], "nothing was answered, and nothing is left"
