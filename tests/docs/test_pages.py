"""Every command of the pages runs, and every configuration of theirs is one."""

import json
import os
import re
import secrets
import shutil
import subprocess

import pytest

from machine import Machine, free_port, own_address
from model_server import ModelServer
from models import ALIASES, serve_by_name
from pages import KINDS, blocks, commands, outside_of_blocks, pages
from stack import BIN, HANG_S, REPO
from tables import EVERYWHERE, NOT_RUN, STANDS_FOR
from vision_model import png

TUTORIAL = "docs/guide/tutorial.md"  # has a test of its own
PAGES = pages()
STARTS = re.compile(r"\bllorch up\b")
SECRETS = ("token", "research.token", "hosted.key", "pool_credential", "connection", "llorch-reader")


def not_run(page, command):
    """The entry that excuses it."""
    return next((entry for entry in NOT_RUN if entry[0] == page and command.startswith(entry[1])), None)


def scripts(page):
    """The commands of each of its blocks that has some to run."""
    found = [[command for command in commands(block.text) if not not_run(page, command)]
             for block in blocks(PAGES[page]) if block.kind == "sh"]
    return [script for script in found if script]


def of_kind(*kinds):
    return [pytest.param(page, block, id=f"{page}:{block.line}")
            for page, text in PAGES.items() for block in blocks(text) if block.kind in kinds]


@pytest.fixture(name="server")
def model_server():
    with ModelServer() as server:
        yield server


def settings_of(page, models, server, directory):
    """The configuration of somebody who follows the page: what it names is there, unless the page itself fetches or starts it."""
    typed = "\n".join(sum(scripts(page), []))
    known = directory / "known.json"
    serve_by_name(server, models, "smollm2", known)
    address = own_address()
    ours = {} if STARTS.search(typed) else ALIASES
    if "pull smollm2" in typed or "/v2/catalog/models -d" in typed:
        ours = {name: file for name, file in ours.items() if name != "smollm2"}
    return {"devices": {"allow_cpu": True},
            "orchestratord": {"bind": f"{address}:{free_port(address)}"},
            "pool-managerd": {"bind": f"{address}:{free_port(address)}"},
            "models": {"aliases": {name: f"file:{models / file}" for name, file in ours.items()}, "allowed_roots": [str(models)],
                       "cache_dir": str(directory / "cache"), "known_models": [str(known)], "pull": {"allowed_hosts": ["127.0.0.1"]}}}


def place_files(home, tarball):
    """What lies where the reader types: a checkout that is built, the tarball, a picture."""
    (home / "build/release").mkdir(parents=True)
    (home / "build/release/bin").symlink_to(BIN)
    (home / "models").symlink_to(REPO / "models")
    shutil.copy(tarball, home)
    (home / "cat.png").write_bytes(png(16, 16, seed=7))


def stands_for(page, **places):
    return {theirs: ours.format(**places) for theirs, ours in {**STANDS_FOR.get(page, {}), **EVERYWHERE}.items()}


@pytest.fixture(name="machine_of")
def machine_factory(tmp_path, programs, tarball, models, server):
    made = []

    def make(page):
        home = tmp_path / "home"
        settings = settings_of(page, models, server, tmp_path)
        machine = Machine(home, [programs], stands_for(page, address=settings["orchestratord"]["bind"], models=models, secrets=tmp_path))
        config = home / ".config/llorch/config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(settings))
        place_files(home, tarball)
        made.append(machine)
        return machine

    yield make
    for machine in made:
        machine.run(["llorch down"])
        assert not machine.left_running()


@pytest.mark.parametrize("page", [page for page in PAGES if page != TUTORIAL and scripts(page)])
def test_every_command_of_a_page_works(page, machine_of):
    machine = machine_of(page)
    if not STARTS.search("\n".join(sum(scripts(page), []))):
        machine.run(["llorch up --detach"])
    for script in scripts(page):
        machine.run(script)
    assert set(STANDS_FOR.get(page, {})) <= machine.used, "tables.py has what the page does not"


