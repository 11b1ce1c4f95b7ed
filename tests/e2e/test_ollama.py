"""The Ollama API of real daemons, as bytes. What its official client makes of them: tests/clients."""

import http.client
import json
import os
import signal

import pytest
from chat_model import write_chat_model
from stack import ALIAS, MODEL, Stack, wait_for

TALE = {"model": ALIAS, "prompt": "Once upon a time", "options": {"num_predict": 12, "seed": 7}}
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "options": {"num_predict": 12, "seed": 3}}
# As /v2 spells that API's defaults.
DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.1, "penalty_last_n": 64}
KEPT = "a prompt that nobody may keep"


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    with Stack({"models.aliases.tiny": f"file:{directory}", "orchestratord.limits.workers_per_gpu": "2",
                "models.allowed_roots": f"{directory.parent},{MODEL.parent}"}) as stack:
        yield stack


def ask(stack, path, body):
    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the model

    return wait_for("the model to be known", answered)


def lines_of(response):
    return [json.loads(line) for line in response.body.decode().splitlines()]


# CLOUD-1000: submitted and streamed as a job is.
def test_a_text_is_the_same_streamed_whole_and_as_a_task(stack):
    whole = ask(stack, "/api/generate", {**TALE, "stream": False})
    assert (whole.status, whole.json["done"], whole.json["done_reason"]) == (200, True, "length"), whole.body
    streamed = ask(stack, "/api/generate", TALE)
    assert streamed.headers["content-type"] == "application/x-ndjson"
    lines = lines_of(streamed)
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert "".join(line["response"] for line in lines) == whole.json["response"]
    job_id = stack.submit(prompt=TALE["prompt"], max_tokens=12, **DEFAULTS)["job_id"]
    assert "".join(e.data["t"] for e in stack.read_to_end(job_id) if e.name == "token") == whole.json["response"]
    assert whole.json["llorch"]["receipt"] == lines[-1]["llorch"]["receipt"] == stack.job(job_id)["receipt"]
    raw = ask(stack, "/api/generate", {**TALE, "raw": True, "stream": False}).json
    assert raw["response"] == whole.json["response"], "the model has no chat template"


def test_durations_are_the_jobs_own(stack):
    answer = ask(stack, "/api/generate", {**TALE, "stream": False}).json
    end = answer["llorch"]
    assert (answer["prompt_eval_count"], answer["eval_count"]) == (end["tokens_in"], end["tokens_out"])
    assert answer["eval_duration"] == end["decode_time_ms"] * 1_000_000
    assert answer["prompt_eval_duration"] == end["first_token_ms"] * 1_000_000
    assert answer["total_duration"] == answer["load_duration"] + answer["prompt_eval_duration"] + answer["eval_duration"]


def test_a_chat_follows_the_models_template(stack):
    whole = ask(stack, "/api/chat", {**ASKED, "stream": False}).json
    lines = lines_of(ask(stack, "/api/chat", ASKED))
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    assert all(line["message"]["role"] == "assistant" for line in lines)
    turn = ask(stack, "/api/generate", {"model": "tiny", "prompt": "go", "stream": False, "options": ASKED["options"]}).json
    assert turn["response"] == whole["message"]["content"], "a prompt is a turn of the user"
    assert turn["llorch"]["receipt"]["prompt_sha256"] == whole["llorch"]["receipt"]["prompt_sha256"]


def test_output_by_schema(stack):
    schema = {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}
    answer = ask(stack, "/api/chat", {**ASKED, "format": schema, "stream": False, "options": {"seed": 3}}).json
    assert json.loads(answer["message"]["content"])["side"] in ("left", "right")


