"""The official Anthropic client at /v1/messages: what it reads is what was sent, and what it raises is what happened."""

import json

import pytest

anthropic = pytest.importorskip("anthropic", reason="PyPI anthropic is not installed (tools/clients)")

from conftest import TOKEN  # noqa: E402
from stack import ALIAS, wait_for  # noqa: E402

CHAT = {"model": "chat", "system": "You are terse.", "max_tokens": 16,
        "messages": [{"role": "user", "content": "Name a colour of the sky."}], "extra_body": {"seed": 7}}
TOOLS = [{"name": name, "description": about, "input_schema": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 24}}, "required": ["city"], "additionalProperties": False}}
    for name, about in (("get_weather", "The weather of a city."), ("get_time", "The time in a city."))]


def client_of(stack, **options):
    return anthropic.Anthropic(base_url=stack.url, **{"api_key": "none", "max_retries": 0, **options})


@pytest.fixture
def client(stack):
    with client_of(stack) as connected:
        yield connected


@pytest.fixture
def chat_client(chat_stack, client):
    return client


def test_a_message_is_answered_and_its_job_is_a_job(chat_client, chat_stack):
    message = chat_client.messages.create(**CHAT)
    (block,) = message.content
    assert (message.role, block.type, message.stop_reason in ("end_turn", "max_tokens")) == ("assistant", "text", True)
    job = chat_stack.job(message.id.removeprefix("msg_"))
    assert (job["tokens_in"], job["tokens_out"]) == (message.usage.input_tokens, message.usage.output_tokens)
    assert message.llorch["receipt"] == job["receipt"] and job["receipt"]["seed"] == 7
    assert message._request_id
    again = chat_client.messages.create(**{**CHAT, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "Name a colour of the sky."}]}]})
    assert again.content[0].text == block.text


def test_a_streamed_message_says_what_the_whole_one_says(chat_client):
    whole = chat_client.messages.create(**CHAT)
    with chat_client.messages.stream(**CHAT) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens


def test_tokens_are_counted(chat_client):
    asked = {key: CHAT[key] for key in ("model", "system", "messages")}
    assert chat_client.messages.count_tokens(**asked).input_tokens == chat_client.messages.create(**CHAT).usage.input_tokens


def test_an_answer_and_the_result_of_a_call_can_be_sent_back(chat_client):
    asked = {**CHAT, "max_tokens": 120, "tools": TOOLS, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    message = chat_client.messages.create(**asked)
    (call,) = message.content
    assert (call.type, message.stop_reason) == ("tool_use", "tool_use")
    assert call.name in ("get_weather", "get_time") and set(call.input) == {"city"}
    with chat_client.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert [(c.name, c.input) for c in streamed.content] == [(call.name, call.input)]
    told = [*CHAT["messages"], message.to_param() if hasattr(message, "to_param") else {"role": "assistant", "content": message.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "grey"}]}]
    answer = chat_client.messages.create(**{**CHAT, "messages": told, "tools": TOOLS, "tool_choice": {"type": "none"}})
    assert answer.content[0].type == "text"


def test_a_named_tool_is_called(chat_client):
    for tool in TOOLS:
        message = chat_client.messages.create(**{**CHAT, "max_tokens": 120, "tools": TOOLS,
                                                 "tool_choice": {"type": "tool", "name": tool["name"]}})
        assert [block.name for block in message.content] == [tool["name"]]


def test_structured_output(chat_client):
    schema = {"type": "object", "properties": {"colour": {"enum": ["blue", "grey"]}}, "required": ["colour"], "additionalProperties": False}
    message = chat_client.messages.create(**{**CHAT, "max_tokens": 60}, output_config={"format": {"type": "json_schema", "schema": schema}})
    assert json.loads(message.content[0].text)["colour"] in ("blue", "grey")


def test_stop_sequences(chat_client):
    whole = chat_client.messages.create(**CHAT).content[0].text
    stop = whole[2:5]
    message = chat_client.messages.create(**CHAT, stop_sequences=[stop])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block.text for block in message.content) == whole[: whole.index(stop)]


@pytest.mark.parametrize("fields, raised", [
    ({"model": "nobody"}, "NotFoundError"),
    ({"max_tokens": 0}, "BadRequestError"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "BadRequestError"),
    ({"model": ALIAS}, "BadRequestError"),  # has no chat template
])
def test_refusals_raise_what_they_are(chat_client, fields, raised):
    with pytest.raises(getattr(anthropic, raised)) as refused:
        chat_client.messages.create(**{**CHAT, **fields})
    body = refused.value.body
    assert body["type"] == "error" and body["error"]["llorch"]["code"] and refused.value.request_id == body["request_id"]


