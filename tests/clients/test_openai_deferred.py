"""The official OpenAI client with what it leaves and fetches later: responses in the background, files, batches."""

import json

import pytest

openai = pytest.importorskip("openai", reason="PyPI openai is not installed (tools/clients)")

from stack import ALIAS, HANG_S, wait_for  # noqa: E402

ASK = {"model": "chat", "input": "Name a colour of the sky.", "max_output_tokens": 24, "seed": 7, "background": True}


def client_of(stack):
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=HANG_S)


@pytest.fixture
def client(stack):
    with client_of(stack) as connected:
        yield connected


def create(client, **fields):
    fields = {**ASK, **fields}
    return client.responses.create(extra_body={"seed": fields.pop("seed")}, **fields)


def done(client, response_id):
    def ended():
        response = client.responses.retrieve(response_id)
        return response if response.status not in ("queued", "in_progress") else None

    return wait_for("the response", ended)


def test_a_response_in_the_background(chat_stack, client):
    begun = create(client)
    assert begun.status == "queued" and begun.background is True
    response = done(client, begun.id)
    assert response.output_text and response.status in ("completed", "incomplete")
    waited = create(client, background=False)
    assert waited.output_text == response.output_text, "the same bytes"
    events = list(client.responses.retrieve(begun.id, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    rest = list(client.responses.retrieve(begun.id, stream=True, starting_after=4))
    assert rest == events[5:]
    client.responses.delete(begun.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(begun.id)


def test_a_conversation_that_the_server_keeps(chat_stack, client):
    first = create(client, background=False, store=True)
    assert first.store is True and client.responses.retrieve(first.id).output_text == first.output_text
    second = create(client, background=False, input="And of grass?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    history = [{"role": "user", "content": ASK["input"]}, *[item.model_dump() for item in first.output], {"role": "user", "content": "And of grass?"}]
    assert create(client, background=False, input=history).output_text == second.output_text
    client.responses.delete(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, background=False, input="And?", previous_response_id=first.id)
    assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")


def test_a_conversation_of_its_own(chat_stack, client):
    talk = client.conversations.create(items=[{"type": "message", "role": "system", "content": "Be terse."}], metadata={"topic": "sky"})
    assert talk.metadata == {"topic": "sky"} and client.conversations.retrieve(talk.id) == talk
    first = create(client, background=False, conversation=talk.id)
    with client.responses.stream(model="chat", input="And of grass?", max_output_tokens=24, conversation=talk.id, extra_body={"seed": 7}) as stream:
        second = stream.get_final_response()
    assert first.conversation.id == second.conversation.id == talk.id
    history = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": ASK["input"]}, *[item.model_dump() for item in first.output],
               {"role": "user", "content": "And of grass?"}]
    assert create(client, background=False, input=history).output_text == second.output_text
    items = list(client.conversations.items.list(talk.id, order="asc", limit=2))  # the client turns the pages
    assert [item.role for item in items] == ["system", "user", "assistant", "user", "assistant"]
    assert items[4].id == second.output[0].id and items[4].content[0].text == second.output_text
    added = client.conversations.items.create(talk.id, items=[{"type": "message", "role": "user", "content": "Thanks."}])
    assert client.conversations.items.retrieve(added.data[0].id, conversation_id=talk.id).content[0].text == "Thanks."
    assert client.conversations.items.delete(added.data[0].id, conversation_id=talk.id).id == talk.id
    assert client.conversations.update(talk.id, metadata={"topic": "grass"}).metadata == {"topic": "grass"}
    chat_stack.gate.hold()
    try:
        running = create(client, conversation=talk.id)
        with pytest.raises(openai.ConflictError) as refused:
            create(client, conversation=talk.id)
        assert refused.value.param == "conversation"
        client.responses.cancel(running.id)
    finally:
        chat_stack.gate.open()
    assert client.conversations.delete(talk.id).deleted
    with pytest.raises(openai.NotFoundError):
        create(client, background=False, conversation=talk.id)


def test_tokens_of_an_input_are_counted(chat_stack, client):
    first = create(client, background=False, store=True)
    for fields in ({"input": ASK["input"]}, {"input": "And of grass?", "previous_response_id": first.id}, {"input": "x", "instructions": "Be terse."}):
        counted = client.responses.input_tokens.count(model=ASK["model"], **fields)
        assert counted.object == "response.input_tokens"
        assert counted.input_tokens == create(client, background=False, **fields).usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        client.responses.input_tokens.count(model="nobody", input="x")


def test_items_of_a_kept_response(chat_stack, client):
    first = create(client, background=False, store=True)
    asked = list(client.responses.input_items.list(first.id))
    assert [item.type for item in asked] == ["message"] and asked[0].content[0].text == ASK["input"]
    references = [{"type": "item_reference", "id": item.id} for item in (*asked, *first.output)]
    question = {"role": "user", "content": "And of grass?"}
    second = create(client, background=False, input=[*references, question], store=True)
    history = [{"role": "user", "content": ASK["input"]}, *[item.model_dump() for item in first.output], question]
    assert create(client, background=False, input=history).output_text == second.output_text
    whole = list(client.responses.input_items.list(second.id, order="asc", limit=1))  # the client turns the pages
    assert [item.id for item in whole][:-1] == [reference["id"] for reference in references]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError) as refused:
        create(client, background=False, input=[references[0]])
    assert refused.value.param == "input[0].id"
    with pytest.raises(openai.NotFoundError):
        client.responses.input_items.list(first.id)


# The bar of the field's own resume, with ours underneath.
def test_a_stream_is_resumed_after_everything_was_killed(chat_stack, client):
    whole = list(client.responses.retrieve(done(client, create(client).id).id, stream=True))
    chat_stack.gate.hold()
    chat_stack.gate.let_pass(6)
    stream = create(client, stream=True)
    first = [next(iter(stream)) for _ in range(8)]
    response_id = first[0].response.id
    for process in (chat_stack.orchestrator, chat_stack.pool):
        process.kill()
        process.wait()
    stream.close()
    chat_stack.gate.open()
    chat_stack.start()
    with client_of(chat_stack) as again:
        rest = list(again.responses.retrieve(response_id, stream=True, starting_after=first[-1].sequence_number))
        deltas = [[event.delta for event in events if event.type == "response.output_text.delta"] for events in (whole, first + rest)]
        assert deltas[0] == deltas[1] and len(deltas[0]) > 10
        assert [event.sequence_number for event in first + rest] == list(range(len(whole)))
        assert done(again, response_id).output_text == "".join(deltas[0])


def test_a_cancelled_response(chat_stack, client):
    chat_stack.gate.hold()
    try:
        begun = create(client, max_output_tokens=400)
        cancelled = client.responses.cancel(begun.id)
    finally:
        chat_stack.gate.open()
    assert cancelled.status == "cancelled" and client.responses.retrieve(begun.id).status == "cancelled"


def test_a_batch(stack, client):
    lines = [{"custom_id": f"tale-{n}", "method": "POST", "url": "/v1/completions",
              "body": {"model": ALIAS, "prompt": f"Once upon a time {n}", "max_tokens": 6, "seed": n}} for n in range(20)]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    assert (file.bytes, file.purpose) == (len(content), "batch") and file.id in [f.id for f in client.files.list()]
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    batch = wait_for("the batch", lambda: (b := client.batches.retrieve(batch.id)).status == "completed" and b)
    assert (batch.request_counts.completed, batch.request_counts.total) == (20, 20) and batch.error_file_id is None
    answers = {entry["custom_id"]: entry["response"] for entry in map(json.loads, client.files.content(batch.output_file_id).text.splitlines())}
    for line in lines[:3]:
        alone = client.completions.create(**line["body"])
        assert answers[line["custom_id"]]["body"]["choices"][0]["text"] == alone.choices[0].text
    assert batch.id in [b.id for b in client.batches.list()]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


def test_a_batch_that_cannot_begin(client):
    file = client.files.create(file=("in.jsonl", b"no line\n"), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    assert batch.status == "failed" and batch.errors.data[0].code == "invalid_json_line"
    with pytest.raises(openai.BadRequestError):
        client.batches.create(input_file_id="file-none", endpoint="/v1/completions", completion_window="24h")