def test_models_are_listed_shown_and_found_at_work(stack):
    ask(stack, "/api/generate", {**TALE, "stream": False})
    listed = stack.request("GET", "/api/tags").json["models"]
    assert [m["name"] for m in listed] == [f"{ALIAS}:latest", "demo-f16:latest", "tiny:latest"]
    shown = ask(stack, "/api/show", {"model": f"{ALIAS}:latest"}).json
    assert shown["details"]["family"] == listed[0]["details"]["family"] == shown["model_info"]["general.architecture"]
    assert shown["capabilities"] == ["completion"] and listed[0]["size"] > 0
    running = {m["name"]: m for m in stack.request("GET", "/api/ps").json["models"]}
    assert running[f"{ALIAS}:latest"]["digest"] == listed[0]["digest"] and running[f"{ALIAS}:latest"]["size_vram"] > 0
    # Clients compare it with the release that they need: VS Code's Copilot wants 0.6.4.
    version = stack.request("GET", "/api/version").json
    assert tuple(map(int, version["version"].split("."))) > (0, 6, 4)
    assert version["llorch"] == stack.request("GET", "/v2/meta/version").json["version"]


def test_names_may_have_the_tag_latest(stack):
    tagged = ask(stack, "/api/generate", {**TALE, "model": f"{ALIAS}:latest", "stream": False}).json
    assert tagged["model"] == f"{ALIAS}:latest"
    assert tagged["response"] == ask(stack, "/api/generate", {**TALE, "stream": False}).json["response"]


def test_a_model_gets_one_more_name(tmp_path):
    def tale(name):
        return {**TALE, "model": name, "stream": False}

    def copy(stack, source, to):
        return stack.request("POST", "/api/copy", {"source": source, "destination": to})

    with Stack(state_dir=tmp_path) as own:
        answer = ask(own, "/api/generate", tale(ALIAS)).json["response"]
        for source, name in ((f"{ALIAS}:latest", "gpt-4o-mini:latest"), ("gpt-4o-mini", "of-a-copy")):
            made = copy(own, source, name)
            assert (made.status, made.json["model_id"]) == (200, name.removesuffix(":latest")), made.body
            assert copy(own, source, name).status == 200, "again is the same"
            assert ask(own, "/api/generate", tale(name)).json["response"] == answer
        listed = {model["name"]: model["digest"] for model in own.request("GET", "/api/tags").json["models"]}
        assert listed["gpt-4o-mini:latest"] == listed["of-a-copy:latest"] == listed[f"{ALIAS}:latest"] != ""
        for source, name, status, code in (("none", "b", 404, "MODEL_NOT_FOUND"), ("file:/etc/passwd", "b", 404, "MODEL_NOT_FOUND"),
                                           (ALIAS, "user/b", 400, "INVALID_PARAMS"), (ALIAS, "demo-f16", 409, "CONFLICT"),
                                           ("demo-f16", "of-a-copy", 409, "CONFLICT")):
            refused = copy(own, source, name)
            assert (refused.status, refused.code) == (status, code), (source, name, refused.body)
        gone = own.request("DELETE", "/api/delete", {"model": "gpt-4o-mini"})
        assert (gone.status, gone.json["bytes_freed"]) == (200, 0) and MODEL.exists()
        assert ask(own, "/api/generate", tale("of-a-copy")).json["response"] == answer
        retired = own.request("POST", "/v2/catalog/models/of-a-copy/state", {"lifecycle_state": "Retired"})
        assert retired.status == 200 and copy(own, "of-a-copy", "c").code == "MODEL_DEPRECATED"
    with Stack(state_dir=tmp_path) as own:
        assert "of-a-copy:latest" in [model["name"] for model in own.request("GET", "/api/tags").json["models"]]


def test_another_systems_engine_gets_no_name_by_a_copy():
    with Stack({"models.aliases.hosted": "engine:hosted"}) as own:
        refused = own.request("POST", "/api/copy", {"source": "hosted", "destination": "b"})
        assert (refused.status, refused.code) == (400, "INVALID_PARAMS")


def test_without_a_question_no_job_is_made(stack):
    jobs = len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"])
    for path, body in (("/api/generate", {"model": ALIAS}), ("/api/chat", {"model": ALIAS, "messages": [], "keep_alive": "5m"})):
        answer = ask(stack, path, body).json
        assert (answer["done"], answer["done_reason"]) == (True, "load")
    assert ask(stack, "/api/generate", {"model": "none"}).status == 404
    assert len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]) == jobs


