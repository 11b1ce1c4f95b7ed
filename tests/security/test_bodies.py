"""What a tenant can write into the body of a request that a parser takes and nobody else can read."""

import json

import pytest

from attacker import JSON, TENANTS, bearer, send

TURN = {"role": "user", "content": "Once"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"default": "NUMBER"}}}}}
BODIES = {
    "a message": ("/v1/chat/completions", {"model": "demo", "messages": [{**TURN, "n": "NUMBER"}]}),
    "a tool": ("/v1/chat/completions", {"model": "demo", "messages": [TURN], "tools": [TOOL]}),
    "a template's variable": ("/v1/chat/completions", {"model": "demo", "messages": [TURN], "reasoning_effort": "low",
                                                       "chat_template_kwargs": {"n": "NUMBER"}}),
    "an item": ("/v1/responses", {"model": "demo", "input": [{**TURN, "n": "NUMBER"}]}),
    "a tool of a response": ("/v1/responses", {"model": "demo", "input": "Once", "tools": [{"type": "function", "name": "f",
                                                                                          "parameters": {"n": "NUMBER"}}]}),
    "a kept item": ("/v1/conversations", {"items": [{"type": "message", **TURN, "n": "NUMBER"}]}),
    "metadata": ("/v1/conversations", {"metadata": {"n": "NUMBER"}}),
    "metadata of a batch": ("/v1/batches", {"input_file_id": "file-1", "endpoint": "/v1/chat/completions", "completion_window": "24h",
                                            "metadata": {"n": "NUMBER"}}),
    "a message of Anthropic's": ("/v1/messages", {"model": "demo", "max_tokens": 2, "messages": [{**TURN, "n": "NUMBER"}]}),
    "a system text": ("/v1/messages", {"model": "demo", "max_tokens": 2, "messages": [TURN], "system": [{"type": "text", "text": "x",
                                                                                                     "n": "NUMBER"}]}),
    "a tool of Anthropic's": ("/v1/messages", {"model": "demo", "max_tokens": 2, "messages": [TURN],
                                               "tools": [{"name": "f", "input_schema": {"n": "NUMBER"}}]}),
    "a message of Ollama's": ("/api/chat", {"model": "demo", "messages": [{**TURN, "n": "NUMBER"}]}),
    "a message of a task": ("/v2/tasks", {"model": "demo", "messages": [{**TURN, "n": "NUMBER"}]}),
    "a schema": ("/v2/tasks", {"model": "demo", "prompt": "Once", "json_schema": {"const": "NUMBER"}}),
    "a key that nobody reads": ("/v1/tasks", {"task_id": "t", "n": "NUMBER"}),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_number_beyond_all_numbers_ends_nobody(guarded_stack, name):
    """A parser makes infinity of 1e999, and infinity written down again is no JSON: who reads that back must never see it."""
    path, body = BODIES[name]
    before = guarded_stack.orchestrator.pid
    for number in ("1e999", "-1e999"):
        text = json.dumps(body).replace('"NUMBER"', number)
        answer = send(guarded_stack.url, "POST", path, text, {**bearer(TENANTS["alice"]), **JSON})
        assert answer.status == 400, (number, answer.status, answer.body)
    assert guarded_stack.orchestrator.poll() is None and guarded_stack.orchestrator.pid == before
    assert send(guarded_stack.url, "GET", "/v2/tasks", headers=bearer(TENANTS["alice"])).status == 200
