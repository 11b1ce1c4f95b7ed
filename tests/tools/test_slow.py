"""tools/slow: half a core for a command and what it starts."""

import re
import sys
from pathlib import Path

import pytest


def test_the_command_has_half_of_one_core(tool):
    probe = "import os; print(len(os.sched_getaffinity(0)), open('/proc/self/cgroup').read())"
    done = tool("slow", "--half", "--strangers", "2", sys.executable, "-c", probe)
    if "no cgroup with a CPU limit" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    cores, group = done.stdout.split(maxsplit=1)
    names = re.findall(r"llorch-slow-\d+", group)  # the last one is its own; others are of whoever runs this test slowly
    assert cores == "1" and names
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{names[-1]}")), "it goes with the command"


def test_the_status_is_the_commands(tool):
    assert tool("slow", "--strangers", "1", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert tool("slow").returncode == 2
