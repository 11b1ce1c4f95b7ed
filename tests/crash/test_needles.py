"""A secret per job: after the terminal event nothing of its prompt or output is left, in any file, in any spelling."""

import json
import os
import pathlib
import random
import signal
import time

import leftovers
import pytest
from clients import ask
from stack import ALIAS, MODEL, ResumingClient, Stack, llorch, wait_for
from workload import SETTINGS

TOKENS_PIECE = 6


class Secret:
    """A job whose prompt and, for some, whose output hold a word nobody else has."""

    def __init__(self, rng, kind):
        def word():
            return "zq" + "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(18))

        self.kind = kind
        self.word, self.other = word(), word()
        self.prompt = f'There was a {self.word} who said "é\t{self.word[2:12]}" to'
        self.body = {"model": ALIAS, "prompt": self.prompt, "max_tokens": 40, "seed": rng.randrange(2**60), "on_disconnect": "resume"}
        self.body.update({
            "plain": {},
            "stop": {"stop": [self.other]},
            "schema": {"json_schema": {"enum": [self.other]}, "max_tokens": 80},
            "regex": {"regex": f"{self.other}[0-9]", "max_tokens": 80},
            "grammar": {"grammar": f'root ::= "{self.other}" [0-9]', "max_tokens": 80},
            "cancelled": {"max_tokens": 400},
        }[kind])
        self.job_id = None
        self.output = ""

    def forms(self, prompt_tokens):
        texts = [self.word, self.other, *leftovers.pieces(self.prompt), *leftovers.pieces(self.output)]
        runs = [prompt_tokens[at : at + TOKENS_PIECE] for at in range(0, len(prompt_tokens) - TOKENS_PIECE + 1, TOKENS_PIECE)]
        return [form for text in texts for form in leftovers.text_forms(text)] + [form for run in runs for form in leftovers.token_forms(run)]


KINDS = ("plain", "stop", "schema", "regex", "grammar", "cancelled")


class Watched:
    """A stack whose every writable place is one directory: state, temporary files, home, working directory. Most talkative logs."""

    def __init__(self, directory):
        self.root = pathlib.Path(directory)
        for name in ("state", "tmp", "home", "cwd"):
            (self.root / name).mkdir(mode=0o700)
        env = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp")}
        env |= {f"XDG_{kind}_HOME": str(self.root / "home" / kind.lower()) for kind in ("STATE", "CACHE", "CONFIG", "DATA")}
        self.stack = Stack(settings={**SETTINGS, "log.level": "trace"}, env=env, state_dir=self.root / "state",
                           spawn={"cwd": self.root / "cwd"})
        self.state = self.stack.dir

    def daemons(self):
        return [self.stack.orchestrator.pid, self.stack.pool.pid, *[w["pid"] for w in self.stack.workers()]]

    def written_elsewhere(self):
        """Files outside the directory that a daemon holds open for writing."""
        out = []
        for pid in self.daemons():
            for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
                try:
                    target = os.readlink(fd)
                    flags = int((pathlib.Path(f"/proc/{pid}/fdinfo") / fd.name).read_text().split("flags:")[1].split()[0], 8)
                except FileNotFoundError:  # closed meanwhile
                    continue
                if target.startswith("/") and flags & os.O_ACCMODE and not target.startswith((str(self.root), "/dev/null")):
                    out.append((pid, target))
        return out


@pytest.fixture
def watched(tmp_path):
    one = Watched(tmp_path)
    with one.stack:
        one.stack.wait_terminal(one.stack.submit(max_tokens=2)["job_id"])
        yield one


def read_all(stack, secrets):
    """Every stream to its terminal event; some are cancelled first."""
    for secret in secrets:
        if secret.kind == "cancelled":
            wait_for("the cancel to be answered", lambda s=secret: ask(stack, "DELETE", f"/v2/tasks/{s.job_id}"))
    for secret in secrets:
        client = ResumingClient(stack, secret.job_id).run()
        secret.output = client.text()
        ended = client.terminal()
        assert ended.name == "end" or secret.kind == "cancelled", ended
        if secret.kind in ("schema", "regex", "grammar"):
            assert secret.other in secret.output, "the control that outputs hold their needle"


def seal_and_kill(watched, secrets):
    """Submits while no job gets on, kills orchestratord and then the worker. What the dead process left of each job."""
    stack = watched.stack
    held = wait_for("a worker", stack.ready_worker)["pid"]
    stack.gate.hold()
    for secret in secrets:
        secret.job_id = stack.submit(**secret.body)["job_id"]
    stack.orchestrator.kill()
    stack.orchestrator.wait()
    os.kill(held, signal.SIGKILL)
    stack.gate.open()
    sealed = leftovers.live_payloads(watched.state)
    assert {one.job_id for one in sealed} == {secret.job_id for secret in secrets}
    return sealed


def forms_of(secrets, tokens):
    return [form for secret in secrets for form in secret.forms(tokens[secret.job_id])]


