"""What llama.cpp's server tells of prompts, of real daemons."""

import pytest
from chat_model import write_chat_model
from stack import ALIAS, MODEL, Stack, wait_for


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    with Stack({"models.aliases.tiny": f"file:{directory}", "models.allowed_roots": f"{directory.parent},{MODEL.parent}"}) as stack:
        yield stack


def ask(stack, path, **body):
    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the model

    return wait_for("the model to be known", answered)


def test_a_text_goes_there_and_back(stack):
    text = "Once upon a time there was a caf\u00e9"
    tokens = ask(stack, "/tokenize", model=ALIAS, content=text).json["tokens"]
    assert ask(stack, "/detokenize", model=ALIAS, tokens=tokens).json == {"content": text}
    pieces = ask(stack, "/tokenize", model=ALIAS, content=text, with_pieces=True).json["tokens"]
    assert [piece["id"] for piece in pieces] == tokens
    with_special = ask(stack, "/tokenize", model=ALIAS, content=text, add_special=True).json["tokens"]
    job = stack.submit(prompt=text, max_tokens=1)["job_id"]
    stack.wait_terminal(job)
    assert stack.job(job)["tokens_in"] == len(with_special)


def test_the_prompt_of_a_conversation(stack):
    asked = {"model": "tiny", "messages": [{"role": "system", "content": "be terse"}, {"role": "user", "content": "go"}]}
    prompt = ask(stack, "/apply-template", **asked).json["prompt"]
    assert prompt == "<s>system: be terse<s>user: go<s>"
    assert ask(stack, "/apply-template", **asked, add_generation_prompt=False).json["prompt"] == prompt.removesuffix("<s>")
    tokens = ask(stack, "/tokenize", model="tiny", content=prompt).json["tokens"]
    job = stack.submit(model="tiny", prompt=None, messages=asked["messages"], max_tokens=1)["job_id"]
    stack.wait_terminal(job)
    assert stack.job(job)["tokens_in"] == len(tokens)


@pytest.mark.parametrize("path, body, status, code", [
    ("/tokenize", {"content": "a"}, 400, "INVALID_PARAMS"),  # of several models
    ("/tokenize", {"model": ALIAS}, 400, "INVALID_PARAMS"),
    ("/tokenize", {"model": "none", "content": "a"}, 404, "MODEL_NOT_FOUND"),
    ("/detokenize", {"model": ALIAS, "tokens": [1 << 30]}, 400, "INVALID_PARAMS"),
    ("/apply-template", {"model": ALIAS, "messages": [{"role": "user", "content": "a"}]}, 400, "INVALID_PARAMS"),  # no template
])
def test_every_error_has_that_apis_shape(stack, path, body, status, code):
    answer = ask(stack, path, **body)
    error = answer.json["error"]
    assert (answer.status, error["code"], error["llorch"]["code"]) == (status, status, code), answer.body


def test_the_gateway_can_be_switched_off():
    with Stack({"orchestratord.gateways.llamacpp": "false"}) as stack:
        refused = stack.request("POST", "/tokenize", {"model": ALIAS, "content": "a"})
        assert (refused.status, refused.code) == (404, "NOT_FOUND")
