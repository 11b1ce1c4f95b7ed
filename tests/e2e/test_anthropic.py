"""The Anthropic API of real daemons, as bytes. What its official client makes of them: tests/clients."""

import http.client
import json
import os
import signal

import pytest
from chat_model import write_chat_model
from stack import Stack, wait_for

ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "max_tokens": 12, "seed": 3}
TOOLS = [{"name": name, "input_schema": {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"],
                                         "additionalProperties": False}} for name in ("turn", "look")]
KEPT = "a prompt that nobody may keep"
TOKEN = "t" * 40


def settings_of(directory):
    return {"models.aliases.tiny": f"file:{directory}", "models.allowed_roots": str(directory.parent)}


@pytest.fixture(scope="module", name="model")
def model_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    return directory


@pytest.fixture(scope="module", name="stack")
def running_stack(model):
    with Stack(settings_of(model)) as stack:
        yield stack


def ask(stack, path="/v1/messages", **fields):
    body = {**ASKED, **fields}
    if path != "/v1/messages":
        body = {key: body[key] for key in body if key not in ("max_tokens", "seed")}

    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the directory

    return wait_for("the model to be known", answered)


def events_of(text):
    """(event, data) of each frame that is no comment."""
    frames = [frame.split("\n") for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    events = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in frames]
    assert all(name == data["type"] for name, data in events)
    return events


def text_of(events):
    return "".join(data["delta"].get("text", "") for name, data in events if name == "content_block_delta")


# That API takes any max_tokens, and says when the context was too small for it.
def test_a_long_answer_ends_where_the_context_does(stack):
    limited = ask(stack, max_tokens=30_000, logit_bias={"2": -100}).json
    total = limited["usage"]["input_tokens"] + limited["usage"]["output_tokens"]
    assert limited["stop_reason"] == "model_context_window_exceeded" and limited["usage"]["output_tokens"] < 30_000
    context = stack.request("GET", "/v2/catalog/models/tiny?facts=true").json["facts"]["context_length"]
    assert total == context
    short = ask(stack, logit_bias={"2": -100}).json
    assert short["stop_reason"] == "max_tokens" and limited["content"][0]["text"].startswith(short["content"][0]["text"])


# CLOUD-1000: submitted and streamed as a job is.
def test_a_message_is_the_same_streamed_whole_and_as_a_task(stack):
    whole = ask(stack)
    assert (whole.status, whole.json["type"], whole.json["role"]) == (200, "message", "assistant"), whole.body
    events = events_of(ask(stack, stream=True).body.decode())
    assert [name for name, _ in events][:2] == ["message_start", "content_block_start"]
    assert [name for name, _ in events][-3:] == ["content_block_stop", "message_delta", "message_stop"]
    (block,) = whole.json["content"]
    assert text_of(events) == block["text"]
    delta = events[-2][1]
    assert delta["usage"] == whole.json["usage"] and delta["delta"]["stop_reason"] == whole.json["stop_reason"]
    assert events[0][1]["message"]["usage"]["input_tokens"] == whole.json["usage"]["input_tokens"]
    task = stack.submit(model="tiny", prompt=None, messages=ASKED["messages"], max_tokens=12, temperature=1, seed=3,
                        chat_template_kwargs={"enable_thinking": False})
    assert "".join(e.data["t"] for e in stack.read_to_end(task["job_id"]) if e.name == "token") == block["text"]
    job = stack.job(whole.json["id"].removeprefix("msg_"))
    assert job["receipt"] == whole.json["llorch"]["receipt"] == delta["llorch"]["receipt"] == stack.job(task["job_id"])["receipt"]


def test_tokens_are_counted_without_a_job(stack):
    jobs = len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"])
    counted = ask(stack, "/v1/messages/count_tokens", system="You are terse.")
    assert (counted.status, set(counted.json)) == (200, {"input_tokens"}), counted.body
    assert len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]) == jobs
    answer = ask(stack, system="You are terse.", max_tokens=1)
    assert counted.json["input_tokens"] == answer.json["usage"]["input_tokens"]


