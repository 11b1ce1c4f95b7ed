"""What Schemathesis would never find by chance: a body names a model that is there, and asks for little of it.

Loaded by it (SCHEMATHESIS_HOOKS); notes each answer in the file LLORCH_SCHEMA_ANSWERS.
"""

import os
import zlib

import schemathesis

TOKENS_MAX = 8
LIMITS = ("n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict", "n_predict")
MODELS = {"embed": "embed", "rerank": "judge", "chat": "chat", "messages": "chat", "responses": "chat", "apply-template": "chat"}


def model_for(path):
    return next((model for part, model in MODELS.items() if part in path), "demo")


# What decides whether a request can be answered at all, by a part of its path.
ASKED = {
    "messages": {"max_tokens": 4, "messages": [{"role": "user", "content": "go"}]},
    "chat": {"messages": [{"role": "user", "content": "go"}]},
    "responses": {"input": "go"},
    "embed": {"input": "go"},
    "rerank": {"query": "q", "documents": ["a", "b"]},
    "v1/completions": {"prompt": "go"},
    "completion": {"prompt": "go", "n_cmpl": 1, "ignore_eos": False, "post_sampling_probs": False, "min_keep": 0, "n_predict": 4},
    "generate": {"prompt": "go"},
    "apply-template": {"messages": [{"role": "user", "content": "go"}]},
}
# Texts in languages of their own, what names something that is not there, and other names of fields, which must not contradict them.
SPECIAL = ("dimensions", "grammar", "json_schema", "regex", "previous_response_id", "conversation", "suffix", "template", "truncation", "task_id", "session_id",
           "repeat_penalty", "repeat_last_n", "typ_p", "dry_penalty_last_n", "samplers")


def answerable(path, body):
    """Of every other body the plain members alone, beside a request that a model can answer. Several have a name, so that it is named."""
    asked = next((fields for part, fields in ASKED.items() if part in path), None)
    if asked is None or zlib.crc32(repr(body).encode()) % 2:
        return body
    plain = {name: value for name, value in body.items() if isinstance(value, (bool, int, float, str)) and name not in SPECIAL}
    return {"model": model_for(path), **plain, **asked}


def lower_limits(fields):
    for name in LIMITS:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > TOKENS_MAX:
            fields[name] = TOKENS_MAX


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    for name in ("model", "model_ref"):
        if isinstance(body.get(name), str):
            body[name] = model_for(context.operation.path)
    body = answerable(context.operation.path, body)
    lower_limits(body)
    if isinstance(body.get("options"), dict):
        lower_limits(body["options"])
    return body


@schemathesis.hook
def after_call(context, case, response):
    with open(os.environ["LLORCH_SCHEMA_ANSWERS"], "a", encoding="ascii") as answers:
        answers.write(f"{case.operation.method.upper()} {case.operation.path} {response.status_code}\n")
