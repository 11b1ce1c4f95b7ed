"""What the daemons write down: JSON lines with stable codes that lead from a job to all who worked on it."""

import json
import os
import signal

from stack import Stack, wait_for


def lines(text):
    """What was logged. The one line on standard output that says where a daemon listens is for its starter."""
    entries = [json.loads(line) for line in text.splitlines() if line]
    return [e for e in entries if not (e.get("event") == "listening" and "ts" not in e)]


def test_logs_and_metrics_are_for_machines():
    """SYS-8.3.4 SYS-10.2.1 SYS-10.2.2: every line of every daemon is a JSON object with time, level, component and event code; crash, retry, timeout and
    cancel have codes of their own and the correlation id of their job.

    ORCH-3027: what a job was, where it ran and how long it took is in the lines of its admission and its end."""
    with Stack() as stack:
        done = stack.submit(max_tokens=3, session_id="a-session")["job_id"]
        stack.wait_terminal(done)
        stack.gate.hold()
        retried = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": 400, "on_disconnect": "resume"},
                                headers={"X-Correlation-Id": "corr-retried"}).json["job_id"]
        stack.gate.let_pass(1)
        wait_for("the job to run", lambda: stack.job(retried)["tokens_out"] > 0)
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        stack.gate.open()
        stack.wait_terminal(retried)
        stack.gate.hold()
        late = stack.submit(max_tokens=400, timeout_ms=500)["job_id"]
        stack.wait_terminal(late)
        cancelled = stack.submit(max_tokens=400)["job_id"]
        stack.request("DELETE", f"/v2/tasks/{cancelled}")
        stack.wait_terminal(cancelled)
        stack.stop_daemons()  # every line is written
        logs = {"orchestratord": lines(stack.log("orchestratord")), "pool-managerd": lines(stack.log("pool-managerd"))}
        logs["worker-orcd"] = [entry for path in (stack.dir / "logs").glob("worker-*.log")
                               for entry in lines(path.read_text(errors="replace"))]
        for component, entries in logs.items():
            assert entries
            for entry in entries:
                assert {"ts", "level", "component", "event"} <= entry.keys(), entry
                assert entry["component"] == component and entry["v"] == 1
                assert entry["level"] in ("error", "warn", "info", "debug", "trace"), entry

        def events_of(job):
            return {e["event"]: e for e in logs["orchestratord"] if e.get("job_id") == job}

        assert {"admission.accepted", "dispatch.sent", "stream.started", "stream.ended"} <= events_of(done).keys()
        for job, code in ((retried, "job.retry"), (late, "job.timeout"), (cancelled, "job.cancelled")):
            assert code in events_of(job), events_of(job).keys()
        assert all(e["correlation_id"] == "corr-retried" for e in logs["orchestratord"] if e.get("job_id") == retried)
        assert "worker.gone" in {e["event"] for e in logs["orchestratord"]}
        admitted, ended = events_of(done)["admission.accepted"], events_of(done)["stream.ended"]
        assert admitted["queue_position"] >= 0 and admitted["predicted_start_ms"] >= 0
        assert admitted["session_id"] == ended["session_id"] == "a-session"
        for field in ("engine", "engine_version", "pool_id", "replica_id", "model_digest", "quant", "ctx", "queue_time_ms",
                      "decode_time_ms", "tokens_in", "tokens_out"):
            assert ended[field] not in ("", None), field
