"""Dashboard and alerts name metrics and labels that the daemons have, and nothing else."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from metrics_text import documented  # noqa: E402

ALERTS = ROOT / "packaging/observability/alerts.yml"
DASHBOARD = ROOT / "packaging/observability/dashboard.json"
WORDS = {"sum", "by", "rate", "increase", "histogram_quantile", "and", "or", "le"}
GUIDE = ROOT / "docs/guide/operations.md"
SOURCES = [ROOT / path for path in ("src/orchestratord/http/metrics.cpp", "src/pool_managerd/control_api/metrics.cpp", "src/worker/metrics.cpp", "src/base/error_code.h")]


def described():
    """Name of a series -> the sets of labels it comes with, one for each daemon that has it."""
    out = {"up": [{"job", "instance"}]}  # Prometheus' own, of each target
    for families in documented().values():
        for name, row in families.items():
            if row.kind == "histogram":
                for suffix in ("_bucket", "_sum", "_count"):
                    out.setdefault(name + suffix, []).append(row.labels | ({"le"} if suffix == "_bucket" else set()))
            else:
                out.setdefault(name, []).append(row.labels)
    return out


def faults(expression, shown=()):
    """What is wrong with an expression, and with the labels shown beside it."""
    known, found, labels = described(), [], set(shown)
    labels |= {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in group.split(",")}
    bare = re.sub(r"\bby \([^)]*\)", "", re.sub(r"\[[^\]]*\]", "", expression))
    # Of a sum by some labels nothing else is left to show.
    series = [(name, matchers) for name, matchers in re.findall(r"\b([a-z_][a-z0-9_]*)(?:\{([^}]*)\})?", re.sub(r'(?<!=)"[^"]*"', "", bare))
              if name not in WORDS]
    if not series:
        found.append("it names no metric")
    for name, matchers in series:
        if name not in known:
            found.append(f"there is no {name}")
            continue
        wanted = labels | set(re.findall(r"([a-z_]+)\s*[=!]", matchers))
        if not any(wanted <= have for have in known[name]):
            found.append(f"{name} has not all of {sorted(wanted)}")
        for value in re.findall(r'[=!]~?"([^"]*)"', matchers):
            found += [f"{name}: nothing is {word}" for word in filter(None, value.split("|")) if not is_said(name, word)]
    return found


def is_said(name, word):
    if name == "up":
        return f"job_name: {word}\n" in GUIDE.read_text(encoding="utf-8")
    return any(f'"{word}"' in path.read_text(encoding="utf-8") for path in SOURCES)


def rules():
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def targets():
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])


def test_a_wrong_expression_is_found():
    assert faults("sum by (status) (orchd_pools)") == []
    assert faults("orchd_pool") == ["there is no orchd_pool"]
    assert faults('orchd_pools{job_id="1"}') and faults("sum by (pool_id) (orchd_pools)") and faults("orchd_pools", ["pool_id"])
    assert faults("rate(orchd_queue_wait_time_ms[5m])") and faults("sum by (le) (rate(orchd_tasks_finished_total[5m]))")
    assert faults('up{job="llama-orch"}') == [] and faults('up{job="node"}') == ["up: nothing is node"]
    assert faults('orchd_pools{status="ill"}') == ["orchd_pools: nothing is ill"] and faults("1 > 0") == ["it names no metric"]


def test_rules_name_what_exists_and_say_what_to_do():
    assert len({rule["alert"] for rule in rules()}) == len(rules()) > 8
    for rule in rules():
        texts = rule["annotations"]
        shown = {label for text in texts.values() for label in re.findall(r"\$labels\.(\w+)", text)}
        assert faults(rule["expr"], shown) == [], rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical") and texts.keys() == {"summary", "description"}, rule["alert"]
        assert texts["description"].endswith(".") and rule["alert"].startswith("Llorch")


def test_panels_name_what_exists():
    listed = list(targets())
    assert len(listed) > 20
    for title, expression, shown in listed:
        assert faults(expression, shown) == [], title


def test_panels_do_not_overlap():
    taken = set()
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        box = panel["gridPos"]
        cells = {(x, y) for x in range(box["x"], box["x"] + box["w"]) for y in range(box["y"], box["y"] + box["h"])}
        assert box["x"] + box["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_reads_the_rules(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    done = subprocess.run([promtool, "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # Grafana fills $__rate_interval in; what a panel asks is a rule like any other.
    asked = [{"record": f"panel:{i}", "expr": expr.replace("$__rate_interval", "5m")} for i, (_, expr, _) in enumerate(targets())]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    done = subprocess.run([promtool, "check", "rules", str(panels)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
