"""docs/guide/tutorial.md as somebody follows it, on two machines: two home directories, two addresses of this machine, and a program
for scp."""

import shutil

import pytest

from machine import Machine, free_port, own_address, program
from pages import blocks, commands
from stack import REPO

PAGE = (REPO / "docs/guide/tutorial.md").read_text(encoding="utf-8")
ADDRESSES = {"front": own_address(), "gpu-box": own_address()}
SCP = """#!/bin/sh
# scp FILE... gpu-box:[DIRECTORY]
for last; do :; done
to=${last#gpu-box:}
for file; do [ "$file" = "$last" ] || [ "$file" -ef "${to:-%s}/${file##*/}" ] || cp "$file" "${to:-%s}/"; done
"""


@pytest.fixture(name="machines")
def both_machines(tmp_path, programs, tarball):
    stands_for = {"/srv/models": tmp_path / "srv-models"}
    for theirs, name, ports in (("10.0.0.5", "front", ("8080", "9200")), ("10.0.0.6", "gpu-box", ("9200",))):
        for port in ports:
            stands_for[f"{theirs}:{port}"] = f"{ADDRESSES[name]}:{free_port(ADDRESSES[name])}"
    own_programs = tmp_path / "programs"
    own_programs.mkdir()
    machines = {name: Machine(tmp_path / name, [own_programs, programs], stands_for) for name in ADDRESSES}
    program(own_programs, "scp", SCP % (machines["gpu-box"].home, machines["gpu-box"].home))
    for machine in machines.values():
        shutil.copy(tarball, machine.home)
    yield machines
    for machine in reversed(machines.values()):
        machine.run(["llorch down"])


def test_every_block_works(machines):
    """HME-040 SYS-3.2.1: the pool of another machine is paired, called at its address, and serves."""
    said = {}
    for block in blocks(PAGE):
        for name in ADDRESSES if block.note == "both" else (block.note,):
            said[block.text] = machines[name].run(commands(block.text))
    assert not [text for text in said if "10.0.0" in text and "10.0.0" in said[text]]
    pinned = next(text for script, text in said.items() if "--pin-pool gpu-box --max-tokens" in script)
    assert "gpu-box" in pinned and '"devices"' in pinned
    answer = next(text for script, text in said.items() if "curl" in script)
    assert answer.count('"finish_reason"') == 2
    assert (machines["front"].home / "front.txt").read_text().strip()
    for machine in machines.values():
        assert not machine.left_running(), "something was left running"


def test_blocks_say_where_they_belong():
    assert {block.note for block in blocks(PAGE)} == {"front", "gpu-box", "both"}
    assert {block.kind for block in blocks(PAGE)} == {"sh"}
