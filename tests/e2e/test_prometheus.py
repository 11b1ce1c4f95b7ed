"""A Prometheus of its own reads a stack that serves: every rule evaluates, every panel of the dashboard has an answer."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse

import pytest

from stack import OFTEN_HEARD, REPO, Stack, request, wait_for

PROMETHEUS = shutil.which("prometheus")
OBSERVABILITY = REPO / "packaging/observability"
# Panels of what has not happened yet.
MAY_BE_EMPTY_OF = ("worker_failures", "status=\"failed\"", "rejected", "reason=", "dropped", "errors", "timeouts", "retries", "drain", "optimizer",
                   "backpressure", "canceled", "traces")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module", name="prometheus")
def running_prometheus(tmp_path_factory):
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed (Debian: prometheus)")
    directory = tmp_path_factory.mktemp("prometheus")
    with Stack(OFTEN_HEARD) as stack:
        targets = [stack.url.removeprefix("http://"), stack.pool_url.removeprefix("http://")]
        (directory / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(OBSERVABILITY / "alerts.yml")],
            "scrape_configs": [{"job_name": "llama-orch", "static_configs": [{"targets": targets}]}]}))
        address = f"127.0.0.1:{free_port()}"
        process = subprocess.Popen([PROMETHEUS, f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}",
                                    f"--web.listen-address={address}"], stdout=subprocess.DEVNULL, stderr=(directory / "log").open("wb"))
        try:
            def ask(path, **arguments):
                return request(f"http://{address}", path=f"/api/v1/{path}?{urllib.parse.urlencode(arguments)}").json["data"]

            def up():
                assert process.poll() is None, (directory / "log").read_text()
                try:
                    found = ask("targets")["activeTargets"]
                except OSError:
                    return None
                return len(found) == 2 and all(one["health"] == "up" for one in found)

            for seed in range(3):
                stack.wait_terminal(stack.submit(max_tokens=8, seed=seed)["job_id"])
            wait_for("both targets to be up", up)
            yield ask
        finally:
            process.terminate()
            process.wait()


def test_every_rule_evaluates_and_none_fires(prometheus):
    def evaluated():
        rules = [rule for group in prometheus("rules")["groups"] for rule in group["rules"]]
        return rules if rules and all(rule["health"] != "unknown" for rule in rules) else None

    rules = wait_for("every rule to be evaluated", evaluated)
    assert len(rules) > 10
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def test_every_panel_has_an_answer(prometheus):
    asked = [(panel["title"], target["expr"].replace("$__rate_interval", "1m"))
             for panel in json.loads((OBSERVABILITY / "dashboard.json").read_text(encoding="utf-8"))["panels"] for target in panel.get("targets", ())]
    assert len(asked) > 20

    def empty():
        return [(title, expr) for title, expr in asked if not any(word in expr for word in MAY_BE_EMPTY_OF)
                and not prometheus("query", query=expr, time=time.time())["result"]]

    wait_for("all panels to be filled", lambda: not empty(), every_s=0.2)
    for title, expr in asked:
        assert prometheus("query", query=expr)["resultType"] in ("vector", "scalar"), title
