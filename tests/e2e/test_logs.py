"""What the daemons write down: JSON lines with stable codes that lead from a job to all who worked on it."""

import fcntl
import itertools
import json
import os
import re
import signal
import threading

from stack import MODEL, Stack, request, wait_for


def lines(text):
    """What was logged. The one line on standard output that says where a daemon listens is for its starter."""
    entries = [json.loads(line) for line in text.splitlines() if line]
    return [e for e in entries if not (e.get("event") == "listening" and "ts" not in e)]


def test_logs_and_metrics_are_for_machines():
    """SYS-8.3.4 SYS-10.2.1 SYS-10.2.2: every line of every daemon is a JSON object with time, level, component and event code; crash, retry, timeout and
    cancel have codes of their own and the correlation id of their job.

    ORCH-3027: what a job was, where it ran and how long it took is in the lines of its admission and its end.

    NARR-7001 NARR-7002 NARR-7003 NARR-7004 NARR-7005: and says by whom, in which version.

    HME-030 M0-W-1900: lines of one job, of all daemons, have its correlation id; a worker tells its start, its load, that it is ready, each run and its end."""
    with Stack() as stack:
        done = stack.submit(max_tokens=3, session_id="a-session")["job_id"]
        stack.wait_terminal(done)
        stack.gate.hold()
        retried = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": 400, "seed": 7, "on_disconnect": "resume"},
                                headers={"X-Correlation-Id": "corr-retried"}).json["job_id"]
        stack.gate.let_pass(1)
        wait_for("the job to run", lambda: stack.job(retried)["tokens_out"] > 0)
        wait_for("the worker to have written its line, which a SIGKILL would take",  # it writes behind its answers
                 lambda: any("corr-retried" in path.read_text(errors="replace") for path in (stack.dir / "logs").glob("worker-*.log")))
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
                assert re.fullmatch(re.escape(component) + r"@\d+\.\d+\.\d+", entry["emitted_by"]), entry
                assert entry["level"] in ("error", "warn", "info", "debug", "trace"), entry

        def events_of(job):
            return {e["event"]: e for e in logs["orchestratord"] if e.get("job_id") == job}

        assert {"admission.accepted", "dispatch.sent", "stream.started", "stream.ended"} <= events_of(done).keys()
        for job, code in ((retried, "job.retry"), (late, "job.timeout"), (cancelled, "job.cancelled")):
            assert code in events_of(job), events_of(job).keys()
        assert all(e["correlation_id"] == "corr-retried" for e in logs["orchestratord"] if e.get("job_id") == retried)
        assert "worker.gone" in {e["event"] for e in logs["orchestratord"]}
        assert {"startup", "model_load_start", "model_load_progress", "model_load_complete", "ready", "execute_start", "execute_end",
                "shutdown"} <= {e["event"] for e in logs["worker-orcd"]}
        runs = [e for e in logs["worker-orcd"] if e["event"] == "execute_start" and e["correlation_id"] == "corr-retried"]
        assert len(runs) == 2, "once on each worker"
        admitted, ended = events_of(done)["admission.accepted"], events_of(done)["stream.ended"]
        assert admitted["queue_position"] >= 0 and admitted["predicted_start_ms"] >= 0
        assert admitted["session_id"] == ended["session_id"] == "a-session"
        for field in ("engine", "engine_version", "pool_id", "replica_id", "model_digest", "quant", "ctx", "queue_time_ms",
                      "decode_time_ms", "tokens_in", "tokens_out"):
            assert ended[field] not in ("", None), field


def test_a_muted_stack_works_and_says_nothing():
    """NARR-1002: neither does one that would only say that it ends."""
    for level in ("fatal", "mute"):
        with Stack(settings={"log.level": level}) as stack:
            assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"
            assert stack.request("POST", "/v2/tasks", {"model": "nobody", "prompt": "Once"}).code == "MODEL_NOT_FOUND"
            os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
            wait_for("the worker to go", lambda: not stack.workers())
            stack.stop_daemons()
            texts = [stack.log("orchestratord"), stack.log("pool-managerd"), *(path.read_text() for path in (stack.dir / "logs").glob("worker-*.log"))]
        assert not any(lines(text) for text in texts), (level, texts)


