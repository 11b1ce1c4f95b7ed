import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository():
    return REPOSITORY


@pytest.fixture
def tool():
    """Runs tools/NAME with arguments and returns the finished process with its text."""

    def run(name, *arguments):
        return subprocess.run([REPOSITORY / "tools" / name, *map(str, arguments)], cwd=REPOSITORY, capture_output=True, text=True,
                              check=False)

    return run


@pytest.fixture
def write_tree(tmp_path):
    """Writes {path: text} under a temporary repository and returns its root."""

    def write(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text, encoding="utf-8")
        return tmp_path

    return write
