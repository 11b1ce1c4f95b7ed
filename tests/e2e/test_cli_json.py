"""Every command of llorch with --json, and into a pipe that nobody reads: the table holds all of them, or the test fails."""

import contextlib
import json
import os
import pty
import signal
import subprocess

import pytest

from stack import BIN, HANG_S, MODEL, Stack, clean_env, llorch

UP = ["--set", "orchestratord.bind=127.0.0.1:0", "--set", "pool-managerd.bind=127.0.0.1:0"]
NAME = MODEL.stem

# Command -> its arguments, in an order in which they can all succeed; JOB and TMP are put in. What a command prints is one JSON
# value, or one a line where it says that it goes on.
SUCCEED = {
    "up": [*UP, "--cpu", "--detach", "--model", str(MODEL)],
    "version": [], "doctor": [], "engine list": [], "config show": [], "config schema": [], "config validate": [], "config reload": [],
    "run": [NAME, "Once upon a time", "--max-tokens", "4", "--seed", "7"],
    "show": ["JOB"], "attach": ["JOB"], "cancel": ["JOB"], "ps": [], "queue": [], "top": [], "ls": [],
    "verify": ["JOB", "--prompt", "Once upon a time"],
    "session create": ["mine", "--tokens", "1000"], "session list": [], "session show": ["mine"], "session delete": ["mine"],
    "cache clear": [], "pool health": ["pool-1"], "pool drain": ["pool-1"], "pool undrain": ["pool-1"],
    "pool purge": ["pool-1"], "pool reload": ["pool-1", NAME], "pool pair": ["other"], "pool unpair": ["other"],
    "pull": [f"file:{MODEL}", "--name", "tale"], "search": [], "retire": ["tale"], "activate": ["tale"], "pin": ["tale"], "unpin": ["tale"],
    "rm": ["tale"], "gc": ["--unused-days", "1000"], "debug snapshot": [], "debug bundle": ["-o", "TMP/bundle.tar.gz"], "logs": ["-n", "5"],
    "stop": [NAME], "backup": ["TMP/jobs.backup"], "down": [], "restore": ["TMP/jobs.backup"],
    "model show": [str(MODEL)], "model tokenize": [str(MODEL), "Once"], "model plan": [str(MODEL)],
    "model logits": [str(MODEL), "--tokens", "1,2", "--out", "TMP/logits"],
    "model trace": [str(MODEL), "--tokens", "1,2", "--out", "TMP/trace"],
    "model quantize": [str(MODEL), "TMP/again.gguf", "--type", "F16"],
    "model synth": ["TMP/synth.gguf", "--arch", "llama", "--layers", "1"],
    "bench": [str(MODEL), "--prompt", "8", "--generate", "2", "--runs", "1", "--batch", "1", "--context", "0"],
}
# A restore needs a directory without jobs.
ELSEWHERE = {"restore"}
# Needs a terminal, a session of systemd or an engine in the configuration: what they say without one is an error, as JSON.
REFUSED = {"chat": [NAME], "service install": [], "service remove": [], "engine plan": ["nobody"],
           "engine install": ["nobody"], "engine remove": ["nobody"]}


def run(command, arguments, state, job="", tmp=""):
    filled = [argument.replace("JOB", job).replace("TMP", str(tmp)) for argument in arguments]
    options = ["--json", *(filled.pop(0) for _ in range(4) if filled and filled[0] in UP)]
    return llorch(*options, *command.split(), *filled, state_dir=state)


def values(text):
    """The JSON values of an output: one, or one a line."""
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def commands(declaration, path=()):
    for command in declaration["commands"]:
        if command["commands"]:
            yield from commands(command, (*path, command["name"]))
        else:
            yield " ".join((*path, command["name"]))


