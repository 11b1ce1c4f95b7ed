"""llorch chat: a conversation at a terminal and in a pipe."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest
from chat_model import write_chat_model
from said_server import SaidServer
from stack import BIN, HANG_S, Stack, wait_for


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    settings = {"models.aliases.tiny": f"file:{directory}", "models.allowed_roots": str(directory.parent)}
    with Stack(settings) as stack:
        def known():
            response = stack.request("POST", "/v2/tasks", {"model": "tiny", "prompt": "x", "max_tokens": 1})
            return None if response.status == 503 else response
        stack.wait_terminal(wait_for("the directory to be known", known).json["job_id"])
        yield stack


def chat(stack, typed, *flags):
    return subprocess.run([BIN / "llorch", "--url", stack.url, *flags, "chat", "tiny", "--max-tokens", "6", "--seed", "5"],
                          input=typed, env=stack.env, capture_output=True, text=True, timeout=HANG_S, check=False)


def answers(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_line_of_a_pipe_is_a_message_of_one_conversation(stack):
    done = chat(stack, "one\ntwo\n", "--json")
    assert done.returncode == 0, done.stderr
    first, second = answers(done)
    assert second["end"]["tokens_in"] > first["end"]["tokens_in"] + len("user: two"), "the model is shown what was said before"
    alone = answers(chat(stack, "one\n", "--json"))[0]
    assert alone["text"] == first["text"], "same request, same bytes"
    again = answers(chat(stack, "one\n/undo\none\n/clear\none\n", "--json"))
    assert [a["text"] for a in again] == [first["text"]] * 3


def test_messages_have_several_lines_and_settings(stack):
    done = chat(stack, '"""one\ntwo"""\none\\\ntwo\n/system be brief\n/clear\none\ntwo', "--json")
    assert done.returncode == 0, done.stderr
    quoted, continued, *_ = answers(done)
    assert len(answers(done)) == 4, "the last line needs no line break"
    answered = len("<assistant: ") + len(quoted["text"].encode())  # <s> is one token
    assert continued["end"]["tokens_in"] - answered + len("<") == 2 * quoted["end"]["tokens_in"], "the same message twice"
    shown = chat(stack, "/set temperature 0.5\n/set max_tokens 3\n/show\n/bye\nnever said\n")
    assert shown.returncode == 0 and "temperature 0.5" in shown.stderr and "max_tokens 3" in shown.stderr
    assert shown.stdout == ""


def test_what_is_wrong_is_said_and_the_chat_goes_on(stack):
    done = chat(stack, "/stat\n/set warmth 1\n/image /none.png\none\n", "--json")
    assert done.returncode == 2 or done.returncode == 1, done.stderr
    assert "did you mean /stats?" in done.stderr and "/none.png" in done.stderr
    assert len(answers(done)) == 1
    gone = subprocess.run([BIN / "llorch", "--url", "http://127.0.0.1:9", "chat", "tiny"], input="one\n", env=stack.env,
                          capture_output=True, text=True, timeout=HANG_S, check=False)
    assert gone.returncode == 3


def test_a_retry_that_fails_takes_nothing_back(stack):
    with SaidServer(["said"]) as server:
        server.refused = {1, 3}
        typed = "one\n/retry\ntwo\nthree\nfour\n"
        done = subprocess.run([BIN / "llorch", "--url", server.url, "--json", "chat", "file:/m.gguf"], input=typed, env=stack.env,
                              capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.stderr.count("POOL_UNAVAILABLE") == 2, done.stderr
        asked = [[turn["content"] for turn in body["messages"]] for path, _, body in server.asked if path == "/v2/tasks"]
        assert asked == [["one"], ["one"], ["one", "said", "two"], ["one", "said", "two", "said", "three"],
                         ["one", "said", "two", "said", "four"]]


class Terminal:
    """A person at a terminal."""

    def __init__(self, stack, *arguments, url=None, locale="C.UTF-8"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(BIN / "llorch", ["llorch", "--url", url or stack.url, *arguments], {**stack.env, "TERM": "xterm", "LC_ALL": locale})
        self.seen, self.status = "", None

    def type(self, text):
        os.write(self.fd, text.encode())

    def read(self):
        if select.select([self.fd], [], [], 0.1)[0]:
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:  # the other side has closed
                return False
        return True

    def wait_for(self, pattern):
        """Everything up to the first match, which is taken out of what was seen."""
        end = time.monotonic() + HANG_S
        while not (found := re.search(pattern, self.seen)):
            assert self.read() and time.monotonic() < end, f"no {pattern!r} in {self.seen!r}"
        text, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return text

    def end(self):
        end = time.monotonic() + HANG_S
        while self.read():
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"it goes on after {self.seen!r}")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_terminal_has_history_and_editing(stack):
    terminal = Terminal(stack, "chat", "tiny", "--max-tokens", "4", "--stats")
    terminal.wait_for("> ")
    terminal.type("/sho\bow\r")
    assert "model tiny" in terminal.wait_for(r"max_tokens 4")
    terminal.wait_for("> ")
    terminal.type("hello\r")
    terminal.wait_for(r"tokens/s")
    terminal.wait_for("> ")
    terminal.type("dropped\x03")
    terminal.wait_for(r"\^C")
    terminal.wait_for("> ")
    terminal.type("\x1b[A\x1b[A\r")  # the line before the last one
    terminal.wait_for("model tiny")
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.end() == 0


@pytest.mark.parametrize("locale", ("C.UTF-8", "C", "POSIX", "xx_XX"))
def test_what_is_typed_is_utf8_in_every_locale(stack, locale):
    with SaidServer(["said"]) as server:
        terminal = Terminal(stack, "chat", "file:/m.gguf", url=server.url, locale=locale)
        terminal.wait_for("> ")
        terminal.type("für 日本 \U0001f600!\b?\r")
        terminal.wait_for("said")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
        asked = [body["messages"][-1]["content"] for path, _, body in server.asked if path == "/v2/tasks"]
        assert asked == ["für 日本 \U0001f600?"]


def test_ctrl_c_stops_the_answer_and_not_the_chat(stack):
    terminal = Terminal(stack, "run", "tiny", "--seed", "5")  # a chat, for there is no prompt; its answer is longer than two tokens
    terminal.wait_for("> ")
    stack.gate.hold()
    try:
        stack.gate.let_pass(2)
        terminal.type("go on for ever\r")
        running = wait_for("the answer", lambda: [j for j in stack.request("GET", "/v2/tasks").json["tasks"] if j["status"] == "running"])
        terminal.type("\x03")
        terminal.wait_for("> ")
    finally:
        stack.gate.open()
    assert stack.wait_terminal(running[0]["job_id"])["status"] == "cancelled"
    terminal.type("/bye\r")
    assert terminal.end() == 0


def test_a_stop_signal_ends_it_and_an_interrupt_drops_the_line(stack):
    terminal = Terminal(stack, "chat", "tiny")
    terminal.wait_for("> ")
    os.kill(terminal.pid, signal.SIGINT)  # as a Ctrl-C that comes between an answer and the prompt
    terminal.wait_for("> ")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 130


def test_nothing_of_what_is_said_is_kept(stack, tmp_path):
    stack.env["HOME"] = str(tmp_path)
    terminal = Terminal(stack, "chat", "tiny", "--max-tokens", "4", "--stats")
    terminal.wait_for("> ")
    terminal.type("a secret that nobody keeps\r")
    terminal.wait_for(r"tokens/s")  # the answer may hold what a prompt looks like
    terminal.wait_for("> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    assert list(tmp_path.iterdir()) == []
