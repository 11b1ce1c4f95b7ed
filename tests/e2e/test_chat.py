"""llorch chat: a conversation in a pipe."""

import json
import subprocess

import pytest
from chat_model import write_chat_model
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
