"""Names, help texts, labels and budgets of all metrics that the programs declare, and their descriptions."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from metrics_text import PAGE, documented  # noqa: E402

SOURCES = {"orchestratord": "src/orchestratord/http/metrics.cpp", "pool-managerd": "src/pool_managerd/control_api/metrics.cpp",
           "worker-orcd": "src/worker/metrics.cpp", "worker-adapterd": "src/adapter/http_api.cpp"}
UNITS = ("bytes", "ms", "seconds", "ratio")
# Names of other people's contracts.
GAUGES_IN_TOTAL = {"pool_mgr_gpus_total", "pool_mgr_workers_total"}
COUNTERS_WITHOUT_TOTAL = {"worker_uptime_seconds"}
ACTORS = ("orchestratord", "worker", "workers", "pool", "pools", "job", "jobs", "caller", "client", "clients", "operator", "device", "engine", "queue", "streams",
          "placement", "scheduler", "cache", "optimizer", "nobody")
LABELS = {"component", "engine", "engine_version", "pool_id", "replica_id", "worker_id", "priority", "reason", "outcome", "pinned", "fallback",
          "policy", "device", "algorithm", "code", "class", "status", "stage", "kind", "gpu_id", "category", "quant_kind", "rank", "event", "state", "model_id", "result"}


def declared(daemon):
    """(name, help) of every metric in the source of a daemon, in order."""
    text = (ROOT / SOURCES[daemon]).read_text(encoding="utf-8")
    found = re.findall(r'"([a-z0-9]+(?:_[a-z0-9]+)+)"(?:,|\)\s*\.Help\()\s*((?:"[^"]*"\s*)+)[,)]', text)
    return [(name, "".join(re.findall(r'"([^"]*)"', words))) for name, words in found if " " in words]


def test_the_page_describes_what_is_declared():
    page = documented()
    assert page.keys() == SOURCES.keys()
    for daemon, families in page.items():
        assert {name: row.help for name, row in families.items()} == dict(declared(daemon)), daemon
        assert len(declared(daemon)) == len(families) > 10


def test_names_end_in_their_unit():
    for daemon, families in documented().items():
        for name, row in families.items():
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", name), name
            assert name.endswith("_total") == (row.kind == "counter") or name in GAUGES_IN_TOTAL | COUNTERS_WITHOUT_TOTAL, name
            stem = name.removesuffix("_total")
            in_the_middle = [unit for unit in UNITS if unit in stem.split("_")[:-1]]
            assert not in_the_middle, f"{name}: the unit stands last"
            assert row.kind != "histogram" or stem.endswith(UNITS), f"{name}: a distribution has a unit"
            assert not re.search(r"_(milliseconds|msec|sec|kb|mb|kib|mib|percent)$", stem), name


def test_help_says_who_does_what():
    for families in documented().values():
        for name, row in families.items():
            assert re.match(r"[A-Z1]", row.help) and row.help.endswith(".") and len(row.help.split()) > 3, (name, row.help)
            assert any(re.search(rf"(?i)\b{actor}\b", row.help) for actor in ACTORS), (name, row.help)


def test_labels_are_no_ids():
    for families in documented().values():
        for name, row in families.items():
            assert row.labels <= LABELS, (name, row.labels - LABELS)
    assert not [label for label in LABELS if re.search("job|task|session|correlation|trace|tenant|user|peer", label)]
    # A name that an operator gave, and only where it says what is offered.
    assert {name for families in documented().values() for name, row in families.items() if "model_id" in row.labels} == {"model_state"}


def test_budgets_are_those_of_the_program():
    source = (ROOT / SOURCES["orchestratord"]).read_text(encoding="utf-8")
    listed = source[source.index("kBudgets[] = {"):]
    code = re.findall(r'\{"([a-z_]+)",\s*(\d+)\}', listed[:listed.index(";")])
    page = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert code == page and len(code) > 5