@pytest.fixture(scope="module", name="secret_files")
def files_of_secrets(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secrets")
    for name in SECRETS:
        owner = "gpu-box:" if name == "pool_credential" else ""  # the pool that it is of on the pages
        (directory / name).write_text(owner + secrets.token_hex(32) + "\n")
        (directory / name).chmod(0o600)
    return directory


@pytest.mark.parametrize("page, block", of_kind("yaml"))
def test_every_configuration_is_one(page, block, tmp_path, models, secret_files):
    check = [str(BIN / "llorch"), "config", "validate", "--config"]
    if block.note == "prometheus":
        check = [shutil.which("promtool") or pytest.skip("promtool is not installed (Debian's prometheus)"), "check", "config"]
    config = tmp_path / "config.yaml"
    text = block.text
    for theirs, ours in stands_for(page, address="127.0.0.1:8080", models=models, secrets=secret_files).items():
        text = text.replace(theirs, ours)
    config.write_text(text)
    config.chmod(0o600)
    done = subprocess.run([*check, str(config)], capture_output=True, text=True,
                          timeout=HANG_S, check=False, env={"HOME": str(tmp_path), "PATH": os.defpath})
    assert done.returncode == 0, f"{block.text}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page, block", of_kind("json"))
def test_json_is_json(page, block):
    """But for what is left out."""
    json.loads(re.sub(r",?\s*(?<!\")\.\.\.(?!\")", "", block.text))


@pytest.mark.parametrize("page, block", of_kind("python"))
def test_programs_compile(page, block):
    compile(block.text, f"{page}:{block.line}", "exec")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page):
    text = PAGES[page]
    assert [block.line for block in blocks(text) if block.kind not in KINDS] == []
    assert text.count("```") == 2 * len(blocks(text))
    assert not re.search(r"(?m)^\n {4}(?![ -])\S", outside_of_blocks(text)), "an indented block is not run: fence it"


def test_the_tables_hold_nothing_that_no_page_has():
    typed = [(page, command) for page, text in PAGES.items() for block in blocks(text) if block.kind == "sh"
             for command in commands(block.text)]
    assert len(typed) > 90
    used = {not_run(page, command) for page, command in typed}
    assert [entry for entry in NOT_RUN if entry not in used] == []
    assert all(reason for *_, reason in NOT_RUN)
    assert set(STANDS_FOR) <= set(PAGES)
    assert [theirs for theirs in EVERYWHERE if not any(theirs in text for text in PAGES.values())] == []


@pytest.mark.parametrize("command", ["false", "false && true", "cat missing | cat", "curl -s {address}/v2/tasks/none", "llorch show none",
                                     "cat $UNSET", "curl -s {address}/v2/tasks/JOB_ID"])
def test_what_does_not_work_on_a_page_is_found(machine_of, command):
    machine = machine_of("docs/guide/llamacpp.md")
    machine.run(["llorch up --detach"])
    with pytest.raises(AssertionError):
        machine.run([command.format(address="localhost:8080")])


@pytest.mark.parametrize("script, found", [
    ("ls\n\n# nothing\nps # x\n", ["ls", "ps # x"]),
    ("a \\\n  b\nc\n", ["a \\\n  b", "c"]),
    ("cat > f <<EOF\nls\nEOF\nls\n", ["cat > f <<EOF\nls\nEOF", "ls"]),
    ("for i in 1 2; do\n  ls\ndone\n", ["for i in 1 2; do\n  ls\ndone"]),
    ("curl -d '{\n}'\n", ["curl -d '{\n}'"]),
])
def test_a_block_is_cut_into_its_commands(script, found):
    assert commands(script) == found


def test_a_command_without_an_end_is_found():
    with pytest.raises(AssertionError):
        commands("curl -d '{\n")
