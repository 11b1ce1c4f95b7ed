"""Tools and reasoning with the official OpenAI client, and an agent whose calls are forced."""

import json

import pytest

openai = pytest.importorskip("openai", reason="PyPI openai is not installed (tools/clients)")

TOOLS = [{"type": "function", "function": {"name": name, "description": about, "parameters": parameters}} for name, about, parameters in (
    ("get_weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string", "maxLength": 24}},
                                               "required": ["city"], "additionalProperties": False}),
    ("add", "Adds two numbers.", {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 999},
                                                                   "b": {"type": "integer", "minimum": 0, "maximum": 999}},
                                  "required": ["a", "b"], "additionalProperties": False}),
    ("finish", "Ends the task.", {"type": "object", "properties": {"verdict": {"enum": ["done", "failed"]}},
                                  "required": ["verdict"], "additionalProperties": False}))]
ASKED = {"model": "chat", "messages": [{"role": "user", "content": "What is the weather in Paris?"}], "tools": TOOLS, "seed": 7,
         "max_tokens": 120, "parallel_tool_calls": False}


@pytest.fixture
def client(chat_stack):
    with openai.OpenAI(base_url=f"{chat_stack.url}/v1", api_key="none", max_retries=0) as connected:
        yield connected


def check(call):
    """A call of ours, with arguments that its schema allows."""
    assert call.type == "function" and call.id.startswith("call_")
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city"} and len(arguments["city"]) <= 24
    elif call.function.name == "add":
        assert set(arguments) == {"a", "b"} and all(0 <= n <= 999 for n in arguments.values())
    else:
        assert call.function.name == "finish" and arguments["verdict"] in ("done", "failed")
    return arguments


def test_a_required_call_is_made(client):
    answer = client.chat.completions.create(**ASKED, tool_choice="required")
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    check(*choice.message.tool_calls)
    again = client.chat.completions.create(**ASKED, tool_choice="required")
    assert again.choices[0].message.tool_calls[0].function == choice.message.tool_calls[0].function


def test_a_named_function_is_called(client):
    for name in ("get_weather", "add", "finish"):
        answer = client.chat.completions.create(**ASKED, tool_choice={"type": "function", "function": {"name": name}})
        (call,) = answer.choices[0].message.tool_calls
        check(call)
        assert call.function.name == name
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**ASKED, tool_choice={"type": "function", "function": {"name": "nobody"}})


def test_a_streamed_call_is_the_same(client):
    whole = client.chat.completions.create(**ASKED, tool_choice="required").choices[0].message.tool_calls[0]
    chunks = list(client.chat.completions.create(**ASKED, tool_choice="required", stream=True))
    calls = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
    assert [(c.index, c.function) for c in calls] == [(0, calls[0].function)]
    assert (calls[0].function.name, calls[0].function.arguments) == (whole.function.name, whole.function.arguments)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    with client.chat.completions.stream(**ASKED, tool_choice="required") as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.arguments == whole.function.arguments


def test_none_calls_nothing_and_auto_may(client):
    silent = client.chat.completions.create(**ASKED, tool_choice="none").choices[0]
    assert silent.message.tool_calls is None and silent.message.content
    free = client.chat.completions.create(**ASKED, tool_choice="auto").choices[0]
    assert free.message.content or free.message.tool_calls


def test_responses_hold_calls_as_items(client):
    flat = [{"type": "function", **tool["function"]} for tool in TOOLS]
    asked = {"model": "chat", "input": "What is the weather in Paris?", "tools": flat, "max_output_tokens": 120,
             "parallel_tool_calls": False, "extra_body": {"seed": 7}}
    response = client.responses.create(**asked, tool_choice={"type": "function", "name": "get_weather"})
    (call,) = [item for item in response.output if item.type == "function_call"]
    assert call.name == "get_weather" and set(json.loads(call.arguments)) == {"city"} and call.call_id.startswith("call_")
    events = list(client.responses.create(**asked, tool_choice={"type": "function", "name": "get_weather"}, stream=True))
    done = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert [e.arguments for e in done] == [call.arguments]
    assert events[-1].type == "response.completed" and events[-1].response.output[0].arguments == call.arguments
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_an_agent_calls_three_tools_over_five_turns(client):
    """Each call is forced; results go back as the API wants them."""
    messages = [{"role": "system", "content": "You use tools."}, {"role": "user", "content": "Add the temperatures of Paris and Rome."}]
    called = []
    for name in ("get_weather", "get_weather", "add", "add", "finish"):
        answer = client.chat.completions.create(model="chat", messages=messages, tools=TOOLS, seed=len(messages), max_tokens=120,
                                                parallel_tool_calls=False,
                                                tool_choice={"type": "function", "function": {"name": name}})
        message = answer.choices[0].message
        (call,) = message.tool_calls
        check(call)
        called.append(call.id)
        messages.append(message.model_dump(exclude_none=True))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps({"result": len(called)})})
    assert len(set(called)) == 5
    last = client.chat.completions.create(model="chat", messages=messages, tools=TOOLS, tool_choice="none", max_tokens=16, seed=1)
    assert last.choices[0].message.tool_calls is None  # what a model of this size makes of it is its own
