"""What a model or a server says reaches a terminal as text and as nothing else."""

import os
import pty
import subprocess

import pytest

from said_server import SaidServer
from stack import BIN, HANG_S, clean_env

SAID = "tale\n\tof \u00e4 \x1b]52;c;aGk=\x07\x9b2J\r\x7f."
SHOWN = "tale\n\tof \u00e4 \ufffd]52;c;aGk=\ufffd\ufffd2J\ufffd."
RUDE = ("\x1b", "\x07", "\x7f", "\x9b")


def at_a_terminal(url, *arguments, typed=b""):
    """Everything that a person sees, standard error among it."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN / "llorch", ["llorch", "--url", url, *arguments], {**clean_env("/nonexistent"), "LLORCH_PAGER": ""})
    os.write(fd, typed)
    seen = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:  # the other side has closed
            break
        if not part:
            break
        seen += part
    os.close(fd)
    os.waitpid(pid, 0)
    return seen.decode(errors="surrogateescape").replace("\r\n", "\n")


def in_a_pipe(url, *arguments, typed=b""):
    return subprocess.run([BIN / "llorch", "--url", url, *arguments], input=typed, capture_output=True, env=clean_env("/nonexistent"),
                          timeout=HANG_S, check=False)


@pytest.mark.parametrize("command", [("run", "file:/m.gguf", "x"), ("attach", "00000000-0000-0000-0000-000000000001")])
def test_an_answer_at_a_terminal_has_no_control_characters(command):
    with SaidServer(list(SAID)) as server:
        assert SHOWN in at_a_terminal(server.url, *command)
        assert in_a_pipe(server.url, *command).stdout == SAID.encode() + b"\n", "a pipe gets the bytes as they are"


def test_an_answer_of_a_chat_has_none_either():
    with SaidServer([SAID]) as server:
        seen = at_a_terminal(server.url, "chat", "file:/m.gguf", typed=b"hello\n/bye\n")
        assert SHOWN.rpartition("\n")[2] in seen
        assert "]52;c;aGk=\x07" not in seen and "\x9b" not in seen
        assert in_a_pipe(server.url, "chat", "file:/m.gguf", typed=b"hello\n").stdout == SAID.encode() + b"\n"


def test_messages_and_tables_have_none_in_a_pipe_either():
    gpu = {"gpu_id": "0", "model": SAID, "device_class": "x", "memory_architecture": "host", "vram_total_bytes": 1, "vram_allocated_bytes": 0,
           "vram_available_bytes": 1, "healthy": False, "fault": SAID}
    pool = {"pool_id": "p", "status": "healthy", "endpoint": "", "version": "", "last_heartbeat_ms": 1, "gpus": [gpu], "workers": []}
    job = {"job_id": "j", "task_id": "j", "status": "queued", "model": SAID, "model_ref": SAID, "priority": "interactive", "queue_position": 1,
           "reason": {"code": "X", "human": SAID}, "submitted_at": "now", "attempts": 0, "tokens_in": 0, "tokens_out": 0,
           "on_disconnect": "cancel", "events_url": ""}
    health = {"status": "degraded", "ready": True, "reasons": [{"code": "X", "human": SAID}], "uptime_seconds": 1, "pools": [], "preloads": []}
    answers = {"/v2/tasks": {"tasks": [job]}, "/v2/pools": {"pools": [pool]}, "/v2/health": health}
    with SaidServer(answers=answers) as server:
        for command in (["ps"], ["queue"], ["top", "--interval-ms", "100"], ["doctor"], ["show", "nothing"]):
            done = in_a_pipe(server.url, *command)
            said = (done.stdout + done.stderr).decode()
            assert "]52;c;aGk=" in said, (command, said)
            assert not any(c in said for c in RUDE), (command, said)
            assert "\n\tof" not in said, "a cell has no line of its own"
