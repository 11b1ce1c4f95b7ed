"""Calls that a request demands, at /v1 with a model of random weights: the grammar makes them, the reader finds them."""

import json
import subprocess

import pytest
from chat_model import HERMES_MARKERS, HERMES_TEMPLATE, write_chat_model
from stack import BIN, Stack, llorch, wait_for

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {
    "type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}}}
    for name in ("turn", "look")]
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "tools": TOOLS, "seed": 3, "parallel_tool_calls": False}


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    write_chat_model(models / "tiny-llama")
    write_chat_model(models / "hermes", HERMES_TEMPLATE, HERMES_MARKERS)
    write_chat_model(models / "silent", markers=HERMES_MARKERS)  # its template teaches nothing
    with Stack({"models.aliases.tiny": f"file:{models}/tiny-llama", "models.aliases.hermes": f"file:{models}/hermes",
                "models.aliases.silent": f"file:{models}/silent", "models.chat_format.silent": "hermes",
                "models.allowed_roots": str(models)}) as stack:
        yield stack


def ask(stack, path="/v1/chat/completions", **fields):
    body = {**(ASKED if path == "/v1/chat/completions" else {}), **fields}

    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the directory

    return wait_for("the model to be known", answered)


def chunks(response):
    lines = [line.removeprefix("data: ") for line in response.body.decode().splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line)["choices"][0] for line in lines[:-1]]


def test_a_required_call_follows_its_schema(stack):
    choice = ask(stack, tool_choice="required").json["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] in ("turn", "look")
    assert json.loads(call["function"]["arguments"])["side"] in ("left", "right")
    named = ask(stack, tool_choice={"type": "function", "function": {"name": "look"}}).json["choices"][0]["message"]["tool_calls"]
    assert [c["function"]["name"] for c in named] == ["look"]


def test_a_stream_sends_the_call_whole(stack):
    whole = ask(stack, tool_choice="required").json["choices"][0]["message"]["tool_calls"][0]["function"]
    streamed = chunks(ask(stack, tool_choice="required", stream=True))
    calls = [c["delta"]["tool_calls"] for c in streamed if "tool_calls" in c["delta"]]
    assert [[c["function"] for c in part] for part in calls] == [[whole]]
    assert streamed[-1]["finish_reason"] == "tool_calls"


def test_a_call_and_its_result_go_back_into_the_conversation(stack):
    message = ask(stack, tool_choice="required").json["choices"][0]["message"]
    told = [*ASKED["messages"], message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}]
    answer = ask(stack, messages=told, tool_choice="none", max_tokens=4)
    assert answer.status == 200 and "tool_calls" not in answer.json["choices"][0]["message"]


def test_a_response_has_the_call_as_an_item(stack):
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    fields = {"model": "tiny", "input": "go", "tools": flat, "seed": 3, "parallel_tool_calls": False}
    response = ask(stack, "/v1/responses", **fields, tool_choice={"type": "function", "name": "turn"})
    (item,) = response.json["output"]
    assert (item["type"], item["name"], item["status"]) == ("function_call", "turn", "completed")
    assert json.loads(item["arguments"])["side"] in ("left", "right")


ANSWER = {"type": "object", "properties": {"went": {"enum": ["left", "right"]}}, "required": ["went"], "additionalProperties": False}


@pytest.mark.parametrize("model", ["tiny", "hermes"])
def test_a_model_calls_or_writes_the_json(stack, model):
    kinds = set()
    for seed in range(32):
        choice = ask(stack, model=model, seed=seed, temperature=2, max_tokens=200,
                     response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}).json["choices"][0]
        if choice["finish_reason"] == "length":
            continue
        kinds.add(choice["finish_reason"])
        if choice["finish_reason"] == "tool_calls":
            (call,) = choice["message"]["tool_calls"]
            assert choice["message"]["content"] is None and call["function"]["name"] in ("turn", "look")
            assert json.loads(call["function"]["arguments"])["side"] in ("left", "right")
        else:
            assert json.loads(choice["message"]["content"])["went"] in ("left", "right") and "tool_calls" not in choice["message"]
        if kinds == {"stop", "tool_calls"}:
            return
    raise AssertionError(f"the model never had the choice: {kinds}")