# As there, num_predict may be more than the context has room for.
def test_a_long_answer_ends_where_the_context_does(stack):
    answer = ask(stack, "/api/generate", {**TALE, "stream": False, "options": {"seed": 7, "num_predict": 40_000}})
    assert answer.status == 200 and answer.json["done_reason"] in ("stop", "length")


# CLOUD-1000: errors lose nothing.
@pytest.mark.parametrize("method, path, body, headers, status, code", [
    ("POST", "/api/generate", {**TALE, "context": [1]}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/api/generate", {**TALE, "options": {"top_p": 2}}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/api/generate", {**TALE, "model": "none"}, {}, 404, "MODEL_NOT_FOUND"),
    ("POST", "/api/generate", {**TALE, "system": KEPT}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/api/chat", {"model": ALIAS, "messages": [{"role": "user", "content": KEPT}]}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/api/chat", "{", {}, 400, "INVALID_PARAMS"),
    ("POST", "/api/generate", TALE, {"Content-Type": "text/plain"}, 415, "INVALID_PARAMS"),
    ("GET", "/api/chat", None, {}, 405, "METHOD_NOT_ALLOWED"),
    ("POST", "/api/push", {"model": ALIAS}, {}, 404, "NOT_FOUND"),
    ("POST", "/api/show", {}, {}, 400, "INVALID_PARAMS"),
])
def test_every_error_has_that_apis_shape(stack, method, path, body, headers, status, code):
    """Also those that come before a handler."""
    answer = stack.request(method, path, body, headers)
    assert answer.status == status, answer.body
    assert set(answer.json) == {"error", "llorch"} and answer.json["llorch"]["code"] == code
    assert answer.json["error"] == answer.json["llorch"]["message"] and KEPT not in answer.json["error"]


def open_stream(stack, tokens):
    """A stream that has said a token and will say no more."""
    stack.gate.hold()
    stack.gate.let_pass(tokens)
    connection = http.client.HTTPConnection(stack.bind, timeout=60)
    connection.request("POST", "/api/generate", json.dumps({**TALE, "options": {"num_predict": 60, "seed": 7}}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    line = response.readline()
    wait_for("the steps to be done", lambda: stack.gate.steps_left() == 0)
    return connection, response, line


def test_kill_9_of_the_worker_in_the_middle_of_a_stream():
    """The client reads on, and has the answer that it would have had."""
    with Stack() as stack:
        calm = lines_of(ask(stack, "/api/generate", {**TALE, "options": {"num_predict": 60, "seed": 7}}))
        connection, response, begun = open_stream(stack, 20)
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        stack.gate.open()
        lines = [json.loads(line) for line in (begun + response.read()).decode().splitlines()]
        connection.close()
        assert [line["response"] for line in lines] == [line["response"] for line in calm]
        assert lines[-1]["llorch"]["receipt"] == calm[-1]["llorch"]["receipt"]
        assert stack.job(lines[-1]["llorch"]["job_id"])["attempts"] >= 2


def test_a_cancelled_job_ends_its_stream_with_an_error():
    with Stack() as stack:
        ask(stack, "/api/generate", {**TALE, "stream": False})
        connection, response, _ = open_stream(stack, 1)
        (job,) = [task for task in stack.request("GET", "/v2/tasks").json["tasks"] if task["status"] == "running"]
        try:
            assert stack.request("POST", f"/v2/tasks/{job['job_id']}/cancel").status == 202
        finally:
            stack.gate.open()
        last = json.loads(response.read().decode().splitlines()[-1])
        connection.close()
        assert last["llorch"]["code"] == "CANCELLED" and last["error"]


def test_the_gateway_can_be_switched_off():
    with Stack({"orchestratord.gateways.ollama": "false"}) as stack:
        refused = stack.request("GET", "/api/tags")
        assert (refused.status, refused.code) == (404, "NOT_FOUND")
