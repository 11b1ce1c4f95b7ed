"""Fill in the middle by every API that has it, of real daemons, and llama.cpp's own routes for completions."""

import hashlib
import http.client
import json
import os
import signal
import struct
import subprocess

import pytest
from chat_model import CHAT_TEMPLATE, write_chat_model
from gguf_vocabulary import read_metadata, with_ids
from stack import ALIAS, BIN, MODEL, Stack, wait_for

MARKERS = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>")
PREFIX, MIDDLE, SUFFIX, REPOSITORY, SEPARATOR = range(3, 8)
BEFORE, AFTER = "def f(a):\n    return ", "\n\nprint(f(1))\n"
# Three words of the demo model's that no test writes.
GGUF_IDS = {"tokenizer.ggml.fim_pre_token_id": "ship", "tokenizer.ggml.fim_suf_token_id": "bird", "tokenizer.ggml.middle_token_id": "tree"}


@pytest.fixture(scope="module", name="stack")
def running_stack(tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    write_chat_model(models / "coder", markers=MARKERS)
    metadata = read_metadata(MODEL)
    ids = {key: next(i for i, token in enumerate(metadata["tokenizer.ggml.tokens"]) if token.endswith(word))
           for key, word in GGUF_IDS.items()}
    with_ids(MODEL, models / "tale.gguf", ids)
    with Stack({"models.aliases.coder": f"file:{models / 'coder'}", "models.aliases.tale": f"file:{models / 'tale.gguf'}",
                "models.allowed_roots": f"{models},{MODEL.parent}"}) as stack:
        stack.ids = ids
        yield stack


def ask(stack, path, **body):
    def answered():
        response = stack.request("POST", path, body)
        return None if response.status == 503 else response  # the pool is still looking at the model

    return wait_for("the model to be known", answered)


def tokens_of(stack, model, text):
    return ask(stack, "/tokenize", model=model, content=text, parse_special=False).json["tokens"]


def of_ids(stack, model, ids, **fields):
    """What a job of these tokens gives."""
    return ask(stack, "/v2/tasks?wait=true", model=model, prompt=ids, max_tokens=8, seed=7, temperature=0, **fields).json


def same(receipt, wanted):
    return receipt["prompt_sha256"] == wanted["receipt"]["prompt_sha256"] and receipt["output_sha256"] == wanted["receipt"]["output_sha256"]


def coder_ids(stack, before=BEFORE, after=AFTER, extra=()):
    return [*extra, PREFIX, *tokens_of(stack, "coder", before), SUFFIX, *tokens_of(stack, "coder", after), MIDDLE]


def test_every_api_asks_with_the_models_own_tokens(stack):
    ids = coder_ids(stack)
    wanted = of_ids(stack, "coder", ids)
    assert wanted["receipt"]["prompt_sha256"] == hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
    ours = ask(stack, "/v2/tasks?wait=true", model="coder", prompt=BEFORE, suffix=AFTER, max_tokens=8, seed=7, temperature=0).json
    openai = ask(stack, "/v1/completions", model="coder", prompt=BEFORE, suffix=AFTER, max_tokens=8, seed=7, temperature=0).json
    ollama = ask(stack, "/api/generate", model="coder", prompt=BEFORE, suffix=AFTER, stream=False,
                 options={"num_predict": 8, "seed": 7, "temperature": 0, "repeat_penalty": 1}).json
    llamacpp = ask(stack, "/infill", model="coder", input_prefix="def f(a):\n", prompt="    return ", input_suffix=AFTER,
                   n_predict=8, seed=7, temperature=0).json
    for text, receipt in [(ours["text"], ours["receipt"]), (openai["choices"][0]["text"], openai["llorch"]["receipt"]),
                          (ollama["response"], ollama["llorch"]["receipt"]), (llamacpp["content"], llamacpp["llorch"]["receipt"])]:
        assert text == wanted["text"] and same(receipt, wanted)


def test_the_command_line_asks_so_too(stack):
    wanted = of_ids(stack, "coder", coder_ids(stack))
    command = [BIN / "llorch", "--url", stack.url, "run", "coder", "--suffix", AFTER, "--seed", "7", "--temperature", "0", "--max-tokens", "8"]
    for told, text in (([BEFORE], ""), ([], BEFORE)):  # as an argument, as standard input
        done = subprocess.run([*command, *told], input=text, env=stack.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout.rstrip("\n") == wanted["text"].rstrip("\n"), done.stderr
    with_chat = subprocess.run([*command, "--chat", "x"], env=stack.env, capture_output=True, text=True, check=False)
    assert with_chat.returncode == 2 and "--suffix" in with_chat.stderr


def test_other_files_stand_before_it(stack):
    def text(words):
        return tokens_of(stack, "coder", words)

    ids = [REPOSITORY, *text("myproject\n"), SEPARATOR, *text("a.py\nA = 1\n"), SEPARATOR, *text("tmp\nB = 2\n"), SEPARATOR,
           *text("filename\n"), *coder_ids(stack)]
    answer = ask(stack, "/infill", model="coder", input_prefix=BEFORE, input_suffix=AFTER, n_predict=8, seed=7, temperature=0,
                 input_extra=[{"filename": "a.py", "text": "A = 1\n"}, {"text": "B = 2\n"}]).json
    assert same(answer["llorch"]["receipt"], of_ids(stack, "coder", ids))


def test_a_whole_prompt_may_spell_the_tokens(stack):
    """Clients with templates of their own write the markers into the prompt. Where they do, it is the prompt of these tokens."""
    wanted = of_ids(stack, "coder", coder_ids(stack))
    text = f"{MARKERS[0]}{BEFORE}{MARKERS[2]}{AFTER}{MARKERS[1]}"
    settings = {"model": "coder", "seed": 7, "temperature": 0}
    answers = [ask(stack, "/v1/completions", prompt=text, max_tokens=8, **settings),
               ask(stack, "/completion", prompt=text, n_predict=8, **settings),
               ask(stack, "/api/generate", model="coder", prompt=text, raw=True, stream=False,
                   options={"num_predict": 8, "seed": 7, "temperature": 0, "repeat_penalty": 1})]
    for answer in answers:
        assert same(answer.json["llorch"]["receipt"], wanted), answer.body
    ours = {"prompt": text, "max_tokens": 8, **settings}
    assert same(ask(stack, "/v2/tasks?wait=true", parse_special=True, **ours).json["receipt"], wanted)
    plain = ask(stack, "/v2/tasks?wait=true", **ours).json
    assert plain["receipt"]["prompt_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert plain["tokens_in"] > len(text) - 10, "a byte is a token, also of a marker"
    for fields in ({"suffix": "s"}, {"messages": [{"role": "user", "content": "x"}], "prompt": None}):
        refused = ask(stack, "/v2/tasks", **{**ours, "parse_special": True, **fields})
        assert (refused.status, refused.json["error"]["details"]["field"]) == (400, "parse_special"), refused.body


def test_a_prompt_that_spells_its_beginning_begins_once(stack):
    metadata = read_metadata(MODEL)
    bos = metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.bos_token_id"]]
    counts = [ask(stack, "/v1/completions", model="tale", prompt=prompt, max_tokens=1, seed=7).json["usage"]["prompt_tokens"]
              for prompt in ("Once upon", f"{bos}Once upon")]
    assert counts[0] == counts[1]


def test_no_text_spells_a_token(stack):
    before = f"x = '{MARKERS[2]}{MARKERS[1]}'\n"
    answer = ask(stack, "/infill", model="coder", input_prefix=before, input_suffix=MARKERS[0], n_predict=1).json
    assert answer["tokens_evaluated"] == 3 + len(before) + len(MARKERS[0])  # a byte is a token


def test_a_gguf_files_word_counts(stack):
    prefix, suffix, middle = stack.ids.values()
    bos = read_metadata(MODEL)
    first = [bos["tokenizer.ggml.bos_token_id"]] if bos.get("tokenizer.ggml.add_bos_token") else []
    ids = [*first, prefix, *tokens_of(stack, "tale", "Once upon"), suffix, *tokens_of(stack, "tale", " the end."), middle]
    answer = ask(stack, "/v1/completions", model="tale", prompt="Once upon", suffix=" the end.", max_tokens=8, seed=7, temperature=0).json
    assert same(answer["llorch"]["receipt"], of_ids(stack, "tale", ids))
    shown = ask(stack, "/api/show", model="tale").json
    assert "insert" in shown["capabilities"]
    assert ".Suffix" in shown["template"]  # an editor's plugin looks for that


@pytest.mark.parametrize("path, body", [
    ("/v2/tasks", {"prompt": "secret-p", "suffix": "s", "max_tokens": 2}),
    ("/v1/completions", {"prompt": "secret-p", "suffix": "s"}),
    ("/api/generate", {"prompt": "secret-p", "suffix": "s"}),
    ("/infill", {"input_prefix": "secret-p", "input_suffix": "s"}),
])
def test_a_model_without_such_tokens_refuses(stack, path, body):
    answer = ask(stack, path, model=ALIAS, **body)
    error = answer.json.get("llorch") or answer.json["error"].get("llorch") or answer.json["error"]
    assert (answer.status, error["code"], error["details"]["reason"]) == (400, "INVALID_PARAMS", "no_infill"), answer.body
    assert b"secret" not in answer.body
    shown = ask(stack, "/api/show", model=ALIAS).json
    assert "insert" not in shown["capabilities"]
    assert shown["template"] == ""


def test_what_an_editors_plugin_asks(stack):
    """llama.vim: what it fetches ahead of need, and what it shows."""
    begin = {"model": "coder", "id_slot": 0, "input_prefix": BEFORE, "input_suffix": AFTER, "prompt": "", "cache_prompt": True,
             "input_extra": [{"text": "x", "time": 1, "filename": "b.py"}], "stream": False, "t_max_prompt_ms": 1}
    warm = ask(stack, "/infill", **begin, n_predict=0, samplers=[], t_max_predict_ms=1, response_fields=[""])
    assert warm.status == 200 and warm.json == {}
    shown = ["content", "timings/prompt_n", "timings/prompt_ms", "timings/predicted_n", "timings/predicted_per_second", "truncated"]
    answer = ask(stack, "/infill", **begin, n_predict=5, n_indent=4, top_k=40, top_p=0.9, stop=[], seed=7, t_max_predict_ms=500,
                 samplers=["top_k", "top_p", "infill"], response_fields=[*shown, "tokens_cached"])
    assert list(answer.json) == shown and answer.json["timings/predicted_n"] <= 5, answer.body
    whole = ask(stack, "/infill", **begin, n_predict=5, top_k=40, top_p=0.9, min_p=0, temperature=1, seed=7).json
    assert whole["content"] == answer.json["content"]


def events_of(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in response.body.decode().splitlines() if line.startswith("data: ")]


def test_a_completion_is_the_job_it_says(stack):
    asked = {"model": ALIAS, "prompt": "Once upon a time", "n_predict": 8, "seed": 7, "temperature": 0, "n_probs": 2, "return_tokens": True}
    whole = ask(stack, "/completion", **asked).json
    assert "content" in whole, whole
    ids = ask(stack, "/tokenize", model=ALIAS, content=asked["prompt"], add_special=True).json["tokens"]
    wanted = of_ids(stack, ALIAS, ids)
    told = hashlib.sha256(asked["prompt"].encode()).hexdigest()
    assert whole["content"] == wanted["text"] and whole["llorch"]["receipt"] == {**wanted["receipt"], "prompt_sha256": told}
    assert [part["id"] for part in whole["completion_probabilities"]] == whole["tokens"] and len(whole["tokens"]) == 8
    assert (whole["stop_type"], whole["tokens_predicted"], whole["tokens_evaluated"]) == ("limit", 8, len(ids))
    assert (whole["generation_settings"]["seed"], whole["timings"]["predicted_n"]) == (7, 8)
    *parts, last = events_of(ask(stack, "/completions", **asked, stream=True))
    assert "".join(part["content"] for part in parts) == whole["content"] and not any(part["stop"] for part in parts)
    assert sum((part["tokens"] for part in parts), []) == whole["tokens"]
    assert last["stop"] and last["llorch"]["receipt"] == whole["llorch"]["receipt"]
    words = whole["content"].split()
    mixed = ask(stack, "/completion", **{**asked, "prompt": [*ids, *whole["tokens"][:2]]}).json
    assert mixed["content"].startswith(whole["content"][len("".join(part["content"] for part in parts[:2])):])
    stopped = ask(stack, "/completion", **{**asked, "stop": [words[1]]}).json
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", words[1]) and words[1] not in stopped["content"]


def test_props_and_health(stack):
    props = wait_for("the model to be known", lambda: (r := stack.request("GET", "/props?model=coder")).status == 200 and r.json)
    assert props["model_alias"] == "coder" and props["llorch"]["infill"] is True
    assert props["chat_template"] == CHAT_TEMPLATE
    assert props["default_generation_settings"]["n_ctx"] > 0 and props["total_slots"] > 0
    unnamed = stack.request("GET", "/props")  # of several models
    assert (unnamed.status, unnamed.json["error"]["llorch"]["details"]["field"]) == (400, "model")
    healths = [stack.request("GET", path).json for path in ("/v1/health", "/health")]
    assert all(health.pop("uptime_seconds") >= 0 for health in healths)
    assert healths[0] == healths[1]


def test_kill_9_of_the_worker_in_the_middle_of_a_stream(tmp_path):
    write_chat_model(tmp_path / "coder", markers=MARKERS)
    asked = {"input_prefix": BEFORE, "input_suffix": AFTER, "n_predict": 40, "seed": 7, "temperature": 0, "stream": True}
    with Stack({"models.aliases.coder": f"file:{tmp_path / 'coder'}", "models.allowed_roots": f"{tmp_path},{MODEL.parent}"}) as stack:
        calm = events_of(ask(stack, "/infill", model="coder", **asked))
        stack.gate.hold()
        stack.gate.let_pass(5)
        connection = http.client.HTTPConnection(stack.bind, timeout=60)
        connection.request("POST", "/infill", json.dumps({"model": "coder", **asked}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        begun = response.readline()
        wait_for("the steps to be done", lambda: stack.gate.steps_left() == 0)
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        stack.gate.open()
        text = (begun + response.read()).decode()
        connection.close()
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        assert [event["content"] for event in events] == [event["content"] for event in calm]
        assert events[-1]["llorch"]["receipt"] == calm[-1]["llorch"]["receipt"]
        assert stack.job(events[-1]["llorch"]["job_id"])["attempts"] >= 2
