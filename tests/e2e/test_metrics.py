"""The metrics of a stack that serves: described, labelled and bounded as docs/guide/metrics.md says."""

import re

from metrics_text import PAGE, documented, parse
from stack import MODEL, Stack, request, wait_for

CALLERS = {"correlation": "caller-correlation", "session": "caller-session", "task": "caller-task",
           "trace": "4bf92f3577b34da6a3ce929d0e0e4736"}


def scrape(stack):
    worker = stack.ready_worker()
    urls = {"orchestratord": stack.url, "pool-managerd": stack.pool_url, "worker-orcd": worker["uri"]}
    texts = {name: request(url, path="/metrics").body.decode() for name, url in urls.items()}
    families = {name: parse(text) for name, text in texts.items()}
    of_pool = families["pool-managerd"]
    told = {name: of_pool.pop(name) for name in list(of_pool) if name.startswith("worker_")}  # its worker's, beside its own
    said = {name: family for name, family in families["worker-orcd"].items() if name.startswith("worker_")}
    assert told.keys() == said.keys() and len(said) > 10
    assert all([labels for labels, _ in told[name].series] == [labels for labels, _ in family.series] for name, family in said.items())
    return texts, families


def serve(stack, count):
    """Jobs that end, are refused and are cancelled, from a caller who names everything."""
    jobs = []
    headers = {"X-Correlation-Id": CALLERS["correlation"], "traceparent": f"00-{CALLERS['trace']}-00f067aa0ba902b7-01"}
    for i in range(count):
        body = {"model": "demo", "prompt": "Once", "max_tokens": 3, "session_id": CALLERS["session"], "task_id": f"{CALLERS['task']}-{i}-{count}"}
        accepted = stack.request("POST", "/v2/tasks", body, headers)
        assert accepted.status == 202, accepted.body
        jobs.append(accepted.json["job_id"])
        assert stack.request("POST", "/v2/tasks", {**body, "task_id": f"x{i}", "model": f"no-such-model-{i}"}, headers).status >= 400
    for job in jobs:
        stack.wait_terminal(job)
    stack.request("DELETE", f"/v2/tasks/{jobs[0]}")
    return jobs


def test_a_worker_counts_what_it_holds_and_did():
    """M0-W-1350: its memory, its jobs by how they ended, their tokens, the time they took, and how long it is up."""
    with Stack() as stack:
        stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
        worker = stack.ready_worker()

        def metrics():
            families = parse(request(worker["uri"], path="/metrics").body.decode())
            outcomes = {labels["outcome"]: value for labels, value in families["worker_requests_total"].series}
            alone = {name: family.series[0][1] for name, family in families.items() if len(family.series) == 1}
            return {**alone, **outcomes}

        before = metrics()
        ended = [stack.wait_terminal(stack.submit(prompt="Once upon a time", max_tokens=n)["job_id"]) for n in (3, 5)]
        cancelled = stack.submit_held(max_tokens=400)
        stack.request("DELETE", f"/v2/tasks/{cancelled}")
        stack.wait_terminal(cancelled)
        late = stack.submit(max_tokens=400, timeout_ms=300)["job_id"]
        stack.wait_terminal(late)
        after = wait_for("the worker to have ended both", lambda: (now := metrics())["worker_slots_free"] == 1 and now)
        assert after["worker_vram_bytes"] == worker["vram_bytes"] > MODEL.stat().st_size
        grown = {name: after[name] - before[name] for name in before}
        assert (grown["success"], grown["error"]) == (2, 0)
        assert grown["cancelled"] + grown["timeout"] == 2 and grown["cancelled"] > 0, "what is late ends here or where it is waited for"
        assert grown["worker_tokens_generated_total"] >= sum(job["tokens_out"] for job in ended) + 1
        assert grown["worker_inference_ms_total"] >= 300, "a held job ran until its time was over"
        wait_for("a second to pass", lambda: metrics()["worker_uptime_seconds"] >= 1)


def series_count(families):
    return sum(len(family.series) for family in families.values())


def test_metrics_are_described_labelled_and_bounded():
    """OC-CORE-1041 OC-METRICS-7102 SYS-10.1.1: labels are those of the page, series no more than its budgets, whatever callers name.

    OC-METRICS-7101#orchestratord OC-METRICS-7101#pool-managerd OC-METRICS-7101#worker"""
    with Stack(settings={"pool-managerd.worker_step_counters": "true"}) as stack:
        jobs = serve(stack, 3)
        page = documented()
        texts, first = scrape(stack)
        budgets = {daemon: int(n) for daemon, n in
                   zip(page, re.search(r"orchestratord has at most (\d+) series, pool-managerd (\d+), the worker (\d+)",
                                       PAGE.read_text(encoding="utf-8")).groups())}
        for daemon, families in first.items():
            for name, family in families.items():
                row = page[daemon].get(name)
                assert row, f"{daemon} has {name}, which {PAGE.name} does not describe"
                assert (row.kind, row.help) == (family.kind, family.help), name
                for labels, _ in family.series:
                    assert labels.keys() - {"le"} == row.labels, name
            assert 10 < series_count(families) <= budgets[daemon], (daemon, series_count(families))
            for what in (*jobs, *CALLERS.values(), "no-such-model", "fairytale"):
                assert what not in texts[daemon], (daemon, what)
        serve(stack, 5)
        _, second = scrape(stack)
        assert {d: series_count(f) for d, f in second.items()} == {d: series_count(f) for d, f in first.items()}, "jobs add no series"
