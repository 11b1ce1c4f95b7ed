"""Frameworks that people already have, at /v1: LiteLLM and LangChain."""

from typing import Literal

import pytest

QUESTION = "Name a colour of the sky."


def test_litellm(chat_stack):
    litellm = pytest.importorskip("litellm", reason="PyPI litellm is not installed (tools/clients)")
    asked = {"model": "openai/chat", "api_base": f"{chat_stack.url}/v1", "api_key": "none", "max_tokens": 16, "seed": 7,
             "messages": [{"role": "user", "content": QUESTION}]}
    whole = litellm.completion(**asked)
    assert whole.choices[0].message.content and whole.usage.completion_tokens > 0
    chunks = litellm.completion(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    with pytest.raises(litellm.exceptions.NotFoundError):
        litellm.completion(**{**asked, "model": "openai/none"})
    long = [{"role": "user", "content": "word " * 20_000}]
    with pytest.raises(litellm.exceptions.ContextWindowExceededError):
        litellm.completion(**{**asked, "messages": long})
    with pytest.raises(litellm.exceptions.ContextWindowExceededError):
        litellm.completion(**{**asked, "model": "anthropic/chat", "api_base": chat_stack.url, "messages": long, "seed": None})


def test_langchain(chat_stack):
    langchain_openai = pytest.importorskip("langchain_openai", reason="PyPI langchain-openai is not installed (tools/clients)")

    def colour_of(thing: Literal["sky", "sea"]) -> str:
        """The colour of a thing."""
        return f"{thing} is blue"

    chat = langchain_openai.ChatOpenAI(model="chat", base_url=f"{chat_stack.url}/v1", api_key="none", max_tokens=64, seed=7)
    answer = chat.invoke(QUESTION)
    assert answer.content and answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == answer.content
    called = chat.bind_tools([colour_of], tool_choice="colour_of").invoke(QUESTION)
    assert [call["name"] for call in called.tool_calls] == ["colour_of"] and set(called.tool_calls[0]["args"]) == {"thing"}


def test_langchain_reads_a_structured_answer(chat_stack):
    langchain_openai = pytest.importorskip("langchain_openai", reason="PyPI langchain-openai is not installed (tools/clients)")
    from pydantic import BaseModel, Field

    class Answer(BaseModel):
        colour: str = Field(max_length=12)

    chat = langchain_openai.ChatOpenAI(model="chat", base_url=f"{chat_stack.url}/v1", api_key="none", max_tokens=64, seed=7)
    for method in ("json_schema", "function_calling"):
        assert isinstance(chat.with_structured_output(Answer, method=method).invoke(QUESTION).colour, str)
