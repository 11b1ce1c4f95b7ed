"""The official OpenAI client at /v1: what it reads is what was sent, and what it raises is what happened."""

import asyncio
import json
from typing import Literal

import pytest

openai = pytest.importorskip("openai", reason="PyPI openai is not installed (tools/clients)")

from pydantic import BaseModel  # noqa: E402  (comes with openai)

from conftest import TOKEN  # noqa: E402
from stack import ALIAS, wait_for  # noqa: E402

QUESTION = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Name a colour of the sky."}]
CHAT = {"model": "chat", "messages": QUESTION, "max_tokens": 16, "seed": 7}
TALE = {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 12, "seed": 7}


def client_of(stack, **options):
    return openai.OpenAI(base_url=f"{stack.url}/v1", **{"api_key": "none", "max_retries": 0, **options})


@pytest.fixture
def client(stack):
    with client_of(stack) as connected:
        yield connected


@pytest.fixture
def chat_client(chat_stack, client):
    return client


def job_of(stack, answer_id):
    return stack.job(answer_id.split("-", 1)[1])


def test_models_are_listed_and_shown(client):
    names = [model.id for model in client.models.list()]
    assert names == sorted(names) and ALIAS in names
    assert client.models.retrieve(ALIAS).owned_by == "llama-orch"
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("nobody")
    assert refused.value.code == "model_not_found"


def test_several_choices(client):
    alone = client.completions.create(**TALE)
    whole = client.completions.create(**TALE, n=3)
    assert [choice.index for choice in whole.choices] == [0, 1, 2] and whole.choices[0].text == alone.choices[0].text
    assert whole.usage.completion_tokens == 36 and whole.usage.prompt_tokens == alone.usage.prompt_tokens
    texts = ["", "", ""]
    for chunk in client.completions.create(**TALE, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_prompts_of_token_ids(client, stack):
    ids = stack.request("POST", "/tokenize", {"model": ALIAS, "content": TALE["prompt"], "add_special": True}).json["tokens"]
    text = client.completions.create(**TALE)
    alone = client.completions.create(**{**TALE, "prompt": ids})
    assert (alone.choices[0].text, alone.usage) == (text.choices[0].text, text.usage)
    several = client.completions.create(**{**TALE, "prompt": [ids, ids[:2]]})
    assert len(several.choices) == 2 and several.choices[0].text == text.choices[0].text


def test_several_prompts(client):
    tale = {"model": ALIAS, "max_tokens": 8, "seed": 7}
    whole = client.completions.create(prompt=["Once upon a time", "The fox"], **tale)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert [choice.text for choice in whole.choices] == [client.completions.create(prompt=prompt, **tale).choices[0].text
                                                         for prompt in ("Once upon a time", "The fox")]


def test_several_answers_of_a_chat(chat_client):
    whole = chat_client.chat.completions.create(**CHAT, n=2)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert whole.choices[0].message.content == chat_client.chat.completions.create(**CHAT).choices[0].message.content
    texts = ["", ""]
    for chunk in chat_client.chat.completions.create(**CHAT, n=2, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]


def test_a_chat_is_answered_and_its_job_is_a_job(chat_client, chat_stack):
    answer = chat_client.chat.completions.create(**CHAT)
    choice = answer.choices[0]
    assert (choice.message.role, choice.finish_reason in ("stop", "length")) == ("assistant", True)
    assert choice.message.content
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    job = job_of(chat_stack, answer.id)
    assert (job["status"], job["tokens_in"], job["tokens_out"]) == ("completed", answer.usage.prompt_tokens,
                                                                    answer.usage.completion_tokens)
    assert answer.llorch["receipt"] == job["receipt"] and job["receipt"]["seed"] == 7
    assert answer.system_fingerprint.startswith("fp_")


def test_a_streamed_chat_says_what_the_whole_one_says(chat_client):
    whole = chat_client.chat.completions.create(**CHAT)
    chunks = list(chat_client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices
    assert chunks[-2].system_fingerprint == whole.system_fingerprint
    assert len({c.id for c in chunks}) == 1


def test_the_helper_that_collects_a_stream(chat_client):
    short = {**CHAT, "extra_body": {"regex": "(blue|grey)"}}  # it takes no answer that was cut
    with chat_client.chat.completions.stream(**short) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == chat_client.chat.completions.create(**short).choices[0].message.content


def test_an_answer_can_be_sent_back(chat_client):
    first = chat_client.chat.completions.create(**CHAT).choices[0].message
    more = [*QUESTION, first.model_dump(), {"role": "user", "content": [{"type": "text", "text": "Another?"}]}]
    assert chat_client.chat.completions.create(**{**CHAT, "messages": more}).choices[0].message.content


def test_a_structured_output_is_parsed(chat_client):
    class Sky(BaseModel):
        colour: Literal["red", "green", "blue"]
        cloudy: bool

    answer = chat_client.chat.completions.parse(**{**CHAT, "max_tokens": 64}, response_format=Sky)
    assert isinstance(answer.choices[0].message.parsed, Sky)


def test_a_json_object_is_one(chat_client):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"], "additionalProperties": False}}}
    answer = chat_client.chat.completions.create(**{**CHAT, "max_tokens": 64}, response_format=schema)
    assert json.loads(answer.choices[0].message.content)["n"] in range(10)
    loose = chat_client.chat.completions.create(**{**CHAT, "max_tokens": 8}, response_format={"type": "json_object"})
    assert loose.choices[0].message.content.lstrip().startswith("{")


def test_log_probabilities_spell_the_answer(chat_client):
    choice = chat_client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2).choices[0]
    spelled = b"".join(bytes(token.bytes) for token in choice.logprobs.content)
    assert spelled.decode() == choice.message.content
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in choice.logprobs.content)
    chunks = list(chat_client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2, stream=True))
    streamed = [token for c in chunks if c.choices[0].logprobs for token in c.choices[0].logprobs.content]
    assert streamed == choice.logprobs.content


