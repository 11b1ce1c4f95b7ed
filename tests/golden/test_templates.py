"""snippets.json is what the installed Jinja2 renders."""
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jinja2", reason="python3-jinja2 is not installed")


def test_snippets_are_current():
    script = Path(__file__).parent / "templates/make_snippets.py"
    check = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stdout