def test_a_token_is_no_line_and_no_count():
    """ORCH-3460: at the finest level a job of forty tokens leaves as many lines as one of four, and while it runs nothing counts its tokens."""
    with Stack(settings={"log.level": "trace"}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])  # the worker has started

        def counted():
            return re.findall(r"^(tokens_out_total\{.*)$", stack.request("GET", "/metrics").body.decode(), re.M)

        for tokens in (4, 40):
            before = counted()
            correlation = {"X-Correlation-Id": f"of-{tokens}"}
            stack.gate.hold()
            job = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": tokens, "seed": 7, "on_disconnect": "resume"}, correlation).json["job_id"]
            stack.wait_running(job)
            stack.gate.let_pass(tokens - 1)
            said = itertools.islice((event for event in stack.events(job) if event.name == "token"), tokens - 1)
            assert len(list(said)) == tokens - 1 and counted() == before
            stack.gate.open()
            assert stack.wait_terminal(job)["tokens_out"] == tokens
            assert counted() != before
        stack.stop_daemons()
        of = {tokens: [(component, entry["event"]) for component, entries in logs_of(stack).items() for entry in entries
                       if entry["correlation_id"] == f"of-{tokens}"] for tokens in (4, 40)}
    assert sorted(of[4]) == sorted(of[40]) and len(of[4]) > 4


def test_what_a_caller_names_breaks_no_line():
    """NARR-4002 NARR-4005: line breaks and tabs in it are blanks in the log, and characters without a width are left out."""
    name = "named\tby\r\na\u200bcall\ufeffer\u2060"
    with Stack() as stack:
        answer = stack.request("POST", "/v2/tasks", {"model": f"file:{MODEL.parent}/{name}.gguf", "prompt": "Once", "max_tokens": 2})
        assert answer.code == "MODEL_NOT_FOUND", answer.body
        stack.stop_daemons()
        said = [entry["model_ref"] for entry in lines(stack.log("orchestratord")) if "named" in entry.get("model_ref", "")]
    assert said == [f"file:{MODEL.parent}/named by  acaller.gguf"]


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def logs_of(stack):
    """Component -> its entries, of a stack that has stopped."""
    worker = [entry for path in (stack.dir / "logs").glob("worker-*.log") for entry in lines(path.read_text(errors="replace"))]
    return {"orchestratord": lines(stack.log("orchestratord")), "pool-managerd": lines(stack.log("pool-managerd")), "worker-orcd": worker}


def test_one_trace_leads_through_all_daemons():
    """The trace of a caller is in the lines of its job in every daemon, whichever API it came by, and in no metric."""
    with Stack() as stack:
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=opaque", "X-Correlation-Id": "traced"}
        job = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": 3}, headers).json["job_id"]
        stack.wait_terminal(job)
        gateways = {
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2},
            "/v1/completions": {"prompt": "Once", "max_tokens": 2},
            "/v1/messages": {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 2},
            "/api/generate": {"prompt": "Once", "stream": False, "raw": True, "options": {"num_predict": 2}},
        }
        traces = {}
        for i, (path, body) in enumerate(gateways.items()):
            traces[path] = f"{i + 1:032x}"
            traced = {"traceparent": f"00-{traces[path]}-00f067aa0ba902b7-00"}
            traces[path, "status"] = stack.request("POST", path, {"model": "demo-f16", **body}, traced).status
        metrics = [stack.request("GET", "/metrics").body.decode(), request(stack.pool_url, path="/metrics").body.decode()]
        metrics += [request(worker["uri"], path="/metrics").body.decode() for worker in stack.workers()]
        stack.stop_daemons()
        logs = logs_of(stack)
    ended = next(e for e in logs["orchestratord"] if e["event"] == "stream.ended" and e["job_id"] == job)
    assert ended["trace_id"] == TRACE and ended["correlation_id"] == "traced"
    for component, event in (("orchestratord", "dispatch.sent"), ("pool-managerd", "worker_started"), ("worker-orcd", "execute_start"),
                             ("worker-orcd", "execute_end")):
        found = [e for e in logs[component] if e["event"] == event and e["correlation_id"] == "traced"]
        assert found and all(e["trace_id"] == TRACE for e in found), (component, event)
    for path in gateways:
        if traces[path, "status"] == 200:
            for component in ("orchestratord", "worker-orcd"):
                assert any(e.get("trace_id") == traces[path] for e in logs[component]), (path, component)
    assert sum(traces[path, "status"] == 200 for path in gateways) >= 2, traces
    assert not [text for text in metrics if TRACE in text or "trace" in text]


