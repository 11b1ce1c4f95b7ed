"""Spans of jobs as a collector gets them, and what happens to jobs when it does not take them."""

import http.server
import json
import threading

import pytest

from metrics_text import parse
from stack import Stack, wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PROMPT = "Once upon a needle of a prompt"


class Collector:
    """Answers POST /v1/traces with `status`; absent: not at all, until it is closed."""

    def __init__(self, status=200):
        self.bodies, self.status, self.released = [], status, threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.bodies.append((self.path, self.headers["Content-Type"], json.loads(body)))
                if collector.status is None:
                    collector.released.wait()
                    return
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for _, _, body in self.bodies for resource in body["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]]

    def close(self):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    running = Collector()
    yield running
    running.close()


def traced(stack, outcome):
    series = parse(stack.request("GET", "/metrics").body.decode())["orchd_traces_total"].series
    return sum(float(value) for labels, value in series if labels["outcome"] == outcome)


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span.get("attributes", [])}


# CLOUD-7032: the exporter is optional.
def test_a_job_is_five_spans_below_its_callers(collector):
    with Stack({"orchestratord.tracing.otlp_endpoint": collector.url}) as stack:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "X-Correlation-Id": "traced"}
        ours = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": PROMPT, "max_tokens": 6, "seed": 7, "session_id": "my-session"}, headers).json["job_id"]
        stack.wait_terminal(ours)
        unsampled = stack.request("POST", "/v2/tasks", {"model": "demo", "prompt": PROMPT, "max_tokens": 2},
                                  {"traceparent": f"00-{'ab' * 16}-{CALLER}-00"}).json["job_id"]
        stack.wait_terminal(unsampled)
        alone = stack.submit(prompt=PROMPT, max_tokens=3)["job_id"]
        stack.wait_terminal(alone)
        wait_for("two jobs to be told", lambda: sum(s["name"] == "job" for s in collector.spans()) == 2)
        wait_for("the count", lambda: traced(stack, "exported") == 2)
        assert traced(stack, "dropped") == 0
        ended = json.loads(stack.wait_lines("orchestratord", '"stream.ended"', alone)[0])
        text = "".join(e.data["t"] for e in stack.read_to_end(stack.submit(prompt=PROMPT, max_tokens=6)["job_id"]) if e.name == "token")
    assert {(path, kind) for path, kind, _ in collector.bodies} == {("/v1/traces", "application/json")}
    mine = [s for s in collector.spans() if s["traceId"] == TRACE]
    assert [s["name"] for s in mine] == ["job", "queue", "dispatch", "prefill", "decode"]
    root = mine[0]
    assert root["parentSpanId"] == CALLER and all(s["parentSpanId"] == root["spanId"] for s in mine[1:])
    assert root["startTimeUnixNano"] == mine[1]["startTimeUnixNano"] and root["endTimeUnixNano"] == mine[-1]["endTimeUnixNano"]
    assert all(a["endTimeUnixNano"] == b["startTimeUnixNano"] for a, b in zip(mine[1:], mine[2:]))
    told = attributes(root)
    assert (told["gen_ai.request.model"], told["gen_ai.usage.output_tokens"], told["llorch.status"]) == ("demo", "6", "completed")
    # A request that comes without a trace begins one, and the log leads from it to the job.
    other = next(s for s in collector.spans() if s["name"] == "job" and s["traceId"] != TRACE)
    assert "parentSpanId" not in other
    assert ended["trace_id"] == other["traceId"]
    everything = json.dumps(collector.bodies)
    for needle in (ours, unsampled, alone, "needle", "my-session", "traced", "ab" * 16, text):
        assert needle not in everything, needle


def test_an_error_is_its_code(collector):
    with Stack({"orchestratord.tracing.otlp_endpoint": collector.url}) as stack:
        stack.gate.hold()
        job = stack.submit(max_tokens=50)["job_id"]
        stack.wait_running(job)
        late = stack.submit(max_tokens=50, deadline_ms=1)["job_id"]
        stack.wait_terminal(late)
        (span,) = wait_for("the span", lambda: [s for s in collector.spans() if s["name"] == "job"])
        stack.gate.open()
    assert span["status"] == {"code": 2}
    assert attributes(span)["error.type"] and attributes(span)["llorch.status"] == "failed"
    assert [s["name"] for s in collector.spans() if s.get("parentSpanId") == span["spanId"]] == ["queue"]


@pytest.mark.parametrize("status", (503, None), ids=("that is overloaded", "that never answers"))
def test_a_collector_holds_up_no_job(collector, status):
    collector.status = status
    with Stack({"orchestratord.tracing.otlp_endpoint": collector.url}) as stack:
        for seed in range(5):
            job = stack.submit(max_tokens=3, seed=seed)["job_id"]
            assert stack.wait_terminal(job)["status"] == "completed"
        wait_for("a request", lambda: collector.bodies)
        assert traced(stack, "exported") == 0
        if status == 503:
            wait_for("the warning", lambda: "traces.failed" in stack.log("orchestratord"))
            collector.status = 200
            wait_for("all jobs to be told", lambda: traced(stack, "exported") == 5, timeout_s=60)
            stack.wait_lines("orchestratord", "traces.recovered")
        collector.released.set()


def test_nobody_is_told_by_default():
    with Stack() as stack:
        stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])
        assert "orchd_traces_total{" not in stack.request("GET", "/metrics").body.decode()


# ORCH-3303: the same narration on a console and in JSON, which is the default.
def test_lines_for_people_say_the_same():
    with Stack({"log.format": "text"}) as stack:
        job = stack.submit(prompt=PROMPT, max_tokens=3)["job_id"]
        stack.wait_terminal(job)
        stack.stop_daemons()
        for daemon in ("orchestratord", "pool-managerd"):
            lines = [line for line in stack.log(daemon).splitlines() if not line.startswith('{"event":"listening"')]
            assert lines and not [line for line in lines if line.startswith("{")], daemon
        (ended,) = [line for line in stack.log("orchestratord").splitlines() if " stream.ended: A job has ended. " in line]
        assert f" job_id={job} " in ended and " tokens_out=3" in ended and " correlation_id=" in ended
        assert "needle" not in stack.log("orchestratord")
        # Workers' logs are files that llorch reads.
        workers = [line for path in (stack.dir / "logs").glob("worker-*.log") for line in path.read_text().splitlines()]
        assert workers and all(line.startswith("{") for line in workers)
