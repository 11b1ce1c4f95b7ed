"""Two pool managers on one machine: where jobs run, and what is said when they cannot run where they want."""

import json
import signal
import tempfile

import pytest

from stack import Stack, llorch, wait_for


class TwoPools(Stack):
    """A second pool manager beside the first, in a state directory of its own."""

    def __init__(self):
        super().__init__(settings={"devices.cpu_memory_bytes": str(1 << 30)})
        self.second = None

    def start(self):
        super().start()
        self.start_second()
        return self

    def start_second(self):
        self.second = Second(self)
        wait_for("the second pool to register", lambda: len(self.healthy()) == 2)

    def healthy(self):
        return {p["pool_id"] for p in self.pools() if p["status"] == "healthy"}

    def stop(self):
        if self.second:
            self.second.stop()
        super().stop()


class Second(Stack):
    def __init__(self, first):
        directory = tempfile.TemporaryDirectory(prefix="llorch-e2e-second-")
        super().__init__(settings={**first.settings, "pool-managerd.pool_id": "pool-2"}, state_dir=directory.name)
        self._temporary = directory
        self.bind = first.bind
        paired = llorch("--url", first.url, "pool", "pair", "pool-2", "--out", str(self.credential_file), state_dir=self.dir)
        assert paired.returncode == 0, paired.stderr
        self.start_pool()


@pytest.fixture(scope="module")
def pools():
    with TwoPools() as running:
        yield running


def run(stack, **placement):
    job = stack.submit(max_tokens=8, placement=placement)
    ended = stack.wait_terminal(job["job_id"])
    assert ended["status"] == "completed", ended
    return ended


# ORCH-3903, OC-CTRL-2013, ORCH-3010, AH-1007#pinned, OC-CORE-1019#pinned: pinned to either pool, the job runs there, and the answer is the same.
# SYS-4.5.1#several-pools, SYS-8.4.1: both registered while the orchestrator was running.
def test_pin_runs_where_it_is_told(pools):
    first, second = (run(pools, mode="pin", pin_pool_id=p) for p in ("pool-1", "pool-2"))
    assert (first["pool_id"], second["pool_id"]) == ("pool-1", "pool-2")
    assert first["placement"]["pin_pool_id"] == "pool-1"
    assert first["receipt"]["output_sha256"] == second["receipt"]["output_sha256"]


# ORCH-3962: what a decision saw, which rules it followed, and what came of it; on the pool that was asked for and on another one.
def test_a_decision_says_what_led_to_it(pools):
    def decision(**placement):
        job = run(pools, **placement)["job_id"]
        return json.loads(pools.wait_lines("orchestratord", '"schedule.decided"', job)[-1])

    pinned = decision(mode="pin", pin_pool_id="pool-2")
    assert (pinned["selected_pool_id"], pinned["pinned"], pinned["fallback_used"]) == ("pool-2", True, False), pinned
    assert 1 <= pinned["candidates_feasible"] <= pinned["candidates_considered"] and "model" in pinned["filters_applied"].split(",")
    assert "tie_breakers_applied" in pinned
    elsewhere = decision(mode="prefer", prefer_pools=["no-such-pool"])
    assert (elsewhere["pinned"], elsewhere["fallback_used"]) == (False, True) and "prefer" in elsewhere["filters_applied"].split(",")


# ORCH-3903: prefer and avoid; the required device is one that the pool has.
def test_prefer_avoid_and_mask(pools):
    assert run(pools, mode="prefer", prefer_pools=["pool-2"])["pool_id"] == "pool-2"
    assert run(pools, avoid_pools=["pool-2"])["pool_id"] == "pool-1"
    assert run(pools, mode="prefer", prefer_pools=["no-such-pool"])["status"] == "completed"
    assert run(pools, mode="pin", pin_pool_id="pool-2", require_device_mask="cpu")["pool_id"] == "pool-2"


# ORCH-3903, OC-CTRL-2014, AH-1007#typed-error, OC-CORE-1019#typed-error: what no pool can meet is refused before anything is accepted.
def test_unmeetable_wishes_are_refused(pools):
    def refuse(status, code, **placement):
        answer = pools.submit(expect=status, placement=placement)["error"]
        assert answer["code"] == code, answer
        return answer

    assert refuse(400, "INVALID_PARAMS", mode="pin", pin_pool_id="pool-9")["details"]["field"] == "placement.pin_pool_id"
    refuse(400, "INVALID_PARAMS", require_device_mask="0,1")
    refuse(400, "INVALID_PARAMS", mode="prefer", prefer_pools=["pool-9"], allow_fallback=False)
    refuse(400, "INVALID_PARAMS", mode="pin")
    refuse(400, "INVALID_PARAMS", mode="pin", pin_pool_id="pool-1", avoid_pools=["pool-1"])
    refuse(400, "INVALID_PARAMS", mode="pin", pin_pool_id="pool-1", unheard_of=True)


def test_the_command_line_says_the_same(pools):
    def llorch_run(*flags):
        return llorch("--url", pools.url, "--json", "run", "demo", "Once", "--max-tokens", "4", *flags, state_dir=pools.dir)

    done = llorch_run("--pin-pool", "pool-2")
    assert done.returncode == 0, done.stderr
    assert b"pool-2" in llorch("--url", pools.url, "--json", "show", _job_id(done), state_dir=pools.dir).stdout
    assert llorch_run("--avoid-pool", "pool-1", "--avoid-pool", "pool-2").returncode != 0
    assert llorch_run("--no-fallback").returncode == 2


def _job_id(done):
    return json.loads(done.stdout)["job_id"]


# ORCH-3903, ORCH-3024: a pinned job accepted before a crash of the orchestrator still runs in its pool only.
def test_a_pinned_job_keeps_its_pool_over_a_restart(pools):
    pools.second.pool.send_signal(signal.SIGSTOP)
    try:
        waiting = [pools.submit(max_tokens=8, placement={"mode": "pin", "pin_pool_id": "pool-2"})["job_id"] for _ in range(3)]
        pools.orchestrator.kill()
        pools.orchestrator.wait()
        pools.start_orchestrator()
    finally:
        pools.second.pool.send_signal(signal.SIGCONT)
    for job in waiting:
        ended = pools.wait_terminal(job)
        assert (ended["status"], ended["pool_id"]) == ("completed", "pool-2"), ended