def test_every_command_speaks_json(tmp_path):
    declared = set(commands(json.loads(llorch("declaration", state_dir=tmp_path / "none").stdout)))
    assert declared == set(SUCCEED) | set(REFUSED), declared ^ (set(SUCCEED) | set(REFUSED))
    state, job, wrong = tmp_path / "state", "", []
    for command, arguments in SUCCEED.items():
        done = run(command, arguments, tmp_path / "other" if command in ELSEWHERE else state, job, tmp_path)
        out = done.stdout.decode()
        try:
            said = values(out)
        except json.JSONDecodeError as error:
            wrong.append((command, "is no JSON", str(error), out[:200]))
            continue
        if done.returncode != 0 and command != "doctor":  # it finds what is wrong with this machine
            wrong.append((command, done.returncode, out[:200], done.stderr[-300:].decode()))
        if command == "run":
            job = said[-1]["job_id"]
    assert wrong == []


def test_every_error_is_json(tmp_path):
    wrong = []
    for command, arguments in {**REFUSED, "ps": [], "run": [NAME, "x"], "show": ["nobody"], "model show": ["/nowhere.gguf"]}.items():
        done = llorch("--json", "--url", "http://127.0.0.1:1", *command.split(), *arguments, state_dir=tmp_path,
                      env={"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""})
        try:
            error = json.loads(done.stderr.decode().splitlines()[-1])["error"]
            assert error["code"] and error["message"]
        except (ValueError, KeyError, IndexError, AssertionError):
            wrong.append((command, done.stderr[-300:].decode()))
        if done.returncode == 0:
            wrong.append((command, "succeeds"))
    assert wrong == []


@pytest.mark.parametrize("words", (["gc"], ["--bogus"], ["bogus"], ["run"], ["run", NAME, "x", "--max-tokens", "many"]))
def test_a_mistake_of_usage_is_json(tmp_path, words):
    done = llorch("--json", *words, state_dir=tmp_path)
    assert done.returncode == 2 and done.stdout == b""
    assert json.loads(done.stderr)["error"]["code"] == "INVALID_PARAMS"


def at_terminal(*arguments, env, state_dir):
    """What a terminal shows of a command."""
    master, slave = pty.openpty()
    process = subprocess.Popen([str(BIN / "llorch"), "--state-dir", str(state_dir), *arguments], stdin=slave, stdout=slave, stderr=slave,
                               env=clean_env(state_dir, env))
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
        while chunk := os.read(master, 4096):
            shown += chunk
    os.close(master)
    assert process.wait(HANG_S) == 0
    return shown.decode().replace("\r\n", "\n")


def test_long_output_goes_through_the_pager(tmp_path):
    plain = llorch("config", "show", state_dir=tmp_path).stdout.decode()
    paged = at_terminal("config", "show", env={"PAGER": "sed s/^/paged:/"}, state_dir=tmp_path)
    assert paged == "".join(f"paged:{line}\n" for line in plain.splitlines())
    ours = at_terminal("config", "show", env={"PAGER": "false", "LLORCH_PAGER": "sed s/^/ours:/"}, state_dir=tmp_path)
    assert ours.startswith("ours:")
    for none in ("", "cat", "/nowhere/pager"):
        assert at_terminal("config", "show", env={"PAGER": none}, state_dir=tmp_path) == plain, none
    # A short answer and a machine's need none.
    assert at_terminal("--json", "config", "show", env={"PAGER": "sed s/^/paged:/"}, state_dir=tmp_path).startswith("{")


@pytest.fixture(scope="module", name="stack")
def running_stack():
    with Stack() as stack:
        for seed in range(3):
            stack.wait_terminal(stack.submit(max_tokens=2, seed=seed)["job_id"])
        yield stack


@pytest.mark.parametrize("command", ("ps", "ls", "search", "config show", "config schema", "logs -n 0", "debug snapshot", "version", "top", "--help"))
def test_a_closed_pipe_is_silent(stack, command):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([str(BIN / "llorch"), "--state-dir", str(stack.dir), "--url", stack.url, *command.split()], stdout=writer,
                              stderr=subprocess.PIPE, timeout=HANG_S, env=clean_env(stack.dir), check=False)
    finally:
        os.close(writer)
    assert (done.stderr, done.returncode) == (b"", -signal.SIGPIPE)