def test_without_a_trace_no_line_has_one():
    """A client that sends none, or a malformed one, which is ignored as if it had not come."""
    with Stack() as stack:
        for headers in ({}, {"tracestate": "vendor=opaque"}, {"traceparent": TRACEPARENT.upper()}, {"traceparent": "00-" + "0" * 32 + "-00f067aa0ba902b7-01"},
                        {"traceparent": TRACEPARENT[:-1]}, {"traceparent": TRACEPARENT.replace("00-", "ff-", 1)}, {"traceparent": TRACEPARENT + "-x"}):
            answer = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": "Once", "max_tokens": 2}, headers)
            assert answer.status == 202, answer.body
            stack.wait_terminal(answer.json["job_id"])
        stack.stop_daemons()
        for component, entries in logs_of(stack).items():
            assert entries and not [e for e in entries if "trace_id" in e], component


class StalledStack(Stack):
    """Its daemons log into pipes that are full and that nobody reads until release()."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.readers, self.released = {}, {}

    def _output(self, name):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"." * 4095 + b"\n")
        self.readers[name] = open(reader, "rb")
        return open(writer, "wb", buffering=0)

    def release(self, name):
        """Reads until the daemon has ended; then join() and .text."""
        def read():
            thread.text = self.readers[name].read().decode().partition("\n")[2]

        thread = threading.Thread(target=read)
        thread.start()
        return thread


def dropped_lines(metrics):
    return int(re.search(r"log_lines_dropped_total\{[^}]*\} (\d+)", metrics)[1])


def test_a_stalled_log_pipe_holds_up_nobody():
    """Nobody reads what the daemons log: they start, take jobs, stream them to their ends and answer. No line is lost either,
    as long as the queue holds them: all of them come, in order, once somebody reads."""
    with StalledStack() as stack:
        jobs = [stack.submit(max_tokens=40)["job_id"] for _ in range(20)]
        for job in jobs:
            assert stack.read_to_end(job)[-1].name == "end"
        assert dropped_lines(stack.request("GET", "/metrics").body.decode()) == 0
        logs = {name: stack.release(name) for name in stack.readers}
        stack.stop_daemons()
        for thread in logs.values():
            thread.join()
        events = [e for e in lines(logs["orchestratord"].text) if e.get("job_id")]
        named = {event: [e["job_id"] for e in events if e["event"] == event] for event in ("admission.accepted", "stream.ended")}
        assert named["admission.accepted"] == jobs
        assert sorted(named["stream.ended"]) == sorted(jobs)  # a job that is retried may end behind a later one
        assert lines(logs["orchestratord"].text)[0]["event"] == "startup"
        assert "shutdown" in [e["event"] for e in lines(logs["pool-managerd"].text)]


def test_at_info_a_job_is_one_line():
    """Neither a request nor the way of a job is a line at info: each job leaves the one of its end, which says everything countable."""
    with Stack(settings={"log.level": "info"}, token="a-token-of-the-operator-of-this-stack") as stack:
        stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])  # the worker has started
        jobs = [stack.submit(max_tokens=4)["job_id"] for _ in range(10)]
        for job in jobs:
            stack.wait_terminal(job)
        stack.stop_daemons()
        entries = lines(stack.log("orchestratord"))
        for job in jobs:
            assert [e["event"] for e in entries if e.get("job_id") == job] == ["stream.ended"]
        assert not [e for e in entries if e["event"] == "auth_success"]
        worker = [e for path in (stack.dir / "logs").glob("worker-*.log") for e in lines(path.read_text())]
        assert not [e for e in worker if e["event"].startswith("execute_")]
