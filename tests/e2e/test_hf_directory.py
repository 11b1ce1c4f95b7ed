"""A Hugging Face directory behind the daemons: config.json, model.safetensors and tokenizer.json, nothing converted.

Also what a request can ask of any model: token log-probabilities, a JSON Schema, a regular expression.
"""

import json
import subprocess

import pytest
from chat_model import VOCABULARY, write_chat_model
from stack import BIN, Stack, wait_for


PADDING = 100  # rows of the model without a token, as many published directories have them


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory, vocabulary=VOCABULARY - PADDING)
    settings = {"models.aliases.directory": f"file:{directory}", "models.allowed_roots": str(directory.parent)}
    with Stack(settings) as stack:
        yield stack


def run(stack, **fields):
    body = {"model": "directory", "max_tokens": 24, "seed": 5, **({} if "messages" in fields else {"prompt": "Once upon a time"}),
            **fields}

    def submitted():
        response = stack.request("POST", "/v2/tasks", body)
        return None if response.status == 503 else response  # the pool is still looking at the directory

    response = wait_for("the directory to be known", submitted)
    assert response.status == 202, response.body
    job_id = response.json["job_id"]
    events = stack.read_to_end(job_id)
    run.tokens_in = stack.job(job_id)["tokens_in"]
    return [e.data for e in events if e.name == "token"], events[-1]


def text_of(tokens):
    return "".join(token["t"] for token in tokens)


def test_a_directory_is_served_and_answers_the_same_twice(stack):
    first, end = run(stack)
    assert end.name == "end", end
    assert end.data["tokens_out"] == len(first) <= 24
    assert run(stack)[0] == first


def test_logprobs_come_with_the_tokens(stack):
    tokens, end = run(stack, logprobs=True, top_logprobs=3, temperature=0)
    assert end.name == "end", end
    for token in tokens:
        logprobs = token["logprobs"]
        assert logprobs["logprob"] <= 0 and len(logprobs["top_logprobs"]) == 3
        assert logprobs["top_logprobs"][0]["logprob"] == logprobs["logprob"], "greedy takes the likeliest"


def test_rows_without_a_token_may_be_drawn_and_say_nothing(stack):
    tokens_out = 0
    for seed in range(12):
        _, end = run(stack, seed=seed, temperature=2, max_tokens=100)
        assert end.name == "end", end
        tokens_out += end.data["tokens_out"]
    assert tokens_out > 400, "one in four draws is such a row"


def test_what_is_asked_of_the_host_survives_rows_without_a_token(stack):
    for fields in ({"logprobs": True, "top_logprobs": 5}, {"typical_p": 0.9}, {"mirostat": 2}, {"presence_penalty": 0.5}):
        _, end = run(stack, temperature=2, max_tokens=60, **fields)
        assert end.name == "end", (fields, end)
    tokens, end = run(stack, temperature=2, regex="[a-z]{40}", max_tokens=60)
    assert end.name == "end" and len(text_of(tokens)) == 40, end


def test_an_output_follows_its_schema_and_its_expression(stack):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0,
              "maximum": 99}}, "required": ["name", "age"], "additionalProperties": False}
    tokens, end = run(stack, json_schema=schema, max_tokens=200)
    assert end.name == "end", end
    value = json.loads(text_of(tokens))
    assert set(value) == {"name", "age"} and len(value["name"]) <= 5 and 0 <= value["age"] <= 99
    tokens, end = run(stack, regex="(yes|no)!{2}", max_tokens=50)
    assert text_of(tokens) in ("yes!!", "no!!"), end
    response = stack.request("POST", "/v2/tasks", {"model": "directory", "prompt": "x", "regex": "a", "json_schema": {}})
    assert response.status == 400, "one constraint at most"


def test_a_conversation_goes_through_the_chat_template(stack):
    _, end = run(stack, messages=[{"role": "user", "content": "hi"}])
    assert end.name == "end" and run.tokens_in == len("<s>".split()) + len("user: hi") + 1
    run(stack, messages=[{"role": "user", "content": "<s>"}])
    assert run.tokens_in == 1 + len("user: <s>") + 1, "what a user writes is never a control token"
    spoken = subprocess.run([BIN / "llorch", "--url", stack.url, "--json", "run", "directory", "hi", "--chat", "--max-tokens", "4",
                             "--seed", "5"], env=stack.env, capture_output=True, text=True, check=False)
    assert spoken.returncode == 0, spoken.stderr
    assert json.loads(spoken.stdout)["end"]["tokens_out"] <= 4
    def verify(*args):
        done = subprocess.run([BIN / "llorch", "--url", stack.url, "--json", "verify", "-", *args], env=stack.env, input=spoken.stdout,
                              capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    assert verify("--prompt", "hi", "--chat")[1]["verdict"] == "match"
    code, said = verify("--prompt", "ho", "--chat")  # known only when the template has rendered it
    assert code == 2 and [d["field"] for d in said["differences"]] == ["prompt_sha256"] and "job_id" in said
    both = stack.request("POST", "/v2/tasks", {"model": "directory", "prompt": "x", "max_tokens": 1,
                                               "messages": [{"role": "user", "content": "x"}]})
    assert both.status == 400


def test_a_request_is_verified_as_it_was_sent(stack, tmp_path):
    """What has no flag of its own: the body of the request itself."""
    body = {"model": "directory", "prompt": "Once", "max_tokens": 50, "regex": "(yes|no)!{2}", "top_k": 30, "seed": 3, "task_id": "once"}
    response = stack.request("POST", "/v2/tasks", body)
    assert response.status == 202, response.body
    job = response.json["job_id"]
    assert stack.wait_terminal(job)["status"] == "completed"
    request = tmp_path / "request.json"

    def verify(sent):
        request.write_text(json.dumps(sent))
        done = subprocess.run([BIN / "llorch", "--url", stack.url, "--json", "verify", job, "--request", str(request)], env=stack.env,
                              capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or done.stderr)

    assert verify(body)[1]["verdict"] == "match"
    code, said = verify({**body, "regex": "(yes|no)!{3}"})
    assert code == 2 and [d["field"] for d in said["differences"]] == ["parameters_sha256"]
    code, said = verify({**body, "no_such_field": 1})
    assert code == 2 and said["error"]["code"] == "INVALID_PARAMS"


def test_a_schema_that_cannot_be_followed_is_refused_before_the_202(stack):
    body = {"model": "directory", "prompt": "x", "max_tokens": 1, "json_schema": {"properties": {"secretname": {"not": {}}}}}
    response = stack.request("POST", "/v2/tasks", body)
    assert response.status == 400 and "not" in str(response.body), response.body
    for log in ("orchestratord", "pool-managerd"):
        assert "secretname" not in stack.log(log)
