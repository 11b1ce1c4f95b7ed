"""The blocks of a page, and the commands of a block."""

import re
import subprocess
from typing import NamedTuple

from stack import REPO

KINDS = {"sh", "yaml", "json", "python", "text"}


class Block(NamedTuple):
    line: int
    kind: str
    note: str  # the words behind the kind
    text: str


def pages():
    found = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs/guide").rglob("*.md")),
             *sorted((REPO / "bench").rglob("README.md"))]
    return {page.relative_to(REPO).as_posix(): page.read_text(encoding="utf-8") for page in found}


def blocks(text):
    return [Block(text.count("\n", 0, found.start()) + 1, found[1], found[2].strip(), found[3])
            for found in re.finditer(r"^ *```(\w*)([^\n`]*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)]


def outside_of_blocks(text):
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)


def is_whole(script):
    checked = subprocess.run(["bash", "-n"], input=script.encode(), capture_output=True, check=False)
    return checked.returncode == 0 and not checked.stderr and not script.rstrip("\n").endswith("\\")


def commands(script):
    """The commands of a block, each with its continued lines, loops and here-documents."""
    found, begun = [], ""
    for line in script.splitlines():
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun += line + "\n"
        if is_whole(begun):
            found.append(begun.rstrip("\n"))
            begun = ""
    assert not begun, f"a command without an end:\n{begun}"
    return found
