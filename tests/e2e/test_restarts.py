"""What a worker that is lost again and again costs: the next start waits longer each time, and after so many it waits until the
window is over; a job that loses its workers is tried so often and no more."""

import datetime
import json
import os
import signal

from stack import Stack, wait_for


def lines(stack, event):
    return [json.loads(line) for line in stack.log("orchestratord").splitlines() if f'"{event}"' in line]


def moment(line):
    """When it was logged, in seconds."""
    return datetime.datetime.fromisoformat(line["ts"].replace("Z", "+00:00")).timestamp()


def lose_worker(stack):
    """Kills the one worker and waits until orchestratord knows."""
    worker = wait_for("the worker", stack.ready_worker)
    before = len(lines(stack, "worker.gone"))
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for("orchestratord to know", lambda: len(lines(stack, "worker.gone")) > before)


def test_workers_that_crash_are_started_ever_more_slowly_and_then_not_at_all():
    """OC-POOL-3010#backoff OC-POOL-3011 ORCH-3053#storms: the first crash costs nothing, each further one doubles the pause before the next
    start, and after the limit no worker is started before the window is over; the job that waits says why.

    WORKER-4963"""
    settings = {"orchestratord.retry.initial_delay_ms": "200", "orchestratord.retry.jitter": "false",
                "orchestratord.restart.worker_crashes_max": "3", "orchestratord.restart.worker_crash_window_ms": "3600000"}
    with Stack(settings) as stack:
        for _ in range(4):
            assert stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])["status"] == "completed"
            lose_worker(stack)
        wait_for("the pauses to be logged", lambda: len(lines(stack, "worker.crashes")) == 3)
        pauses = [line["backoff_ms"] for line in lines(stack, "worker.crashes")]
        assert pauses[:2] == [200, 400] and pauses[2] > 600_000, pauses
        crashes, starts = ([moment(line) for line in lines(stack, event)] for event in ("worker.crashes", "worker.start"))
        assert len(starts) == 4, "each of them was started for a job, none by itself"
        for crash, pause in zip(crashes[:2], (0.2, 0.4)):
            # The pause is measured by another clock than that of the log.
            assert min(start for start in starts if start > crash) - crash > pause - 0.05
        waiting = stack.submit(max_tokens=1)["job_id"]
        reason = wait_for("its reason", lambda: (why := stack.job(waiting).get("reason")) and why["code"] == "WAITING_FOR_START_RETRY" and why)
        assert "crashed (WORKER_RESET)" in reason["human"], reason
        assert stack.job(waiting)["status"] == "queued" and stack.workers() == []
        assert len(lines(stack, "worker.start")) == 4


def run_and_lose(stack, job, attempt):
    """Waits for this run of a job and kills its worker."""

    def runs():
        now = stack.job(job)
        assert now["attempts"] <= attempt, f"an attempt was spent on a worker that had ended: {now}"
        return now if now["status"] == "running" and now["attempts"] == attempt else None

    at = wait_for("the job to run", runs)
    worker = next(w for w in stack.workers() if w["worker_id"] == at["worker_id"])
    os.kill(worker["pid"], signal.SIGKILL)


def test_a_job_is_tried_as_often_and_as_slowly_as_the_policy_says():
    """SYS-8.3.3: pauses that double up to the longest one, each logged with its attempt; after the last attempt one stable code."""
    settings = {"orchestratord.retry.initial_delay_ms": "50", "orchestratord.retry.max_delay_ms": "150", "orchestratord.retry.jitter": "false",
                "orchestratord.retry.max_attempts": "4", "orchestratord.restart.worker_crashes_max": "0"}
    with Stack(settings) as stack:
        job = stack.submit_held(max_tokens=20)
        for attempt in range(1, 5):
            run_and_lose(stack, job, attempt)
        ended = stack.wait_terminal(job)
        assert (ended["status"], ended["error"]["code"], ended["attempts"]) == ("failed", "RETRY_EXHAUSTED", 4), ended
        assert ended["error"]["details"]["attempts"] == 4 and ended["error"]["details"]["last_code"]
        told = [json.loads(line) for line in stack.wait_lines("orchestratord", '"job.retry"', job, least=3)]
        assert [(line["attempt"], line["backoff_ms"]) for line in told] == [(1, 50), (2, 100), (3, 150)]
        assert all(line["code"] for line in told)
        assert sum(event.name in ("end", "error") for event in stack.read_to_end(job)) == 1


def test_a_job_is_tried_once_where_the_policy_is_off():
    """SYS-8.3.3: then the loss of its worker is its end, with the code of the loss."""
    with Stack({"orchestratord.retry.enabled": "false"}) as stack:
        job = stack.submit_held(max_tokens=20)
        run_and_lose(stack, job, 1)
        ended = stack.wait_terminal(job)
        assert ended["status"] == "failed" and ended["attempts"] == 1 and ended["error"]["code"] != "RETRY_EXHAUSTED", ended
        assert not lines(stack, "job.retry")
