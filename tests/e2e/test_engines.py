"""Engines of other systems behind the same queue and streams, through all processes."""

import contextlib
import json
import os
import random
import signal
import threading

import pytest

from engine_stack import EngineStack, entry
from fake_engine import CONTEXT, FakeEngine, Fault, tokens_of
from stack import HANG_S, ResumingClient, request, wait_for

PROMPT = "Once upon a time"


def text_of(events):
    return "".join(e.data["t"] for e in events if e.name == "token")


@pytest.fixture(scope="module")
def pair():
    with FakeEngine("vllm") as engine, EngineStack([entry(engine)]) as stack:
        yield engine, stack


@pytest.fixture(autouse=True)
def rest(request):
    yield
    if "pair" in request.fixturenames:
        engine, _ = request.getfixturevalue("pair")
        engine.script.clear()
        engine.gate.clear()


@pytest.mark.parametrize("kind", ["llamacpp", "openai", "vllm", "tgi", "triton"])
def test_a_job_streams_from_every_kind(kind):
    """ORCH-3054 ORCH-3055 ORCH-3056 ORCH-3057 ORCH-3910 AH-1003: submitted, with the job's correlation id, placed on the engine's device, streamed, ended,
    with a receipt that says what it is."""
    with FakeEngine(kind) as engine, EngineStack([entry(engine)]) as stack:
        body = {"model": "tale", "prompt": PROMPT, "max_tokens": 12, "seed": 7}
        job = stack.request("POST", "/v2/tasks", body, {"X-Correlation-Id": "corr-of-an-engine"}).json["job_id"]
        events = stack.read_to_end(job)
        assert events[-1].name == "end", events[-1]
        assert [headers.get("X-Correlation-Id") for _, _, headers, _ in engine.requests].count("corr-of-an-engine") == 1
        assert text_of(events) == "".join(tokens_of(PROMPT, 7, 12))
        ended = stack.job(job)
        assert ended["status"] == "completed" and ended["tokens_out"] == 12
        assert ended["receipt"]["partial"] is True and ended["receipt"]["seed"] == 7
        assert ended["receipt"]["engine_build"].startswith(kind + "/")
        assert stack.adapter()["gpu_id"] == "engine-tale"
        (told,) = stack.request("GET", "/v2/meta/capabilities").json["engines"]
        assert (told["engine"], told["supported_workloads"], told["batching"]) == (kind, ["completion"], True)
        line = wait_for("the line of its end", lambda: next((
            line for line in stack.log("orchestratord").splitlines() if '"stream.ended"' in line and job in line), None))
        assert (json.loads(line)["engine"], json.loads(line)["gpu_id"]) == (kind, "engine-tale")


def test_the_catalog_tells_what_is_known_of_an_engines_model(pair):
    """The console and `llorch models show` ask for it. How calls and thoughts are read is its engine's affair."""
    _, stack = pair
    shown = stack.request("GET", "/v2/catalog/models/tale?facts=true").json
    assert shown["facts"]["takes"] == "text" and "chat_format" not in shown
    listed = {model["model_id"]: model for model in stack.request("GET", "/v2/catalog/models?facts=true").json["models"]}
    assert listed["tale"]["facts"] == shown["facts"] and "chat_format" not in listed["tale"]


@pytest.mark.parametrize("kind", ["llamacpp", "openai", "vllm", "tgi", "triton"])
def test_ollamas_clients_reach_every_kind(kind):
    """Its API has values of its own for what a request leaves out: an engine that does not know such an option goes without it, and what
    the client sends is refused."""
    with FakeEngine(kind) as engine, EngineStack([entry(engine)]) as stack:
        known = "top_k" in stack.request("GET", "/v2/catalog/models/tale?facts=true").json["facts"]["parameters"]
        asked = {"model": "tale", "stream": False, "options": {"num_predict": 4, "seed": 7}}
        generated = stack.request("POST", "/api/generate", {**asked, "prompt": PROMPT, "raw": True})
        assert generated.status == 200, generated.body
        assert generated.json["response"] == "".join(tokens_of(PROMPT, 7, 4))
        (sent,) = (body for body in engine.submissions() if PROMPT in json.dumps(body))
        assert kind != "vllm" or (sent["top_k"], sent["repetition_penalty"]) == (40, pytest.approx(1.1))
        if kind != "triton":  # which has no chat template
            chatted = stack.request("POST", "/api/chat", {**asked, "messages": [{"role": "user", "content": "Hello"}]})
            assert chatted.status == 200 and chatted.json["message"]["content"], chatted.body
        chosen = {**asked, "options": {"num_predict": 4, "top_k": 40}}
        response = stack.request("POST", "/api/generate", {**chosen, "prompt": PROMPT, "raw": True})
        assert response.status == (200 if known else 400), response.body
        assert known or response.json["llorch"]["details"]["field"] == "top_k"