def test_nothing_of_a_job_is_left(watched):
    """SYS-9.2.3 OC-CTRL-2041 ORCH-3302: no text of a prompt is in the database, its log, the key file, run files or logs, with
    daemons alive, killed, restarted and stopped."""
    seed = int(os.environ.get("LLORCH_TEST_SEED", time.time_ns()))
    print("seed", seed)
    rng = random.Random(seed)
    stack, keys = watched.stack, watched.state / "payload.keys"
    secrets, sealed, tokens = [], [], {}
    for _ in range(2):
        batch = [Secret(rng, kind) for kind in KINDS for _ in range(2)]
        at_rest = seal_and_kill(watched, batch)
        assert leftovers.openable(at_rest, keys) == at_rest, "the control that a key is found where it is"
        tokens |= {one.job_id: json.loads(one.opens_with(one.key))["prompt_tokens"] for one in at_rest}
        assert leftovers.search([watched.root], forms_of(batch, tokens)) == [], "they live, but sealed"
        stack.start_orchestrator()
        read_all(stack, batch)
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        assert leftovers.openable(at_rest, keys) == [], "a death right after the terminal event must not save a key"
        stack.start_orchestrator()
        secrets, sealed = secrets + batch, sealed + at_rest
    wait_for("the last keys to be destroyed", lambda: leftovers.openable(sealed, keys) == [], every_s=0.2)

    forms = forms_of(secrets, tokens)
    forms += [part for one in sealed for part in (one.key[:16], one.key[16:], one.key.hex().encode(), one.key.hex().upper().encode())]

    def nothing_is_left(when):
        assert leftovers.search([watched.root], forms) == [], when
        assert leftovers.openable(sealed, keys) == [], when
        assert not keys.read_bytes().strip(b"\0"), when

    nothing_is_left("daemons alive")
    assert watched.written_elsewhere() == []
    database = b"".join(path.read_bytes() for path in watched.state.glob("orchestrator.db*"))
    print("ciphertexts still in the database or its log:", sum(one.ciphertext in database for one in sealed), "of", len(sealed))
    for process in (stack.orchestrator, stack.pool):
        process.kill()
        process.wait()
    nothing_is_left("daemons killed")
    stack.start()
    nothing_is_left("daemons started again")
    stack.stop_daemons()
    nothing_is_left("daemons stopped")

    # The search sees what it is there for.
    (watched.root / "cwd" / "control.log").write_bytes(b"...".join(forms))
    assert {form for _, form in leftovers.search([watched.root / "cwd"], forms)} == set(forms)


def test_a_refusal_says_nothing_of_its_request(watched):
    """SYS-9.2.3 OC-CTRL-2041 ORCH-3302: what is wrong is named by field and number; the words stay with the client."""
    word = "zqvkrtwplmxbnhsjdfgcqz"
    stack = watched.stack
    prompt = f"There was a {word} who"
    bad = [
        {"prompt": prompt, "max_tokens": -1},
        {"prompt": prompt, "max_tokens": 10**9},
        {"prompt": prompt + " king" * 2000, "max_tokens": 4},
        {"prompt": prompt, "max_tokens": 4, "temperature": word},
        {"prompt": prompt, "max_tokens": 4, "no_such_field": word},
        {"prompt": prompt, "max_tokens": 4, "regex": f"({word}"},
        {"prompt": prompt, "max_tokens": 4, "grammar": f'root ::= "{word}" missing'},
        {"prompt": prompt, "max_tokens": 4, "json_schema": {"type": word}},
        {"prompt": prompt, "max_tokens": 4, "stop": [word] * 17},
        {"prompt": prompt, "max_tokens": 4, "logit_bias": {word: 1}},
        {"prompt": prompt, "max_tokens": 4, "priority": word},
        {"messages": [{"role": word, "content": prompt}], "max_tokens": 4},
        {"messages": prompt, "max_tokens": 4},
    ]
    for body in bad:
        reply = stack.request("POST", "/v2/tasks", {"model": ALIAS, **body})
        assert 400 <= reply.status < 500, (body, reply.body)
        assert word.encode() not in reply.body, (body, reply.body)
    torn = json.dumps({"model": ALIAS, "prompt": prompt, "max_tokens": 4})[:-3]
    for raw in (torn, torn + "}}}", torn.replace("who", "\\ud800")):
        reply = stack.request("POST", "/v2/tasks", raw)
        assert reply.status == 400 and word.encode() not in reply.body, reply.body
    assert leftovers.search([watched.root], leftovers.text_forms(word)) == []


def test_the_front_door_keeps_no_prompt(tmp_path):
    """SYS-9.2.3: `llorch up` and `llorch run`, which holds the prompt itself."""
    word = "zqfwbnmhxkdrtlcvpsgjqz"
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "TMPDIR": str(home), **{f"XDG_{kind}_HOME": str(home / kind) for kind in ("STATE", "CACHE", "CONFIG", "DATA")}}
    settings = {**SETTINGS, "orchestratord.bind": "127.0.0.1:0", "pool-managerd.bind": "127.0.0.1:0", "log.level": "trace"}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    state = tmp_path / "state"
    done = llorch(*flags, "up", "--cpu", "--detach", "--model", str(MODEL), state_dir=state, env=env, cwd=home)
    assert done.returncode == 0, done.stderr
    try:
        done = llorch("run", MODEL.stem, f"Once upon a time a {word} went", "--max-tokens", "40", "--seed", "7", state_dir=state, env=env, cwd=home)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) > 40, "enough to be looked for"
        output = done.stdout.decode(errors="replace").replace("\ufffd", "")
        forms = leftovers.text_forms(word) + [form for piece in leftovers.pieces(output) for form in leftovers.text_forms(piece)]
        assert leftovers.search([tmp_path], forms) == []
    finally:
        llorch("down", state_dir=state)
    assert leftovers.search([tmp_path], forms) == []