def test_a_custom_tool_is_called_with_one_text(stack):
    tool = {"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "go (left|right)"}}
    asked = {"model": "tiny", "input": "go", "tools": [tool], "tool_choice": {"type": "custom", "name": "run"}, "seed": 3}
    response = ask(stack, "/v1/responses", **asked)
    assert response.status == 200, response.body
    (item,) = response.json["output"]
    assert (item["type"], item["name"], item["status"]) == ("custom_tool_call", "run", "completed")
    assert item["input"] in ("go left", "go right")
    streamed = ask(stack, "/v1/responses", **asked, stream=True).body.decode()
    events = [json.loads(line.removeprefix("data: ")) for line in streamed.splitlines() if line.startswith("data: ")]
    assert [event["delta"] for event in events if event["type"] == "response.custom_tool_call_input.delta"] == [item["input"]]
    told = [{"role": "user", "content": "go"}, item, {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "done"}]
    assert ask(stack, "/v1/responses", **{**asked, "input": told, "tool_choice": "none"}, max_output_tokens=4).status == 200
    lark = {**tool, "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}}
    refused = ask(stack, "/v1/responses", **{**asked, "tools": [lark]})
    assert refused.status == 400 and refused.json["error"]["param"] == "tool_choice"


def test_what_cannot_be_called_is_refused(stack):
    for fields, field in (({"tool_choice": "required", "tools": []}, "tool_choice"),
                          ({"tool_choice": {"type": "function", "function": {"name": "jump"}}}, None),
                          ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "tool_choice")):
        refused = ask(stack, **fields)
        assert refused.status == 400, refused.body
        assert field is None or refused.json["error"]["param"] == field


def test_a_required_call_is_written_with_the_models_own_tokens(stack):
    asked = {**ASKED, "model": "hermes", "tool_choice": "required"}
    answer = ask(stack, **asked, logprobs=True)
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"])["side"] in ("left", "right")
    tokens = answer.json["choices"][0]["logprobs"]["content"]
    spelled = bytes(byte for token in tokens for byte in token["bytes"] or [])
    # A control token has no text: what has text is the call without its markers.
    assert spelled.strip().startswith(b'{"name": "') and b"tool_call" not in spelled
    again = ask(stack, **asked, logprobs=True)
    assert again.json["choices"][0]["logprobs"] == answer.json["choices"][0]["logprobs"]


def test_a_grammar_names_no_control_token_but_the_formats_markers(stack):
    def run(model, grammar):
        return stack.request("POST", "/v2/tasks?wait=true", {"model": model, "prompt": "x", "max_tokens": 8, "seed": 1, "grammar": grammar})

    marked = run("hermes", 'root ::= "a" <[3]> "b" <[4]>')
    assert marked.status == 200, marked.body
    assert marked.json["text"] == "ab" and marked.json["tokens_out"] == 5  # with the end
    for model, token in (("hermes", 1), ("hermes", 40), ("tiny", 3)):
        refused = run(model, f"root ::= <[{token}]>")
        assert refused.status == 400 and f"names token {token}" in refused.body.decode(), refused.body


def test_the_configuration_names_a_format(stack):
    def format_of(model):
        ask(stack, model=model, max_tokens=1)  # from here on the model is known
        return stack.request("GET", f"/v2/catalog/models/{model}?facts=true").json["chat_format"]

    told = {"name": "hermes", "reason": "models.chat_format names it", "source": "configuration", "control_tokens": list(HERMES_MARKERS)}
    assert format_of("silent") == told
    assert format_of("hermes") == {**told, "source": "template", "reason": "the chat template spells <tool_call>"}
    assert format_of("tiny")["name"] == "generic" and format_of("tiny")["source"] == "default"
    (call,) = ask(stack, model="silent", tool_choice="required", logprobs=True).json["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] in ("turn", "look")
    ran = llorch("--url", stack.url, "show", "silent", state_dir=stack.dir)
    assert ran.returncode == 0 and b"hermes: models.chat_format names it" in ran.stdout, ran
    wrong = subprocess.run([BIN / "orchestratord", "--state-dir", str(stack.dir / "other"), "--bind", "127.0.0.1:0", "--set",
                            "models.aliases.x=file:/x", "--set", "models.chat_format.x=chatml"],
                           capture_output=True, text=True, env=stack.env, check=False)
    assert wrong.returncode != 0 and "models.chat_format.x is no chat format; there are generic, hermes" in wrong.stdout + wrong.stderr, wrong
