"""The official Ollama client at /api: what it reads is what was sent, and what it raises is what happened."""

import json

import pytest

ollama = pytest.importorskip("ollama", reason="PyPI ollama is not installed (tools/clients)")

from conftest import TOKEN  # noqa: E402
from embedding_model import DIMENSIONS, write_embedding_model  # noqa: E402
from model_server import ModelServer  # noqa: E402
from stack import ALIAS, MODEL, Stack, wait_for  # noqa: E402

CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Name a colour of the sky."}], "options": {"num_predict": 16, "seed": 7}}
TALE = {"model": ALIAS, "prompt": "Once upon a time", "options": {"num_predict": 12, "seed": 7}}


@pytest.fixture
def client(stack):
    return ollama.Client(host=stack.url)


@pytest.fixture
def chat_client(chat_stack, client):
    return client


def test_a_text_is_continued_streamed_and_whole(client, stack):
    whole = client.generate(**TALE)
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 12)
    parts = list(client.generate(**TALE, stream=True))
    assert "".join(part.response for part in parts) == whole.response and parts[-1].done
    assert whole.total_duration == whole.load_duration + whole.prompt_eval_duration + whole.eval_duration


def test_a_chat_is_answered_streamed_and_whole(chat_client):
    whole = chat_client.chat(**CHAT)
    assert whole.message.role == "assistant" and whole.message.content
    parts = list(chat_client.chat(**CHAT, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert (parts[-1].done_reason, parts[-1].eval_count) == (whole.done_reason, whole.eval_count)
    told = [*CHAT["messages"], whole.message, {"role": "user", "content": "Why?"}]
    assert chat_client.chat(**{**CHAT, "messages": told}).message.content


def test_output_by_schema(chat_client):
    schema = {"type": "object", "properties": {"colour": {"enum": ["blue", "grey"]}}, "required": ["colour"], "additionalProperties": False}
    answer = chat_client.chat(**{**CHAT, "options": {"seed": 7}}, format=schema)
    assert json.loads(answer.message.content)["colour"] in ("blue", "grey")


def test_tools_can_be_offered_and_their_results_told(chat_client):
    def get_weather(city: str) -> str:
        """The weather of a city.

        Args:
          city: its name
        """
        return f"grey in {city}"

    assert chat_client.chat(**CHAT, tools=[get_weather]).message.role == "assistant"
    told = [*CHAT["messages"], {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}]}, {"role": "tool", "tool_name": "get_weather", "content": "grey"}]
    assert chat_client.chat(**{**CHAT, "messages": told}, tools=[get_weather]).message.content


def test_models_are_listed_shown_and_found_at_work(client):
    client.generate(**TALE)
    names = [model.model for model in client.list().models]
    assert f"{ALIAS}:latest" in names
    shown = client.show(names[0])
    assert shown.capabilities[0] == "completion" and shown.modelinfo["general.architecture"] == shown.details.family
    assert f"{ALIAS}:latest" in [model.model for model in client.ps().models]


def test_a_model_can_be_asked_for_before_a_question(client):
    assert client.generate(model=ALIAS, keep_alive="5m").done_reason == "load"


def test_vectors_of_texts(tmp_path):
    directory = tmp_path / "tiny-embeddings"
    write_embedding_model(directory)
    with Stack({"models.aliases.embed": f"file:{directory}", "models.allowed_roots": f"{tmp_path},{MODEL.parent}"}) as own:
        client = ollama.Client(host=own.url)
        both = wait_for("the model to be known", lambda: unless_unready(lambda: client.embed(model="embed", input=["Once", "upon a time"])))
        assert len(both.embeddings) == 2 and len(both.embeddings[0]) == DIMENSIONS and both.prompt_eval_count == 4 + 11 + 2
        assert client.embed(model="embed", input="Once").embeddings == both.embeddings[:1]
        assert client.embeddings(model="embed", prompt="Once").embedding == both.embeddings[0]
        assert len(client.embed(model="embed", input="Once", dimensions=7).embeddings[0]) == 7
        long = "there was a fox; " * 600
        assert client.embed(model="embed", input=long).embeddings
        with pytest.raises(ollama.ResponseError) as refused:
            client.embed(model="embed", input=long, truncate=False)
        assert refused.value.status_code == 400


def unless_unready(ask):
    try:
        return ask()
    except ollama.ResponseError as error:
        if error.status_code != 503:
            raise
        return None


def test_a_model_is_pulled_used_and_deleted(tmp_path):
    with ModelServer() as server, Stack({"models.cache_dir": str(tmp_path), "models.pull.allowed_hosts": "127.0.0.1"}) as own:
        server.add("/tale.gguf", MODEL.read_bytes())
        client = ollama.Client(host=own.url)
        parts = list(client.pull(f"{server.url}/tale.gguf", stream=True))
        assert parts[-1].status == "success"
        assert client.pull(f"{server.url}/tale.gguf").status == "success"
        (name,) = [model.model for model in client.list().models if model.model.startswith("tale")]
        assert client.generate(**{**TALE, "model": name}).eval_count == 12
        assert client.copy(name, "copied").status == "success"
        assert client.generate(**{**TALE, "model": "copied"}).eval_count == 12
        assert client.delete(name).status == "success"
        assert client.generate(**{**TALE, "model": "copied"}).eval_count == 12, "the file goes with its last name"
        assert client.delete("copied").status == "success"
        assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size >= MODEL.stat().st_size]
        with pytest.raises(ollama.ResponseError) as unknown:
            client.copy("none", "b")
        assert unknown.value.status_code == 404
        with pytest.raises(ollama.ResponseError) as refused:
            client.delete(name)
        assert refused.value.status_code == 404
        with pytest.raises(ollama.ResponseError):
            list(client.pull(f"{server.url}/none.gguf", stream=True))


def test_refusals_raise_what_they_are(client):
    for fields, status in (({"model": "nobody"}, 404), ({"suffix": "x"}, 400), ({"options": {"temperature": 9}}, 400)):
        for stream in (False, True):
            with pytest.raises(ollama.ResponseError) as refused:
                list(client.generate(**{**TALE, **fields}, stream=stream))
            assert refused.value.status_code == status and refused.value.error


def test_tokens(guarded_stack):
    with pytest.raises(ollama.ResponseError) as refused:
        ollama.Client(host=guarded_stack.url).list()
    assert refused.value.status_code == 401
    assert ollama.Client(host=guarded_stack.url, headers={"Authorization": f"Bearer {TOKEN}"}).list().models
