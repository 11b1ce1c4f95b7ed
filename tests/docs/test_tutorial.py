"""docs/guide/tutorial.md as somebody follows it: every block that names a machine runs, in the order of the page. Two home directories and
two addresses of this machine stand for two machines, and a program for scp."""

import os
import re
import shutil
import socket
import subprocess

import pytest

from stack import BIN, HANG_S, MODEL, REPO

PAGE = REPO / "docs/guide/tutorial.md"
ADDRESSES = {"front": "127.0.0.1", "gpu-box": "127.0.0.2"}
SCP = """#!/bin/sh
# scp FILE... gpu-box:[DIRECTORY]
for last; do :; done
to=${last#gpu-box:}
for file; do [ "$file" = "$last" ] || [ "$file" -ef "${to:-%s}/${file##*/}" ] || cp "$file" "${to:-%s}/"; done
"""


def blocks():
    found = re.findall(r"^```sh (\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) >= 12
    return found


def free_port(address):
    with socket.create_server((address, 0)) as server:
        return server.getsockname()[1]


class Machines:
    def __init__(self, directory):
        self.homes = {name: directory / name for name in ADDRESSES}
        for home in self.homes.values():
            home.mkdir()
        self.programs = directory / "programs"
        self.programs.mkdir()
        scp = self.programs / "scp"
        scp.write_text(SCP % (self.homes["gpu-box"], self.homes["gpu-box"]))
        scp.chmod(0o755)
        self.models = directory / "srv-models"
        self.written = {"/srv/models": str(self.models)}
        for theirs, name, ports in (("10.0.0.5", "front", ("8080", "9200")), ("10.0.0.6", "gpu-box", ("9200",))):
            for port in ports:
                self.written[f"{theirs}:{port}"] = f"{ADDRESSES[name]}:{free_port(ADDRESSES[name])}"

    def run(self, machine, script):
        for theirs, ours in self.written.items():
            script = script.replace(theirs, ours)
        home = self.homes[machine]
        env = {"HOME": str(home), "PATH": f"{self.programs}:{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        with open(home / "out.txt", "wb") as out:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=home, env=env, timeout=HANG_S, check=False,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        text = (home / "out.txt").read_text(errors="replace")
        assert done.returncode == 0, f"on {machine}:\n{script}\n{text}"
        return text

    def stop(self):
        for machine in ("gpu-box", "front"):
            self.run(machine, "llorch down")


@pytest.fixture
def machines(tmp_path):
    both = Machines(tmp_path)
    yield both
    both.stop()


def test_every_block_works(machines):
    """HME-040"""
    said = {}
    for machine, script in blocks():
        for name in ADDRESSES if machine == "both" else (machine,):
            said[script] = machines.run(name, script)
        if "mkdir -p /srv/models" in script:  # the tarball's model
            shutil.copy(MODEL, machines.models)
    assert not [script for script in said if "10.0.0" in script and "10.0.0" in said[script]]
    pinned = next(text for script, text in said.items() if "--pin-pool gpu-box --max-tokens" in script)
    assert "gpu-box" in pinned and '"devices"' in pinned
    answer = next(text for script, text in said.items() if "curl" in script)
    assert answer.count('"finish_reason"') == 2
    assert (machines.homes["front"] / "front.txt").read_text().strip()
    for home in machines.homes.values():
        assert not list((home / ".local/state/llorch/run").glob("*.json")), "something was left running"


def test_blocks_say_where_they_belong():
    page = PAGE.read_text(encoding="utf-8")
    assert {machine for machine, _ in blocks()} == {"front", "gpu-box", "both"}
    assert page.count("```") == 2 * len(blocks()), "a block without a machine is not run; indent what cannot be"
