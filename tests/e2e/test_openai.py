"""The OpenAI API of real daemons, as bytes. What its official client makes of them: tests/clients."""

import hashlib
import http.client
import json
import os
import signal

import pytest

from chat_model import write_chat_model
from stack import ALIAS, MODEL, Stack, wait_for

TALE = {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 12, "seed": 7}
KEPT = "a prompt that nobody may keep"


def chunks_of(response):
    """The objects of a body of `data:` lines, and whether [DONE] ended it."""
    frames = [frame for frame in response.body.decode().split("\n\n") if frame and not frame.startswith(":")]
    assert all(frame.startswith("data: ") for frame in frames), frames
    done = frames[-1] == "data: [DONE]"
    return [json.loads(frame[6:]) for frame in frames[: -1 if done else None]], done


# CLOUD-1000: submitted and streamed as a job is.
def test_a_completion_is_the_same_streamed_whole_and_as_a_task(stack):
    whole = stack.request("POST", "/v1/completions", TALE)
    assert (whole.status, whole.json["object"]) == (200, "text_completion"), whole.body
    text = whole.json["choices"][0]["text"]
    streamed = stack.request("POST", "/v1/completions", {**TALE, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    chunks, done = chunks_of(streamed)
    assert done and "".join(c["choices"][0]["text"] for c in chunks if c["choices"]) == text
    assert chunks[-1]["usage"] == whole.json["usage"] and not any("usage" in c for c in chunks[:-1])
    # temperature is 1 here and 0.7 there unless it is said
    job_id = stack.submit(prompt=TALE["prompt"], max_tokens=12, temperature=1)["job_id"]
    assert "".join(e.data["t"] for e in stack.read_to_end(job_id) if e.name == "token") == text
    receipts = [whole.json["llorch"]["receipt"], chunks[-2]["llorch"]["receipt"], stack.job(job_id)["receipt"]]
    assert receipts[0] == receipts[1] == receipts[2]


# As vLLM tells it: whoever cuts a stream short knows what it has cost.
def test_every_chunk_may_count(stack):
    options = {"include_usage": True, "continuous_usage_stats": True}
    for choices in (1, 2):
        chunks, done = chunks_of(stack.request("POST", "/v1/completions", {**TALE, "n": choices, "stream": True, "stream_options": options}))
        last = chunks[-1]["usage"]
        assert done and {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {last["prompt_tokens"]}
        ends = []
        for index in range(choices):
            counts = [chunk["usage"]["completion_tokens"] for chunk in chunks[:-1] if chunk["choices"][0]["index"] == index]
            assert counts == sorted(counts)
            ends.append(counts[-1])
        assert sum(ends) == last["completion_tokens"]


def test_a_job_says_what_it_is_under_its_id(stack):
    answer = stack.request("POST", "/v1/completions", TALE).json
    job = stack.job(answer["id"].removeprefix("cmpl-"))
    assert (job["status"], job["tokens_out"], job["model"]) == ("completed", 12, ALIAS)
    assert answer["usage"]["prompt_tokens"] == job["tokens_in"]


def test_each_of_several_prompts_is_what_it_is_alone(stack):
    prompts = ["Once upon a time", "The fox", "In the wood"]
    alone = [stack.request("POST", "/v1/completions", {**TALE, "prompt": prompt}).json for prompt in prompts]
    whole = stack.request("POST", "/v1/completions", {**TALE, "prompt": prompts}).json
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in whole["choices"]] == [answer["choices"][0]["text"] for answer in alone]
    assert whole["usage"]["prompt_tokens"] == sum(answer["usage"]["prompt_tokens"] for answer in alone)
    twice = stack.request("POST", "/v1/completions", {**TALE, "prompt": prompts[:2], "n": 2, "echo": True}).json["choices"]
    assert [choice["text"].startswith(prompts[i // 2]) for i, choice in enumerate(twice)] == [True] * 4
    assert twice[0]["text"] == prompts[0] + whole["choices"][0]["text"] and twice[2]["text"] == prompts[1] + whole["choices"][1]["text"]
    chunks, done = chunks_of(stack.request("POST", "/v1/completions", {**TALE, "prompt": prompts, "stream": True}))
    streamed = ["".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == i) for i in range(3)]
    assert done and streamed == [choice["text"] for choice in whole["choices"]]
    many = stack.request("POST", "/v1/completions", {**TALE, "prompt": ["a"] * 65})
    assert many.status == 400 and many.json["error"]["param"] == "prompt"


def ids_of(stack, text):
    return stack.request("POST", "/tokenize", {"model": ALIAS, "content": text, "add_special": True}).json["tokens"]


def test_token_ids_are_the_prompt_they_are_of(stack):
    prompts = ["Once upon a time", "The fox"]
    ids = [ids_of(stack, prompt) for prompt in prompts]
    of_text = [stack.request("POST", "/v1/completions", {**TALE, "prompt": prompt}).json for prompt in prompts]
    of_ids = stack.request("POST", "/v1/completions", {**TALE, "prompt": ids[0]})
    assert of_ids.status == 200, of_ids.body
    assert of_ids.json["choices"] == of_text[0]["choices"] and of_ids.json["usage"] == of_text[0]["usage"]
    receipts = [answer["llorch"]["receipt"] for answer in (of_ids.json, of_text[0])]
    told = hashlib.sha256(b"".join(token.to_bytes(4, "little") for token in ids[0])).hexdigest()
    assert receipts[0] == {**receipts[1], "prompt_sha256": told}
    mixed = stack.request("POST", "/v1/completions", {**TALE, "prompt": [*ids, prompts[1]]}).json
    assert [choice["text"] for choice in mixed["choices"]] == [of_text[i]["choices"][0]["text"] for i in (0, 1, 1)]
    chunks, done = chunks_of(stack.request("POST", "/v1/completions", {**TALE, "prompt": ids[0], "stream": True}))
    assert done and "".join(c["choices"][0]["text"] for c in chunks) == of_text[0]["choices"][0]["text"]
    job = stack.submit(prompt=ids[0], max_tokens=12, temperature=1)["job_id"]
    assert stack.read_to_end(job)[-1].data["receipt"] == receipts[0]
    # nothing is put before ids, and nothing is read into them
    assert stack.request("POST", "/v1/completions", {**TALE, "prompt": ids[0][1:]}).json["usage"]["prompt_tokens"] == len(ids[0]) - 1


@pytest.mark.parametrize("prompt, words", [
    ([1, -1], "the id -1 at index 1"),
    ([1, 2, 32_000_000], "the id 32000000 at index 2"),
    ([5] * 5000, "5000 tokens"),
    ([[1, 2], [3, -7]], "the id -7 at index 1"),
])
def test_ids_that_are_none_of_the_model_are_refused(stack, prompt, words):
    asked = [stack.request("POST", "/v1/completions", {**TALE, "prompt": prompt})]
    if isinstance(prompt[0], int):
        asked.append(stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": prompt, "max_tokens": 4}))
    for answer in asked:
        assert answer.status == 400 and words in answer.body.decode(), answer.body
    assert stack.request("GET", "/v2/health").status == 200


def test_choices_are_jobs_with_seeds_of_their_own(stack):
    alone = stack.request("POST", "/v1/completions", TALE).json
    whole = stack.request("POST", "/v1/completions", {**TALE, "n": 3}).json
    choices = whole["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert choices[0]["text"] == alone["choices"][0]["text"] and len({choice["text"] for choice in choices}) == 3
    assert whole["usage"] == {"prompt_tokens": alone["usage"]["prompt_tokens"], "completion_tokens": 36,
                              "total_tokens": alone["usage"]["prompt_tokens"] + 36}
    assert whole["system_fingerprint"] == alone["system_fingerprint"] and "llorch" not in whole
    for choice in choices:  # each can be asked for alone
        receipt = choice["llorch"]["receipt"]
        again = stack.request("POST", "/v1/completions", {**TALE, "seed": receipt["seed"]}).json
        assert (again["choices"][0]["text"], again["llorch"]["receipt"]) == (choice["text"], receipt)
        assert stack.job(choice["llorch"]["job_id"])["status"] == "completed"
    assert choices[0]["llorch"]["receipt"]["seed"] == 7 and whole["id"] == "cmpl-" + choices[0]["llorch"]["job_id"]
    streamed = stack.request("POST", "/v1/completions", {**TALE, "n": 3, "stream": True, "stream_options": {"include_usage": True}})
    chunks, done = chunks_of(streamed)
    assert done and chunks[-1]["usage"] == whole["usage"] and chunks[-1]["choices"] == []
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    for index in range(3):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"] and chunk["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in own) == choices[index]["text"]
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["length"]
    receipts = [chunk["llorch"]["receipt"]["seed"] for chunk in chunks if "llorch" in chunk]
    assert sorted(receipts) == sorted(choice["llorch"]["receipt"]["seed"] for choice in choices)
    drawn = stack.request("POST", "/v1/completions", {**TALE, "seed": None, "n": 2}).json["choices"]
    assert drawn[0]["llorch"]["receipt"]["seed"] != drawn[1]["llorch"]["receipt"]["seed"]


def test_choices_of_a_chat(tmp_path):
    write_chat_model(tmp_path / "tiny-llama")
    with Stack({"models.aliases.tiny": f"file:{tmp_path}/tiny-llama", "models.allowed_roots": f"{tmp_path},{MODEL.parent}"}) as stack:
        def answered(**fields):
            asked = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "max_tokens": 8, "seed": 3, **fields}
            response = stack.request("POST", "/v1/chat/completions", asked)
            return None if response.status == 503 else response  # the pool is still looking at the model

        alone = wait_for("the model to be known", answered).json
        whole = answered(n=2, response_format={"type": "json_object"}).json
        assert [choice["message"]["role"] for choice in whole["choices"]] == ["assistant"] * 2
        whole = answered(n=2).json
        assert whole["choices"][0]["message"] == alone["choices"][0]["message"]
        chunks, done = chunks_of(answered(n=2, stream=True))
        texts = ["", ""]
        for choice in (chunk["choices"][0] for chunk in chunks):
            texts[choice["index"]] += choice["delta"].get("content") or ""
        assert done and texts == [choice["message"]["content"] for choice in whole["choices"]]


def active(stack):
    return [task for task in stack.request("GET", "/v2/tasks?limit=1000").json["tasks"] if task["status"] in ("queued", "running")]


def test_choices_are_all_admitted_or_none_stays():
    with Stack({"orchestratord.queue.capacity": "2"}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
        stack.gate.hold()
        refused = stack.request("POST", "/v1/completions", {**TALE, "n": 8})
        assert (refused.status, refused.json["error"]["llorch"]["code"]) == (429, "QUEUE_FULL"), refused.body
        stack.gate.open()
        wait_for("what was admitted to be cancelled", lambda: not active(stack))
        tasks = stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]
        assert 2 <= len([task for task in tasks if task["status"] == "cancelled"]) < 8


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_cancels_all_choices(stream):
    with Stack({"orchestratord.worker_slots": "2"}) as stack:
        stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
        stack.gate.hold()
        connection = http.client.HTTPConnection(stack.bind, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({**TALE, "max_tokens": 60, "n": 4, "stream": stream}),
                           {"Content-Type": "application/json"})
        if stream:
            connection.getresponse()
        jobs = wait_for("the jobs", lambda: active(stack) if len(active(stack)) == 4 else None)
        connection.close()
        if not stream:
            connection.sock = None
        stack.gate.open()
        for job in jobs:
            assert stack.wait_terminal(job["job_id"])["status"] == "cancelled"


def test_choices_outlive_their_worker():
    with Stack({"orchestratord.worker_slots": "4"}) as stack:
        asked = {**TALE, "max_tokens": 40, "n": 3}
        calm = [choice["text"] for choice in stack.request("POST", "/v1/completions", asked).json["choices"]]
        stack.gate.hold()
        stack.gate.let_pass(10)
        connection = http.client.HTTPConnection(stack.bind, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps({**asked, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        wait_for("the steps to be done", lambda: stack.gate.steps_left() == 0)
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        stack.gate.open()
        frames = [frame for frame in response.read().decode().split("\n\n") if frame.startswith("data: {")]
        connection.close()
        texts = ["", "", ""]
        for choice in (json.loads(frame[6:])["choices"][0] for frame in frames):
            texts[choice["index"]] += choice["text"]
        assert texts == calm


def test_models(stack):
    listed = stack.request("GET", "/v1/models")
    assert [m["id"] for m in listed.json["data"]] == [ALIAS, "demo-f16"]
    assert stack.request("GET", f"/v1/models/{ALIAS}").json in listed.json["data"]
    assert all(m["root"] == m["id"] for m in listed.json["data"])
    assert stack.request("HEAD", "/v1/models").body == b""
    unknown = stack.request("GET", "/v1/models/none")
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")


# Programs ask every model for the same, whatever its context: local servers end the answer there.
def test_a_long_answer_ends_where_the_context_does(stack):
    answer = stack.request("POST", "/v1/completions", {**TALE, "max_tokens": 100_000, "logit_bias": {"2047": -100}}).json
    context = stack.request("GET", f"/v2/catalog/models/{ALIAS}?facts=true").json["facts"]["context_length"]
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["total_tokens"]) == ("length", context)
    assert stack.request("GET", f"/v1/models/{ALIAS}").json["max_model_len"] == context
    short = stack.request("POST", "/v1/completions", {**TALE, "logit_bias": {"2047": -100}}).json
    assert answer["choices"][0]["text"].startswith(short["choices"][0]["text"])


# CLOUD-1000: errors lose nothing.
@pytest.mark.parametrize("method, path, body, headers, status, code", [
    ("POST", "/v1/completions", {**TALE, "n": 17}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/v1/completions", {**TALE, "prompt": "once " * 600}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/v1/completions", {**TALE, "model": "none"}, {}, 404, "MODEL_NOT_FOUND"),
    ("POST", "/v1/chat/completions", {"model": ALIAS, "messages": [{"role": "user", "content": KEPT}]}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/v1/chat/completions", "{", {}, 400, "INVALID_PARAMS"),
    ("POST", "/v1/completions", TALE, {"Content-Type": "text/plain"}, 415, "INVALID_PARAMS"),
    ("POST", "/v1/completions", TALE, {"Host": "elsewhere.example"}, 403, "FORBIDDEN"),
    ("GET", "/v1/completions", None, {}, 405, "METHOD_NOT_ALLOWED"),
    ("POST", "/v1/embeddings", {"model": ALIAS, "input": "x"}, {}, 400, "INVALID_PARAMS"),
    ("POST", "/v1/moderations", {"model": ALIAS, "input": "x"}, {}, 404, "NOT_FOUND"),
    ("POST", "/v1/completions", {**TALE, "prompt": "x" * (5 << 20)}, {}, 413, "PAYLOAD_TOO_LARGE"),
])
def test_every_error_has_that_apis_shape(stack, method, path, body, headers, status, code):
    """Also those that come before a handler."""
    answer = stack.request(method, path, body, {"X-Correlation-Id": "shape-1", **headers})
    assert answer.status == status, answer.body
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code", "llorch"} and answer.code == code
    # Behind that API's own sentence, where it has one.
    assert error["message"].endswith(error["llorch"]["message"][1:]) and KEPT not in error["message"]
    assert answer.headers["x-request-id"] == error["llorch"]["correlation_id"]
    assert answer.headers["x-should-retry"] == "false"


def test_keys_count_where_there_are_tokens(stack):
    """Clients of that API always send one."""
    wrong = {"Authorization": "Bearer nobodys"}
    assert stack.request("GET", "/v1/models", headers=wrong).status == 200
    assert stack.request("GET", "/v2/tasks", headers=wrong).status == 401
    with Stack(token="t" * 40) as guarded:
        for headers in (wrong, {"X-None": "1"}):
            refused = guarded.request("GET", "/v1/models", headers=headers)
            assert (refused.status, refused.json["error"]["code"]) == (401, "invalid_api_key")
        assert guarded.request("GET", "/v1/models").status == 200


def open_stream(stack, fields):
    """A stream that has said a token and will say no more: its connection, its response and the id of its job."""
    stack.request("POST", "/v1/completions", TALE)  # a worker is there
    stack.gate.hold()
    stack.gate.let_pass(1)
    connection = http.client.HTTPConnection(stack.bind, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({**TALE, "max_tokens": 200, "stream": True, **fields}),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    line = b""
    while not line.startswith(b"data: "):
        line = response.readline()
    return connection, response, json.loads(line[6:])["id"].removeprefix("cmpl-")


# CLOUD-1000: cancelled, from there and from here.
def test_a_cancelled_job_ends_its_stream_with_an_error(stack):
    connection, response, job_id = open_stream(stack, {})
    try:
        assert stack.request("POST", f"/v2/tasks/{job_id}/cancel").status == 202
    finally:
        stack.gate.open()
    frames = [frame for frame in response.read().decode().strip().split("\n\n") if frame.startswith("data: ")]
    connection.close()
    assert json.loads(frames[-1][6:])["error"]["code"] == "cancelled" and "data: [DONE]" not in frames


def test_a_client_that_leaves_cancels_its_job(stack):
    connection, response, job_id = open_stream(stack, {})
    try:
        response.close()
        connection.close()
        wait_for("the job to be cancelled", lambda: stack.job(job_id)["status"] == "cancelled")
    finally:
        stack.gate.open()


def test_the_gateway_can_be_switched_off():
    with Stack({"orchestratord.gateways.openai": "false"}) as stack:
        assert stack.request("GET", "/v1/models").status == 404
        refused = stack.request("POST", "/v1/completions", {})
        assert (refused.status, refused.code) == (404, "NOT_FOUND") and "llorch" not in refused.json["error"]