def test_llama_cpp_is_asked_in_its_own_api():
    """OC-ADAPT-5001 OC-ADAPT-5010#sampler: health, properties, completion and the end of a cancelled one go by its own paths; every sampler is
    named, so that a job that names none gets our defaults and not its, and one that names some gets those.

    OC-ADAPT-5010#templates: a conversation goes to it as messages."""
    ours = {"top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1, "top_n_sigma": -1, "xtc_probability": 0, "dynatemp_range": 0,
            "repeat_penalty": 1, "frequency_penalty": 0, "presence_penalty": 0, "dry_multiplier": 0, "mirostat": 0, "temperature": 0.7}
    named = {"top_k": 20, "top_p": 0.9, "min_p": 0.05, "typical_p": 0.8, "top_n_sigma": 1.5, "xtc_probability": 0.1, "dynatemp_range": 0.2,
             "frequency_penalty": 0.1, "presence_penalty": 0.2, "temperature": 0.8}
    with FakeEngine("llamacpp") as engine, EngineStack([entry(engine)]) as stack:
        assert text_of(stack.read_to_end(stack.submit(model="tale", max_tokens=6)["job_id"])) == "".join(tokens_of(PROMPT, 7, 6))
        stack.wait_terminal(stack.submit(model="tale", max_tokens=6, repetition_penalty=1.1, stop=["never said"], **named)["job_id"])
        plain, full = (body for body in engine.submissions() if body["prompt"] == PROMPT)  # the others are its self-test
        assert (plain["prompt"], plain["n_predict"], plain["seed"], plain["stream"]) == (PROMPT, 6, 7, True)
        assert {name: plain.get(name) for name in ours} == {**ours, "temperature": pytest.approx(0.7)}
        assert {name: full.get(name) for name in named} == {name: pytest.approx(value) for name, value in named.items()}
        assert full["repeat_penalty"] == pytest.approx(1.1) and full["stop"] == ["never said"]
        assert set(plain["samplers"]) >= {"penalties", "temperature", "top_k", "top_p", "min_p"} and plain["samplers"] == full["samplers"]
        worker = stack.adapter()
        assert worker["engine_build"] == "llamacpp/1.2.3" and worker["context_length"] == CONTEXT, "what its properties say"

        while engine.disconnects.acquire(blocking=False):
            pass  # the self-test cancels as well
        engine.script.append(Fault("gate", after=2))
        held = stack.submit(model="tale", max_tokens=40)["job_id"]
        wait_for("its first tokens", lambda: stack.job(held)["tokens_out"] > 0)
        assert stack.request("POST", f"/v2/tasks/{held}/cancel").status in (200, 202)
        assert stack.wait_terminal(held)["status"] == "cancelled" and engine.disconnects.acquire(timeout=HANG_S)
        asked = {(method, path) for method, path, _, _ in engine.requests}
        assert asked == {("GET", "/health"), ("GET", "/props"), ("POST", "/completion")}

        messages = [{"role": "user", "content": "Hello"}]
        chat = stack.request("POST", "/v1/chat/completions", {"model": "tale", "messages": messages, "max_tokens": 4})
        assert chat.status == 200 and engine.submissions()[-1]["messages"] == messages, chat.body
        assert {name: engine.submissions()[-1].get(name) for name in ("top_k", "min_p", "repeat_penalty")} == {
            "top_k": 0, "min_p": 0, "repeat_penalty": 1}


def test_what_an_engine_does_not_tell_stays_unknown(pair):
    """AH-1006 OC-CORE-1014: a context that an engine told is its models'; of one that told none, none is made up, and its worker is no less feasible
    for it."""
    def known(stack):
        facts = request(stack.pool_url, path="/v2/models/describe?ref=engine:tale").json
        (model,) = [m for m in stack.request("GET", "/v2/meta/capabilities").json["models"] if m["model_ids"] == ["tale"]]
        return facts["context_length"], stack.adapter()["context_length"], model["ctx_max"], facts["quant_kind"]

    def decision(stack):
        asked = {"model": "tale", "prompt": PROMPT, "max_tokens": CONTEXT, "seed": 7}
        return stack.request("POST", "/v2/tasks/preview", asked).json["decision"]["outcome"]

    _, told = pair
    with FakeEngine("openai") as engine, EngineStack([entry(engine)]) as silent:
        for stack in (told, silent):
            assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"
        assert (known(told), decision(told)) == ((CONTEXT, CONTEXT, CONTEXT, ""), "use_worker")
        assert (known(silent), decision(silent)) == ((0, 0, 0, ""), "use_worker")
        job = silent.wait_terminal(silent.submit(model="tale", max_tokens=2 * CONTEXT)["job_id"])
        assert (job["status"], job["tokens_out"]) == ("completed", 2 * CONTEXT), "no limit that nobody named"


