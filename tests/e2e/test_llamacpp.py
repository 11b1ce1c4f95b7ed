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


def test_slots_tell_who_works_and_nothing_of_a_prompt():
    with Stack({"orchestratord.worker_slots": "2"}) as own:
        none = own.request("GET", "/slots")
        assert (none.status, none.json) == (200, [])
        assert own.request("GET", "/slots?fail_on_no_slot=1").code == "POOL_UNREADY"
        jobs = [own.submit_held(prompt="a prompt that nobody may see")]
        one = own.request("GET", "/slots?fail_on_no_slot=1&model=" + ALIAS)
        assert (one.status, [slot["is_processing"] for slot in one.json]) == (200, [True, False])
        assert all(set(slot) == {"id", "model", "n_ctx", "state", "is_processing"} for slot in one.json)
        assert [(slot["id"], slot["model"], slot["state"]) for slot in one.json] == [(0, ALIAS, 1), (1, ALIAS, 0)]
        assert one.json[0]["n_ctx"] > 0 and b"nobody" not in one.body
        jobs.append(own.submit()["job_id"])
        own.wait_running(jobs[1])
        full = own.request("GET", "/slots?fail_on_no_slot=1")
        assert (full.status, full.code) == (503, "POOL_UNREADY")
        assert own.request("GET", "/slots?model=demo-f16").json == []
        assert own.request("GET", "/slots?model=none").code == "MODEL_NOT_FOUND"
        assert own.request("GET", "/slots?model=file:/etc/passwd").code == "FORBIDDEN"
        own.gate.open()
        for job in jobs:
            own.wait_terminal(job)
        assert [slot["state"] for slot in own.request("GET", "/slots").json] == [0, 0]


def test_the_gateway_can_be_switched_off():
    with Stack({"orchestratord.gateways.llamacpp": "false"}) as stack:
        refused = stack.request("POST", "/tokenize", {"model": ALIAS, "content": "a"})
        assert (refused.status, refused.code) == (404, "NOT_FOUND")