def test_a_stop_text_ends_the_output(client):
    whole = client.completions.create(**{**TALE, "max_tokens": 40}).choices[0].text
    stop = whole.split()[3]
    cut = client.completions.create(**{**TALE, "max_tokens": 40}, stop=stop).choices[0]
    assert (cut.text, cut.finish_reason) == (whole[:whole.index(stop)], "stop")


def test_a_completion_streams_echoes_and_counts(client):
    whole = client.completions.create(**TALE)
    assert (whole.choices[0].finish_reason, whole.usage.completion_tokens) == ("length", 12)
    chunks = list(client.completions.create(**TALE, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    echoed = client.completions.create(**TALE, echo=True).choices[0].text
    assert echoed == TALE["prompt"] + whole.choices[0].text
    assert "".join(c.choices[0].text for c in client.completions.create(**TALE, echo=True, stream=True)) == echoed


def test_log_probabilities_of_a_completion(client):
    choice = client.completions.create(**TALE, logprobs=2).choices[0]
    assert "".join(choice.logprobs.tokens) == choice.text
    assert [choice.text[at:at + len(t)] for at, t in zip(choice.logprobs.text_offset, choice.logprobs.tokens)] == choice.logprobs.tokens
    assert all(len(top) == 2 for top in choice.logprobs.top_logprobs)


def test_fields_of_our_own_go_in_the_extra_body(client):
    greedy = client.completions.create(**{**TALE, "seed": 1}, temperature=0).choices[0].text
    assert client.completions.create(**{**TALE, "seed": 2}, extra_body={"top_k": 1}).choices[0].text == greedy


def test_the_asynchronous_client(stack):
    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(client.completions.create(**TALE) for _ in range(4)))

    assert len({answer.choices[0].text for answer in asyncio.run(ask())}) == 1


def test_a_response_streams_and_says_the_same(chat_client, chat_stack):
    asked = {"model": "chat", "input": QUESTION, "max_output_tokens": 16, "extra_body": {"seed": 7}}
    whole = chat_client.responses.create(**asked)
    assert whole.status in ("completed", "incomplete")
    assert whole.output_text == chat_client.chat.completions.create(**CHAT).choices[0].message.content
    events = list(chat_client.responses.create(**asked, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added",
                                                    "response.content_part.added"]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    final = events[-1].response
    assert (final.output_text, final.usage, final.status) == (whole.output_text, whole.usage, whole.status)
    assert chat_stack.job(final.id.removeprefix("resp_"))["receipt"] == final.llorch["receipt"]


def test_a_response_goes_on_from_its_items_and_is_structured(chat_client):
    class Sky(BaseModel):
        colour: Literal["red", "green", "blue"]

    first = chat_client.responses.create(model="chat", instructions="You are terse.", input="Hello", max_output_tokens=8, extra_body={"seed": 7})
    items = [{"role": "user", "content": "Hello"}, *(item.model_dump() for item in first.output), *QUESTION[1:]]
    answer = chat_client.responses.parse(model="chat", input=items, text_format=Sky, max_output_tokens=64, extra_body={"seed": 7})
    assert answer.output_parsed.colour in ("red", "green", "blue")


def test_a_custom_tool_is_called_with_one_text(chat_client):
    tool = {"type": "custom", "name": "note", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]{3}"}}
    asked = {"model": "chat", "input": QUESTION, "tools": [tool], "tool_choice": {"type": "custom", "name": "note"}, "extra_body": {"seed": 7}}
    (call,) = chat_client.responses.create(**asked).output
    assert (call.type, call.name, len(call.input)) == ("custom_tool_call", "note", 3)
    events = list(chat_client.responses.create(**asked, stream=True))
    (done,) = [event for event in events if event.type == "response.custom_tool_call_input.done"]
    assert done.input == call.input == "".join(event.delta for event in events if event.type == "response.custom_tool_call_input.delta")
    assert events[-1].response.output[0].input == call.input


def test_log_probabilities_of_a_prompt_as_of_vllm(client):
    first, *others = client.completions.create(**TALE, extra_body={"prompt_logprobs": 1}).choices[0].prompt_logprobs
    assert first is None and others and all("decoded_token" in token for entry in others for token in entry.values())


@pytest.mark.parametrize("fields, param, code", [
    ({"n": 17}, "n", "invalid_params"),
    ({"temperature": 3}, "temperature", "invalid_params"),
    ({"stop": ["a"] * 17}, "stop", "invalid_params"),
    ({"extra_body": {"no_such_field": 1}}, "no_such_field", "unknown_parameter"),
    ({"prompt": [1, 10**9]}, "prompt", "invalid_params"),
    ({"prompt": "once " * 600}, None, "context_length_exceeded"),
])
def test_a_bad_request_names_its_field(client, fields, param, code):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{**TALE, **fields})
    assert (refused.value.param, refused.value.code, refused.value.type) == (param, code, "invalid_request_error")
    assert refused.value.body["llorch"]["code"] == "INVALID_PARAMS"
    assert refused.value.body["llorch"]["correlation_id"] == refused.value.request_id


def test_a_model_without_a_chat_template_says_so(client):
    with pytest.raises(openai.BadRequestError, match="chat template"):
        client.chat.completions.create(**{**CHAT, "model": ALIAS})


def test_an_unknown_model_and_an_unknown_path(client, stack):
    with pytest.raises(openai.NotFoundError) as refused:
        client.completions.create(**{**TALE, "model": "nobody"})
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as refused:
        client.images.generate(model=ALIAS, prompt="x")
    assert refused.value.code == "unknown_url"


def test_callers_without_a_token_are_told(guarded_stack):
    for key in ("none", "k" * 40):
        with client_of(guarded_stack, api_key=key) as client, pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert refused.value.code == "invalid_api_key"
    with client_of(guarded_stack, api_key=TOKEN) as client:
        assert client.completions.create(**TALE).choices[0].text


def held_stream(stack, client):
    """A stream that has said a token and will say no more, and the id of its job."""
    stack.gate.hold()
    stack.gate.let_pass(1)
    stream = client.completions.create(**{**TALE, "max_tokens": 200}, stream=True)
    return stream, next(iter(stream)).id.split("-", 1)[1]


def test_an_error_in_a_stream_is_raised(client, stack):
    client.completions.create(**TALE)  # a worker is there
    stream, job_id = held_stream(stack, client)
    try:
        assert stack.request("POST", f"/v2/tasks/{job_id}/cancel").status == 202
    finally:
        stack.gate.open()
    with pytest.raises(openai.APIError) as raised:
        list(stream)
    assert raised.value.code == "cancelled"


def test_a_client_that_leaves_cancels_its_job(client, stack):
    client.completions.create(**TALE)
    stream, job_id = held_stream(stack, client)
    try:
        stream.close()
        wait_for("the job to be cancelled", lambda: stack.job(job_id)["status"] == "cancelled")
    finally:
        stack.gate.open()
