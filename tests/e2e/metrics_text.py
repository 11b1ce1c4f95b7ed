"""Metrics as daemons print them, and as docs/guide/metrics.md describes them."""

import dataclasses
import re

from stack import REPO

PAGE = REPO / "docs/guide/metrics.md"


@dataclasses.dataclass
class Family:
    name: str
    kind: str = ""
    help: str = ""
    labels: frozenset = frozenset()
    series: list = dataclasses.field(default_factory=list)  # (labels, value)


def documented():
    """Daemon -> name -> Family, from the tables of the page."""
    out, daemon = {}, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            daemon = out.setdefault(line[3:], {})
        if row := re.fullmatch(r"\| `([a-z0-9_]+)` \| (counter|gauge|histogram) \| (.*) \| (.+) \|", line):
            assert row[1] not in daemon, f"{row[1]} stands twice"
            daemon[row[1]] = Family(row[1], row[2], row[4], frozenset(re.findall(r"`([a-z_]+)`", row[3])))
    return {name: families for name, families in out.items() if families}


def parse(text):
    """Name -> Family of the text format 0.0.4."""
    out = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            out[name] = Family(name, help=words)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            out[name].kind = kind
        elif line:
            name, labels, value = re.fullmatch(r"([a-z0-9_]+)(?:\{(.*)\})? (\S+)", line).groups()
            family = out.get(name) or out[re.sub(r"_(bucket|sum|count)$", "", name)]
            family.series.append((dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return out
