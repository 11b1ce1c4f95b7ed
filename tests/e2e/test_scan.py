"""What a busy day writes down, searched for all that must not be there. LLORCH_SCAN_REQUESTS sets how many requests make the day."""

import concurrent.futures
import json
import os
import re
import threading

import pytest

from stack import Stack, llorch, request, wait_for
from test_debug_bundle import UUID, unpack
from test_traces import Collector

REQUESTS = int(os.environ.get("LLORCH_SCAN_REQUESTS", "400"))
TOKEN = "scan-token-" + "9c" * 24
WRONG = "scan-wrong-" + "7e" * 24
NEEDLE = "violetneedle"
CALLERS = 8
BEGINNING = 20  # characters of an output that are looked for


@pytest.fixture(scope="module", name="day")
def a_day():
    """Sinks -> their text, and what was asked."""
    collector = Collector()
    jobs, outputs, lock = set(), set(), threading.Lock()
    with Stack({"orchestratord.tracing.otlp_endpoint": collector.url, "orchestratord.worker_slots": "4", "log.level": "debug"}, token=TOKEN) as stack:
        bearer = {"Authorization": f"Bearer {TOKEN}"}

        def one(i):
            headers = {**bearer, "X-Correlation-Id": f"scan-correlation-{i}"} if i % 3 else bearer
            text = f"{NEEDLE}{i} once upon a time"
            kind = i % 10
            if kind == 7:
                request(stack.url, "POST", "/v1/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": text}]}, headers)
            elif kind == 8:
                request(stack.url, "POST", "/v2/tasks", {"model": "demo", "prompt": text, NEEDLE: text}, headers)
            elif kind == 9:
                request(stack.url, "GET", "/v2/tasks", headers={"Authorization": f"Bearer {WRONG}"})
            else:
                path, body = ("/v2/tasks?wait=true", {"prompt": text}) if kind < 5 else ("/v1/completions", {"prompt": text})
                answer = request(stack.url, "POST", path, {"model": "demo", "max_tokens": 8, **body}, headers)
                if answer.status == 200:
                    end = answer.json if kind < 5 else answer.json["llorch"]
                    with lock:
                        jobs.add(end["job_id"])
                        outputs.add(answer.json["text"] if kind < 5 else answer.json["choices"][0]["text"])

        with concurrent.futures.ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(one, range(REQUESTS)))
        wait_for("the spans", lambda: sum(s["name"] == "job" for s in collector.spans()) >= len(jobs))
        metrics = [request(url, path="/metrics", headers=bearer).body.decode() for url in (stack.url,)]
        file = stack.dir / "bundle.tar.gz"
        done = llorch("debug", "bundle", "-o", str(file), state_dir=stack.dir, env={"LLORCH_API_TOKEN": TOKEN, "LLORCH_URL": stack.url})
        assert done.returncode == 0, done.stderr
        bundle = unpack(file)
        metrics += [text for name, text in bundle.items() if "metrics" in name]
        logs = [stack.log("orchestratord"), stack.log("pool-managerd"), *(p.read_text() for p in (stack.dir / "logs").glob("*.log"))]
    spans = json.dumps(collector.bodies)
    collector.close()
    yield {"sinks": {"metrics": "\n".join(metrics), "logs": "\n".join(logs), "traces": spans, "bundle": "\n".join(bundle.values())},
           "jobs": jobs, "outputs": {text for text in outputs if len(text) > BEGINNING}}


def test_the_day_was_busy(day):
    assert len(day["jobs"]) >= 0.6 * REQUESTS and len(day["outputs"]) > 50
    assert day["sinks"]["logs"].count('"stream.ended"') >= len(day["jobs"])
    assert "orchd_tasks_finished_total" in day["sinks"]["metrics"] and len(day["sinks"]["bundle"]) > 10_000
    # Logs are where an operator finds a job: its id stands there, and nowhere else.
    assert all(job in day["sinks"]["logs"] for job in list(day["jobs"])[:100])


def test_no_prompt_output_or_secret_is_anywhere(day):
    """ORCH-1131"""
    for sink, text in day["sinks"].items():
        found = re.search(f".{{60}}(?:{NEEDLE}|{TOKEN}|{WRONG}).{{20}}", text)
        assert found is None, (sink, found)
        starts = {output[:BEGINNING] for output in day["outputs"]}
        found = {text[i:i + BEGINNING] for i in range(len(text)) if text[i:i + BEGINNING] in starts}
        assert found == set(), (sink, found)


def test_no_id_of_a_job_is_in_metrics_traces_or_the_bundle(day):
    for sink in ("metrics", "traces", "bundle"):
        text = day["sinks"][sink]
        found = set(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", text))
        assert found & day["jobs"] == set(), sink
        assert "scan-correlation" not in text, sink
    assert not UUID.search(day["sinks"]["bundle"]), UUID.search(day["sinks"]["bundle"])