def test_a_required_call_streamed_and_whole(stack):
    fields = {"tools": TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "max_tokens": 200}
    message = ask(stack, **fields).json
    (call,) = message["content"]
    assert (call["type"], message["stop_reason"]) == ("tool_use", "tool_use")
    assert call["name"] in ("turn", "look") and call["input"]["side"] in ("left", "right")
    events = events_of(ask(stack, **fields, stream=True).body.decode())
    pieces = [data["delta"]["partial_json"] for name, data in events if name == "content_block_delta"]
    assert [json.loads(piece) for piece in pieces] == [call["input"]]
    told = [*ASKED["messages"], {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "done"}]}]
    answer = ask(stack, messages=told, tools=TOOLS, tool_choice={"type": "none"})
    assert answer.status == 200 and answer.json["stop_reason"] in ("max_tokens", "end_turn")


# CLOUD-1000: errors lose nothing.
@pytest.mark.parametrize("method, path, body, headers, status, kind, code", [
    ("POST", "/v1/messages", {**ASKED, "n": 2}, {}, 400, "invalid_request_error", "INVALID_PARAMS"),
    ("POST", "/v1/messages", {**ASKED, "messages": [{"role": "tool", "content": KEPT}]}, {}, 400, "invalid_request_error", "INVALID_PARAMS"),
    ("POST", "/v1/messages", {**ASKED, "model": "none"}, {}, 404, "not_found_error", "MODEL_NOT_FOUND"),
    ("POST", "/v1/messages", "{", {}, 400, "invalid_request_error", "INVALID_PARAMS"),
    ("POST", "/v1/messages", ASKED, {"Content-Type": "text/plain"}, 415, "invalid_request_error", "INVALID_PARAMS"),
    ("POST", "/v1/messages", ASKED, {"Host": "elsewhere.example"}, 403, "permission_error", "FORBIDDEN"),
    ("GET", "/v1/messages", None, {}, 405, "invalid_request_error", "METHOD_NOT_ALLOWED"),
    ("POST", "/v1/messages/elsewhere", {}, {}, 404, "not_found_error", "NOT_FOUND"),
    ("POST", "/v1/messages", {**ASKED, "system": "x" * (5 << 20)}, {}, 413, "request_too_large", "PAYLOAD_TOO_LARGE"),
])
def test_every_error_has_that_apis_shape(stack, method, path, body, headers, status, kind, code):
    """Also those that come before a handler."""
    answer = stack.request(method, path, body, {"anthropic-version": "2023-06-01", **headers})
    assert answer.status == status, answer.body
    assert answer.json["type"] == "error" and answer.json["request_id"] == answer.headers["request-id"]
    error = answer.json["error"]
    assert set(error) == {"type", "message", "llorch"} and (error["type"], error["llorch"]["code"]) == (kind, code)
    assert KEPT not in error["message"]
    assert answer.headers["x-should-retry"] == "false"


def test_a_token_comes_in_either_header(model):
    """X-Api-Key counts on this API's paths alone, and only where Authorization is absent."""
    with Stack(settings_of(model), token=TOKEN) as guarded:
        def status(headers, path="/v1/messages"):
            return guarded.request("POST", path, "{", headers).status

        assert status({"X-Api-Key": TOKEN}) == 400 == status({"Authorization": f"Bearer {TOKEN}"})
        assert status({"X-Api-Key": "w" * 40}) == 401 == status({"X-None": "1"})
        assert status({"X-Api-Key": TOKEN, "Authorization": "Bearer " + "w" * 40}) == 401
        assert guarded.request("GET", "/v1/models", headers={"X-Api-Key": TOKEN, **VERSION}).status == 200
        assert guarded.request("GET", "/v1/models", headers={"X-Api-Key": "w" * 40, **VERSION}).status == 401
        assert status({"X-Api-Key": TOKEN}, "/v1/completions") == 401 == status({"X-Api-Key": TOKEN}, "/v2/tasks")


VERSION = {"anthropic-version": "2023-06-01"}