def test_the_openai_api_streams_from_an_engine(pair):
    """The client cannot tell whose engine it is."""
    engine, stack = pair
    body = {"model": "tale", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6, "seed": 3}
    whole = stack.request("POST", "/v1/chat/completions", body)
    assert whole.status == 200, whole.body
    told = json.dumps([{"role": "user", "content": "Hello"}])
    wanted = "".join(tokens_of(json.dumps(engine.submissions()[-1]["messages"]), 3, 6))
    assert whole.json["choices"][0]["message"]["content"] == wanted, told
    assert whole.json["usage"]["completion_tokens"] == 6
    assert whole.json["usage"]["prompt_tokens"] == len(json.dumps(engine.submissions()[-1]["messages"]).split())
    streamed = stack.request("POST", "/v1/chat/completions", {**body, "stream": True})
    pieces = [json.loads(line[6:]) for line in streamed.body.decode().splitlines() if line.startswith("data: {")]
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces if p["choices"]) == wanted
    names = [m["id"] for m in stack.request("GET", "/v1/models").json["data"]]
    assert "tale" in names and "demo" in names


def test_ours_and_theirs_behind_one_queue(pair):
    """A model of ours runs beside it, each on its own device."""
    _, stack = pair
    ours = stack.submit(max_tokens=8)["job_id"]
    theirs = stack.submit(model="tale", max_tokens=8)["job_id"]
    assert stack.wait_terminal(ours)["receipt"].get("partial") is None
    assert stack.wait_terminal(theirs)["receipt"]["partial"] is True
    devices = {w["model_ref"].split(":")[0]: w["gpu_id"] for w in stack.workers()}
    assert devices == {"file": "cpu", "engine": "engine-tale"}


@pytest.mark.parametrize("fields,field", [
    ({"determinism": "strict"}, "determinism"),
    ({"typical_p": 0.5}, "typical_p"),
    ({"grammar": "root ::= \"a\""}, "grammar"),
    ({"logprobs": True}, "logprobs"),
    ({"placement": {"require_device_mask": "cpu"}}, "placement.require_device_mask"),
    ({"prompt": None, "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}]},
     "tools"),
])
def test_what_an_engine_cannot_do_is_refused_by_name(pair, fields, field):
    _, stack = pair
    body = {"model": "tale", "prompt": PROMPT, "max_tokens": 4, **fields}
    body = {k: v for k, v in body.items() if v is not None}
    refused = stack.request("POST", "/v2/tasks", body)
    assert refused.status == 400, refused.body
    assert refused.envelope["details"]["field"] == field


def test_tokens_of_an_engine_are_nobodys_to_count_here(pair):
    _, stack = pair
    refused = stack.request("POST", "/tokenize", {"model": "tale", "content": "x"})
    assert refused.status == 400 and b"engine" in refused.body


def test_an_unknown_engine_is_no_model(pair):
    _, stack = pair
    refused = stack.request("POST", "/v2/tasks", {"model": "engine:nobody", "prompt": "x", "max_tokens": 1})
    assert (refused.status, refused.code) == (404, "MODEL_NOT_FOUND")


def test_a_cancel_reaches_the_engine(pair):
    engine, stack = pair
    engine.script.append(Fault("gate", after=2))
    job = stack.submit(model="tale", max_tokens=40)["job_id"]
    wait_for("its first tokens", lambda: stack.job(job)["tokens_out"] > 0)
    assert stack.request("POST", f"/v2/tasks/{job}/cancel").status in (200, 202)
    assert stack.wait_terminal(job)["status"] == "cancelled"
    assert engine.disconnects.acquire(timeout=60)


def test_a_job_lost_behind_its_first_token_ends_and_says_so(pair):
    """Its engine does not repeat a run: WORKER_RESET, once, and never a second answer behind the first."""
    engine, stack = pair
    stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])
    engine.script.append(Fault("gate", after=3))
    job = stack.submit(model="tale", max_tokens=40, on_disconnect="resume")["job_id"]
    wait_for("its first tokens", lambda: stack.job(job)["tokens_out"] > 0)
    os.kill(stack.adapter()["pid"], signal.SIGKILL)
    client = ResumingClient(stack, job).run()
    assert (client.terminal().name, client.terminal().data["code"]) == ("error", "WORKER_RESET")
    assert client.terminal().data["details"]["reason"] == "NOT_REPLAYABLE"
    assert "".join(tokens_of(PROMPT, 7, 40)).startswith(client.text()) and client.text()
    assert stack.job(job)["status"] == "failed"