def test_models_are_listed_as_the_client_reads_them(client):
    (model,) = [m for m in client.models.list() if m.id == ALIAS]
    assert (model.type, model.display_name) == ("model", ALIAS) and model.created_at.year > 2000
    assert client.models.retrieve(ALIAS) == model
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.models.retrieve("nobody")
    assert refused.value.request_id == refused.value.body["request_id"]


def test_a_batch_of_messages(chat_stack, client):
    requests = [{"custom_id": f"tale-{n}", "params": {**{k: v for k, v in CHAT.items() if k != "extra_body"}, "max_tokens": 4 + n, "seed": 7}}
                for n in range(6)]
    begun = client.messages.batches.create(requests=[*requests, {"custom_id": "nobody", "params": {**requests[0]["params"], "model": "nobody"}}])
    assert (begun.type, begun.request_counts.processing, begun.results_url) == ("message_batch", 7, None)
    batch = wait_for("the batch", lambda: (b := client.messages.batches.retrieve(begun.id)).processing_status == "ended" and b)
    assert (batch.request_counts.succeeded, batch.request_counts.errored, batch.request_counts.processing) == (6, 1, 0)
    assert batch.ended_at >= batch.created_at and batch.expires_at > batch.created_at
    results = {line.custom_id: line.result for line in client.messages.batches.results(batch.id)}
    assert set(results) == {request["custom_id"] for request in requests} | {"nobody"}
    assert (results["nobody"].type, results["nobody"].error.error.type) == ("errored", "not_found_error")
    for number in (0, 5):
        alone = client.messages.create(**{**CHAT, "max_tokens": 4 + number})
        message = results[f"tale-{number}"].message
        assert (message.content, message.stop_reason, message.usage) == (alone.content, alone.stop_reason, alone.usage)
    other = client.messages.batches.create(requests=requests[:1])
    assert [b.id for b in client.messages.batches.list(limit=1)][:2] == [other.id, batch.id]  # the client turns the pages
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.results(batch.id)


def test_a_cancelled_batch_of_messages(chat_stack, client):
    chat_stack.gate.hold()
    try:
        asked = {**{k: v for k, v in CHAT.items() if k != "extra_body"}, "max_tokens": 200}
        begun = client.messages.batches.create(requests=[{"custom_id": f"{n}", "params": asked} for n in range(50)])
        with pytest.raises(anthropic.ConflictError):
            client.messages.batches.delete(begun.id)
        with pytest.raises(anthropic.AnthropicError):
            client.messages.batches.results(begun.id)
        cancelled = client.messages.batches.cancel(begun.id)
        assert cancelled.processing_status in ("canceling", "ended") and cancelled.cancel_initiated_at
    finally:
        chat_stack.gate.open()
    batch = wait_for("the batch", lambda: (b := client.messages.batches.retrieve(begun.id)).processing_status == "ended" and b)
    types = [line.result.type for line in client.messages.batches.results(batch.id)]
    assert len(types) == 50 and types.count("canceled") == batch.request_counts.canceled > 0


# What edits a context that is too long changes nothing of one that fits.
def test_context_management_is_accepted(chat_client):
    asked = {key: value for key, value in CHAT.items() if key != "extra_body"}
    edits = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    message = chat_client.beta.messages.create(**asked, betas=["context-management-2025-06-27"], context_management=edits, extra_body={"seed": 7})
    assert message.content[0].text == chat_client.messages.create(**CHAT).content[0].text


def test_documents_of_text_are_read_and_files_refused(chat_client):
    def ask(source):
        return chat_client.messages.create(**{**CHAT, "messages": [{"role": "user", "content": [
            {"type": "document", "title": "Colours", "source": source, "citations": {"enabled": True}}, {"type": "text", "text": "Which?"}]}]})

    document = ask({"type": "text", "media_type": "text/plain", "data": "The sky is blue."})
    plain = chat_client.messages.create(**{**CHAT, "messages": [{"role": "user", "content": "Colours\n\nThe sky is blue.\nWhich?"}]})
    assert document.content[0].text == plain.content[0].text
    with pytest.raises(anthropic.BadRequestError, match="send its text"):
        ask({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjcK"})


def test_keys(guarded_stack):
    for options in ({"api_key": "w" * 40}, {"api_key": None, "auth_token": "w" * 40}):
        with client_of(guarded_stack, **options) as client, pytest.raises(anthropic.AuthenticationError):
            client.messages.count_tokens(model=ALIAS, messages=CHAT["messages"])
    for options in ({"api_key": TOKEN}, {"api_key": None, "auth_token": TOKEN}):
        with client_of(guarded_stack, **options) as client, pytest.raises(anthropic.BadRequestError):
            client.messages.count_tokens(model=ALIAS, messages=CHAT["messages"])  # it has no chat template
        with client_of(guarded_stack, **options) as client:
            assert ALIAS in [model.id for model in client.models.list(limit=1)]  # the client turns the pages