def test_models_have_pages_and_errors_of_that_api(model):
    names = [f"tiny-{n}" for n in range(5)]
    settings = {f"models.aliases.{name}": f"file:{model}" for name in names} | {"models.allowed_roots": str(model.parent)}
    with Stack(settings) as stack:
        def page(query=""):
            answer = stack.request("GET", f"/v1/models{query}", headers=VERSION)
            assert answer.status == 200, answer.body
            assert (answer.json["first_id"], answer.json["last_id"]) == (answer.json["data"][0]["id"], answer.json["data"][-1]["id"])
            return [listed["id"] for listed in answer.json["data"]], answer.json["has_more"]

        everything, more = page()
        assert set(names) <= set(everything) and not more
        assert page("?limit=2") == (everything[:2], True) and page(f"?limit=2&after_id={everything[1]}") == (everything[2:4], True)
        assert page(f"?limit=2&before_id={everything[3]}") == (everything[1:3], True)
        for query, status in (("?limit=0", 400), ("?after_id=nobody", 400), ("/nobody", 404)):
            refused = stack.request("GET", f"/v1/models{query}", headers=VERSION)
            assert (refused.status, refused.json["type"]) == (status, "error") and refused.json["request_id"] == refused.headers["request-id"]
            assert status == 400 or stack.request("GET", f"/v1/models{query}").json["error"]["type"] == "invalid_request_error"


def test_models_where_one_api_is_off(model):
    for off, headers, kind in (("openai", VERSION, None), ("anthropic", VERSION, "list")):
        with Stack({**settings_of(model), f"orchestratord.gateways.{off}": "false"}) as stack:
            listed = stack.request("GET", "/v1/models", headers=headers)
            assert (listed.status, listed.json.get("object")) == (200, kind), listed.body
            assert stack.request("GET", "/v1/models/tiny", headers=headers).status == 200
            assert off == "anthropic" or stack.request("GET", "/v1/models").json["error"]["type"] == "not_found_error"


def test_a_key_is_not_looked_at_where_no_token_is_configured(stack):
    assert stack.request("POST", "/v1/messages", "{", {"X-Api-Key": "none"}).status == 400


def test_kill_9_of_the_worker_in_the_middle_of_a_stream(model):
    """The client reads on, and has the answer that it would have had."""
    fields = {"max_tokens": 100, "stream": True, "regex": "a{60}"}
    with Stack(settings_of(model)) as stack:
        calm = text_of(events_of(ask(stack, **fields).body.decode()))
        stack.gate.hold()
        stack.gate.let_pass(20)
        connection = http.client.HTTPConnection(stack.bind, timeout=60)
        connection.request("POST", "/v1/messages", json.dumps({**ASKED, **fields}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        begun = b""
        while b"text_delta" not in begun:
            begun += response.readline()
        wait_for("the steps to be done", lambda: stack.gate.steps_left() == 0)
        worker = stack.ready_worker()
        os.kill(worker["pid"], signal.SIGKILL)
        stack.gate.open()
        events = events_of((begun + response.read()).decode())
        connection.close()
        assert text_of(events) == calm == "a" * 60 and events[-1][0] == "message_stop"
        assert stack.job(events[0][1]["message"]["id"].removeprefix("msg_"))["attempts"] >= 2


def test_a_page_may_send_what_the_official_client_sends(model):
    page = "https://chat.example"
    with Stack({**settings_of(model), "orchestratord.cors_origins": page}) as stack:
        asked = "anthropic-version,anthropic-dangerous-direct-browser-access,content-type,x-api-key,x-stainless-retry-count"
        allowed = stack.request("OPTIONS", "/v1/messages", headers={"Origin": page, "Access-Control-Request-Method": "POST",
                                                                    "Access-Control-Request-Headers": asked})
        assert allowed.status == 204
        names = {name.strip().lower() for name in allowed.headers["access-control-allow-headers"].split(",")}
        assert set(asked.split(",")) <= names


def test_the_gateway_can_be_switched_off(model):
    with Stack({**settings_of(model), "orchestratord.gateways.anthropic": "false"}) as stack:
        assert stack.request("POST", "/v1/messages", ASKED).status == 404
