"""Embeddings by both APIs, with real daemons: what they are, what is refused, and what a crash changes of them: nothing."""

import base64
import hashlib
import math
import os
import signal
import struct

import pytest
from embedding_model import DIMENSIONS, END, VOCABULARY, write_embedding_model
from stack import ResumingClient, Stack, wait_for

TEXTS = ["Once upon a time", "x", "there was a fox; " * 9, "ü", "a moon"]


def settings_of(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-embeddings"
    write_embedding_model(directory)
    return {"models.aliases.embed": f"file:{directory}",
            "models.allowed_roots": f"{directory.parent},{os.path.dirname(Stack().settings['models.aliases.demo'][5:])}"}


@pytest.fixture(scope="module", name="settings")
def model_settings(tmp_path_factory):
    return settings_of(tmp_path_factory)


@pytest.fixture(scope="module", name="stack")
def running_stack(settings):
    with Stack({**settings, "orchestratord.worker_slots": "4"}) as stack:
        yield stack


def ask(stack, path, body):
    def answered():
        response = stack.request("POST", path, {"model": "embed", **body})
        return None if response.status == 503 else response  # the pool is still looking at the directory

    return wait_for("the model to be known", answered)


def embed(stack, texts, **fields):
    response = ask(stack, "/v1/embeddings", {"input": texts, **fields})
    assert response.status == 200, response.body
    assert response.json["object"] == "list"
    assert [item["index"] for item in response.json["data"]] == list(range(len(response.json["data"])))
    embed.usage = response.json["usage"]
    embed.receipt = response.json["llorch"]["receipt"]
    return [item["embedding"] for item in response.json["data"]]


def submit(stack, texts, **fields):
    response = ask(stack, "/v2/tasks", {"workload": "embedding", "input": texts, **fields})
    assert response.status == 202, response.body
    return response.json["job_id"]


def unpack(text):
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def test_vectors_are_one_long_and_the_same_however_they_are_asked_for(stack):
    together = embed(stack, TEXTS)
    assert embed.usage["prompt_tokens"] == sum(len(text.encode()) + 1 for text in TEXTS) == embed.usage["total_tokens"]
    for vector in together:
        assert len(vector) == DIMENSIONS and math.isclose(math.hypot(*vector), 1, rel_tol=1e-6)
    assert [embed(stack, text)[0] for text in TEXTS] == together, "a batch is each alone, bit for bit"
    assert [unpack(text) for text in embed(stack, TEXTS, encoding_format="base64")] == [
        list(struct.unpack(f"<{DIMENSIONS}f", struct.pack(f"<{DIMENSIONS}f", *vector))) for vector in together]
    vocabulary = byte_ids()
    ids = [[*(vocabulary[b] for b in text.encode()), END] for text in TEXTS]
    assert embed(stack, ids) == together, "ids are taken as they are"
    assert embed(stack, ids[1]) == [together[1]]


def test_llama_cpps_form_has_the_same_vectors(stack):
    together = embed(stack, TEXTS)
    for path in ("/embedding", "/embeddings"):
        answer = ask(stack, path, {"content": TEXTS}).json
        assert [item["embedding"] for item in answer] == [[vector] for vector in together]
        assert [item["index"] for item in answer] == list(range(len(TEXTS)))
        assert answer[-1]["llorch"]["receipt"]["output_sha256"] == embed.receipt["output_sha256"]
    assert ask(stack, "/embedding", {"input": TEXTS[0]}).json[0]["embedding"] == together[:1]
    assert ask(stack, "/embedding", {"model": None, "content": "x"}).status == 400, "two models have names"
    refused = ask(stack, "/embedding", {"content": "x", "embd_normalize": -1})
    assert (refused.status, refused.json["error"]["type"], refused.code) == (400, "invalid_request_error", "INVALID_PARAMS")
    assert ask(stack, "/embedding", {"model": "demo", "content": "x"}).code == "INVALID_PARAMS", "it makes no vectors"


def byte_ids():
    return {b: 3 + b for b in range(256)}


def test_fewer_dimensions_are_cut_off_and_made_one_long_again(stack):
    whole, short = embed(stack, TEXTS[0])[0], embed(stack, TEXTS[0], dimensions=7)[0]
    length = math.hypot(*whole[:7])
    assert len(short) == 7
    assert all(math.isclose(a, b / length, rel_tol=1e-6, abs_tol=1e-7) for a, b in zip(short, whole[:7]))


def test_a_receipt_is_of_what_was_sent(stack):
    vectors = embed(stack, TEXTS[:2], encoding_format="base64")
    receipt = embed.receipt
    assert receipt["tokens_out"] == 2
    assert receipt["output_sha256"] == hashlib.sha256("".join(vectors).encode()).hexdigest()
    inputs = b"".join(hashlib.sha256(text.encode()).digest() for text in TEXTS[:2])
    assert receipt["prompt_sha256"] == hashlib.sha256(inputs).hexdigest()
    embed(stack, TEXTS[:2], dimensions=3)
    assert embed.receipt["parameters_sha256"] != receipt["parameters_sha256"]
    assert embed.receipt["model_digest"] == receipt["model_digest"]


def test_the_ollama_api_tells_the_same_vectors(stack):
    vectors = embed(stack, TEXTS)
    told = ask(stack, "/api/embed", {"input": TEXTS}).json
    assert told["embeddings"] == vectors and told["model"] == "embed"
    assert told["prompt_eval_count"] == embed.usage["prompt_tokens"] and "cut_inputs" not in told["llorch"]
    assert told["llorch"]["receipt"]["output_sha256"] == embed.receipt["output_sha256"]
    assert ask(stack, "/api/embed", {"model": "embed:latest", "input": TEXTS[0]}).json["embeddings"] == vectors[:1]
    assert ask(stack, "/api/embed", {"input": TEXTS[0], "dimensions": 7}).json["embeddings"] == embed(stack, TEXTS[0], dimensions=7)
    assert ask(stack, "/api/embeddings", {"prompt": TEXTS[0]}).json["embedding"] == vectors[0]
    shown = ask(stack, "/api/show", {}).json
    assert shown["capabilities"] == ["embedding"]
    assert shown["model_info"][shown["details"]["family"] + ".embedding_length"] == DIMENSIONS
    for none in ({}, {"input": []}, {"input": ""}):
        assert ask(stack, "/api/embed", none).json == {"model": "embed", "embeddings": []}
    assert ask(stack, "/api/embeddings", {}).json == {"embedding": []}


def test_the_ollama_api_cuts_what_is_too_long_and_says_so(stack):
    (context,) = [worker["context_length"] for worker in stack.request("GET", "/api/ps").json["models"]]
    long = "there was a fox; " * (context // 10)
    cut = ask(stack, "/api/embed", {"input": ["x", long]}).json
    assert cut["llorch"]["cut_inputs"] == [1] and cut["prompt_eval_count"] == 2 + context
    ids = [[*(byte_ids()[b] for b in text.encode()), END] for text in ("x", long[: context - 1])]
    assert cut["embeddings"] == embed(stack, ids), "the text's beginning, and the token that ends every text"
    assert ask(stack, "/api/embeddings", {"prompt": long}).json["embedding"] == cut["embeddings"][1]
    refused = ask(stack, "/api/embed", {"input": ["x", long], "truncate": False})
    assert (refused.status, refused.json["llorch"]["details"]["reason"]) == (400, "CONTEXT_TOO_LARGE")


def test_tasks_say_vectors_as_events_and_as_one_result(stack):
    vectors = embed(stack, TEXTS, encoding_format="base64")
    events = stack.read_to_end(submit(stack, TEXTS))
    assert [event.data["t"] for event in events if event.name == "token"] == vectors
    assert events[-1].name == "end" and events[-1].data["tokens_out"] == len(TEXTS)
    result = ask(stack, "/v2/tasks?wait=true", {"workload": "embedding", "input": TEXTS})
    assert result.status == 200 and result.json["embeddings"] == vectors and result.json["text"] == ""


def test_what_a_model_does_not_do_is_refused(stack):
    def refusal(path, **body):
        response = ask(stack, path, body)
        assert response.status == 400, response.body
        error = response.json["error"]
        return error.get("llorch", error)["details"]["field"]

    assert refusal("/v2/tasks", prompt="Once") == "workload"
    assert refusal("/v1/chat/completions", messages=[{"role": "user", "content": "Once"}]) == "workload"
    assert refusal("/v1/embeddings", model="demo", input="Once") == "workload"
    assert refusal("/v1/embeddings", input="x", dimensions=DIMENSIONS + 1) == "dimensions"
    assert refusal("/v1/embeddings", input=[[VOCABULARY]]) == "input"
    assert refusal("/v1/embeddings", input=["x", "x" * 5000]) == "input"
    assert refusal("/v2/tasks", workload="embedding", input="x", max_tokens=5) == "workload"
    assert refusal("/v2/tasks", workload="embedding", prompt="x") == "input"


def test_kill_9_worker_between_two_vectors_is_replayed(settings):
    """SYS-7.3.1: the stream goes on behind the vectors its client holds; the bytes are those of a calm run."""
    with Stack(settings) as stack:
        calm = embed(stack, TEXTS, encoding_format="base64")
        stack.gate.hold()
        job = submit(stack, TEXTS, on_disconnect="resume")
        stack.wait_running(job)
        stack.gate.let_pass(2)
        wait_for("a vector", lambda: stack.job(job)["tokens_out"] > 0)
        client = ResumingClient(stack, job)
        worker = stack.ready_worker()
        os.kill(worker["pid"], signal.SIGKILL)
        stack.gate.open()
        client.run()
        assert [event.data["t"] for event in client.events if event.name == "token"] == calm
        assert stack.job(job)["status"] == "completed" and stack.job(job)["attempts"] >= 2


def test_kill_9_orchestratord_loses_no_job(settings):
    """SYS-7.5.1: an accepted job ends as it would have, and its receipt agrees with what it was asked for."""
    with Stack(settings) as stack:
        calm = embed(stack, TEXTS, encoding_format="base64", dimensions=5)
        receipt = {key: embed.receipt[key] for key in ("prompt_sha256", "output_sha256", "parameters_sha256")}
        stack.gate.hold()
        jobs = [submit(stack, TEXTS, dimensions=5, on_disconnect="resume") for _ in range(3)]
        stack.gate.let_pass(2)
        wait_for("steps to be taken", lambda: stack.gate.steps_left() == 0)
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.gate.open()
        stack.start_orchestrator()
        for job in jobs:
            client = ResumingClient(stack, job).run()
            assert [event.data["t"] for event in client.events if event.name == "token"] == calm
            assert receipt.items() <= client.terminal().data["receipt"].items()
        assert not any(text in stack.log("orchestratord") for text in TEXTS if len(text) > 5)


def test_a_cancelled_job_ends_and_frees_its_slot(settings):
    with Stack(settings) as stack:
        embed(stack, "x")
        stack.gate.hold()
        job = submit(stack, TEXTS)
        stack.wait_running(job)
        assert stack.request("DELETE", f"/v2/tasks/{job}").status == 202
        assert stack.wait_terminal(job)["status"] == "cancelled"
        stack.gate.open()
        assert embed(stack, "x")