def test_a_job_lost_before_its_first_token_runs_again(pair):
    engine, stack = pair
    stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])
    engine.script.append(Fault("gate", after=0))
    job = stack.submit(model="tale", max_tokens=12)["job_id"]
    stack.wait_running(job)
    os.kill(stack.adapter()["pid"], signal.SIGKILL)
    events = stack.read_to_end(job)
    assert events[-1].name == "end"
    assert text_of(events) == "".join(tokens_of(PROMPT, 7, 12))
    assert stack.job(job)["attempts"] in (2, 3)  # one more where it was sent to the adapter that had just gone


def test_a_restart_ends_what_was_running_and_keeps_what_waited():
    """The rows of both are in the store; only the one that has told a token is given up, however soon after it the kill comes."""
    with FakeEngine("vllm") as engine, EngineStack([entry(engine, slots=1)]) as stack:
        stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])
        engine.script.append(Fault("gate", after=2))
        running = stack.submit(model="tale", max_tokens=40, on_disconnect="resume")["job_id"]
        waiting = stack.submit(model="tale", max_tokens=5)["job_id"]
        with contextlib.closing(stack.events(running)) as told:
            next(event for event in told if event.name == "token")
            stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        assert stack.wait_terminal(running)["error"]["code"] == "WORKER_RESET"
        assert stack.wait_terminal(waiting)["status"] == "completed"


def test_an_engine_that_is_not_there_is_waited_for_with_the_reason():
    with FakeEngine("vllm") as engine, EngineStack(
            [entry(engine)], settings={"pool-managerd.worker_start_timeout_ms": "60000"}) as stack:
        engine.down = True
        job = stack.submit(model="tale", max_tokens=4)["job_id"]
        wait_for("its worker to start", lambda: stack.job(job).get("reason", {}).get("code") == "WAITING_FOR_WORKER_START")
        engine.down = False
        assert stack.wait_terminal(job)["status"] == "completed"


def test_kills_under_load_leave_every_job_one_end():
    """Adapters are killed while jobs run: none is lost, none ends twice, no stream has bytes of two answers."""
    rounds = int(os.environ.get("LLORCH_ENGINE_KILLS", "12"))
    settings = {"orchestratord.restart.worker_crashes_max": "0", "orchestratord.retry.max_attempts": "100",
                "orchestratord.retry.max_delay_ms": "200"}
    with FakeEngine("vllm") as engine, EngineStack([entry(engine, slots=4)], settings=settings) as stack:
        jobs, clients, threads = [], [], []

        def submit():
            seed = len(jobs)
            jobs.append((stack.submit(model="tale", max_tokens=30, seed=seed, on_disconnect="resume")["job_id"], seed))
            client = ResumingClient(stack, jobs[-1][0])
            clients.append(client)
            threads.append(threading.Thread(target=client.run))
            threads[-1].start()

        rng = random.Random(23)
        for _ in range(rounds):
            submit()  # else nobody asks for a worker
            worker = stack.adapter()  # its self-test is over: a closed gate holds jobs alone
            engine.gate.clear()
            for _ in range(3):
                with engine.lock:
                    engine.script.append(Fault("gate", after=rng.randrange(6)) if rng.random() < 0.5 else None)
                submit()
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker["pid"], signal.SIGKILL)
            engine.gate.set()
            wait_for("the pool to notice", lambda: all(w["pid"] != worker["pid"] for w in stack.workers()))
        for thread in threads:
            thread.join(300)
        for (job, seed), client in zip(jobs, clients):
            ends = [e for e in client.events if e.name in ("end", "error")]
            assert len(ends) == 1, (job, ends)
            whole = "".join(tokens_of(PROMPT, seed, 30))
            if ends[0].name == "end":
                assert client.text() == whole
            else:
                assert ends[0].data["code"] == "WORKER_RESET" and whole.startswith(client.text())
            assert stack.job(job)["status"] == ("completed" if ends[0].name == "end" else "failed")
        assert any(c.terminal().name == "end" for c in clients)


def test_only_the_one_who_may_reaches_an_adapter():
    """A worker of an engine asks for the token of its pool like every worker."""
    token = "0123456789abcdef0123456789abcdef"
    with FakeEngine("vllm") as engine, EngineStack([entry(engine)], token=token) as stack:
        stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])
        uri = stack.adapter()["uri"]
        job = {"job_id": "j", "prompt": "x", "max_tokens": 1}
        assert request(uri, "POST", "/execute", job).status == 401
        assert request(uri, "POST", "/execute", job, {"Authorization": f"Bearer {token}"}).status in (401, 403)
