"""What Schemathesis would never find by chance: a body names a model that is there, and asks for little of it.

Loaded by it (SCHEMATHESIS_HOOKS); notes each answer in the file LLORCH_SCHEMA_ANSWERS.
"""

import os

import schemathesis

TOKENS_MAX = 8
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
MODELS = {"embed": "embed", "rerank": "judge", "chat": "chat", "messages": "chat", "responses": "chat", "apply-template": "chat"}


def model_for(path):
    return next((model for part, model in MODELS.items() if part in path), "demo")


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
    lower_limits(body)
    if isinstance(body.get("options"), dict):
        lower_limits(body["options"])
    return body


@schemathesis.hook
def after_call(context, case, response):
    with open(os.environ["LLORCH_SCHEMA_ANSWERS"], "a", encoding="ascii") as answers:
        answers.write(f"{case.operation.method.upper()} {case.operation.path} {response.status_code}\n")
