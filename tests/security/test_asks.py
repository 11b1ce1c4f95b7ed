"""A tenant that wants the server's time without submitting a job: previews, counts of tokens, descriptions of models, what is kept."""

import concurrent.futures
import http.client
import json
import urllib.parse

import pytest

from attacker import JSON, OPERATOR, TENANTS, bearer, secret, send
from stack import HANG_S, Stack, wait_for
from test_roles import served

ALICE, BOB = (bearer(token) for token in TENANTS.values())
BURST = 6  # and the next one five hundred seconds later: no test lasts as long
TASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 20, "seed": 7}
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "Once"}]}
ASKS = [("/v2/tasks/preview", TASK), ("/tokenize", {"model": "demo", "content": "Once upon a time"}),
        ("/detokenize", {"model": "demo", "tokens": [400, 401]}), ("/apply-template", CHAT), ("/v1/messages/count_tokens", CHAT),
        ("/v1/responses/input_tokens", {"model": "demo", "input": "Once"}),
        ("/v1/tasks/preview", {**TASK, "task_id": "8b6f0a3e-6d57-4f0a-9f63-0b8f5d6c2a11", "session_id": "s", "workload": "completion",
                               "engine": "llama-orch", "ctx": 256, "priority": "batch", "deadline_ms": 60000}),
        ("/api/show", {"model": "demo"}), ("/props?model=demo", None), ("/v2/catalog/availability", None)]
NO_GRAMMAR = {"grammar": "root ::= ("}
# Submissions that become no job, wherever they are refused. As many of each group as a burst has.
REFUSED = [("/v2/tasks", {**TASK, **NO_GRAMMAR}), ("/v1/chat/completions", {**CHAT, **NO_GRAMMAR}), ("/v1/completions", {**TASK, **NO_GRAMMAR}),
           ("/completion", {"model": "demo", "prompt": "Once", **NO_GRAMMAR}),
           ("/v1/responses", {"model": "demo", "input": [{"type": "item_reference", "id": "msg_" + "f" * 36}]}),
           ("/v1/responses", {"model": "demo", "input": "Once", "previous_response_id": "resp_" + "f" * 36}),
           ("/v1/messages", {**CHAT, "max_tokens": 0}), ("/v1/embeddings", {"model": "demo", "input": ["Once"]}),
           ("/api/chat", {**CHAT, "options": {"temperature": -1}}), ("/api/embed", {"model": "demo", "input": "Once"}),
           ("/rerank", {"model": "demo", "query": "Once", "documents": ["a"]}), ("/infill", {"model": "nobody", "input_prefix": "a", "input_suffix": "b"})]
# What a tenant may read and end at any rate, or what is counted behind the head, once it is known that the store has to look.
UNCOUNTED = {("GET", path) for path in (
    "/v2/tasks", "/v2/tasks/{id}", "/v2/tasks/{id}/events", "/v2/sessions", "/v2/sessions/{id}", "/v1/sessions/{id}",
    "/v1/models", "/v1/models/{id}", "/api/tags", "/api/ps", "/slots")} | {
        ("POST", path) for path in ("/v2/tasks/{id}/cancel", "/v1/tasks/{id}/cancel", "/v2/sessions")}
DELETES = {("DELETE", "/v1/conversations/{id}/items/{item_id}")}  # those that read and write a whole
KEPT = ("/v2/artifacts", "/v1/artifacts", "/v1/messages/batches", "/v1/batches", "/v1/files", "/v1/conversations", "/v1/responses/{id}")


@pytest.fixture
def stack(tmp_path):
    """Where Alice has a rate and a daily budget, and Bob has neither."""
    limits = {"alice": f"\n      throttle: {{requests_per_second: 0.002, burst_seconds: {BURST * 500}}}"
                       "\n      quotas: {token_budget_daily: 60}"}
    tenants = "".join(f"    - id: {name}\n      token_file: {secret(tmp_path, name, token)}{limits.get(name, '')}\n"
                      for name, token in TENANTS.items())
    config = tmp_path / "config.yaml"
    config.write_text(f"orchestratord:\n  tenants:\n{tenants}")
    config.chmod(0o600)
    with Stack(token=OPERATOR, env={"LLORCH_CONFIG": str(config)}) as running:
        wait_for("the model to be known", lambda: ask(running, BOB, *ASKS[0]).status == 200)
        yield running


def ask(stack, who, path, body):
    return send(stack.url, method_of(body), path, body, {**who, **JSON})


def method_of(body):
    return "GET" if body is None else "POST"


def refused_on_the_head(stack, path, method, kind=JSON):
    """What is answered to a head whose body never comes."""
    parsed = urllib.parse.urlsplit(stack.url)
    connection = http.client.HTTPConnection(parsed.hostname, parsed.port, timeout=HANG_S)
    connection.putrequest(method, path)
    for name, value in {**ALICE, **kind, "Content-Length": str(4 << 20)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, answer.getheader("Retry-After"), body


# ORCH-3006: whatever is asked, it is of one rate, and over it nothing is read.
def test_asks_are_requests_of_the_tenants_rate(stack):
    answers = [ask(stack, ALICE, *ASKS[n % len(ASKS)]) for n in range(BURST)]
    assert 429 not in [answer.status for answer in answers], [answer.body for answer in answers]
    for path, body in ASKS:
        over = ask(stack, ALICE, path, body)
        assert over.status == 429 and int(over.headers["retry-after"]) > 1, (path, over.body)
        status, retry_after, told = refused_on_the_head(stack, path, method_of(body))
        assert status == 429 and retry_after and b"requests_per_second" in told, (path, told)
    submitted = ask(stack, ALICE, "/v2/tasks", TASK)
    assert submitted.status == 429 and submitted.json["error"]["policy_label"] == "throttle.requests_per_second"
    preview = ask(stack, ALICE, *ASKS[0]).json["error"]
    assert {**preview, "correlation_id": "", "retry_after_ms": 0, "message": ""} \
        == {**submitted.json["error"], "correlation_id": "", "retry_after_ms": 0, "message": ""}
    for path, body in ASKS:  # nobody else's
        assert ask(stack, BOB, path, body).status != 429, path


# ORCH-3006: every route of the daemon's own table that a tenant may read or post to, and that is not named above.
def test_what_is_kept_is_asked_for_at_the_tenants_rate(stack):
    table = served(stack.log("orchestratord"))
    tenants = {(method, path) for (_, method, path), scope in table.items()
               if scope == "tenant" and (method != "DELETE" or (method, path) in DELETES)}
    assert tenants >= UNCOUNTED | DELETES
    for kept in KEPT:
        assert [path for _, path in tenants - UNCOUNTED if path.startswith(kept)], kept
    for _ in range(BURST):
        assert ask(stack, ALICE, "/v1/files", None).status == 200
    # The core answers before it publishes what is left of the rate, and publishes that before it answers the next one.
    assert ask(stack, ALICE, "/v1/files", None).status == 429
    for method, pattern in sorted(tenants - UNCOUNTED):
        path = pattern.replace("{id}", "x").replace("{item_id}", "y")
        assert "{" not in path, path
        kind = {"Content-Type": "multipart/form-data; boundary=edge"} if path.startswith("/v1/files") else JSON
        status, retry_after, told = refused_on_the_head(stack, path, method, kind)
        assert status == 429 and retry_after and b"requests_per_second" in told, (method, path, told)
        assert ask(stack, BOB, path, {} if method == "POST" else None).status != 429, path
    over = {path: ask(stack, ALICE, path, None) for path in ("/v2/artifacts/x", "/v1/artifacts/x", "/v1/files", "/v1/messages/batches")}
    assert {answer.code for answer in over.values()} == {"QUOTA_EXCEEDED"}
    assert over["/v1/files"].json["error"]["code"] == "rate_limit_exceeded"
    assert over["/v1/messages/batches"].json["error"]["type"] == "rate_limit_error"
    for method, pattern in sorted({(method, path) for _, method, path in table} - tenants):
        if method == "DELETE" and pattern.startswith(KEPT):  # whoever makes room is not kept from it
            path = pattern.replace("{id}", "x").replace("{item_id}", "y")
            assert send(stack.url, method, path, None, ALICE).status == 404, path


# What pools say of a model is looked up for each that is listed; the list alone is not counted.
@pytest.mark.parametrize("path", ["/v2/catalog/models", "/v2/catalog/models/demo", "/v1/catalog/models/demo"])
def test_facts_of_models_are_asked_for_at_the_tenants_rate(stack, path):
    for _ in range(BURST):
        assert ask(stack, ALICE, f"{path}?facts=true", None).status == 200
    # As above: one more, for the core publishes after it has answered.
    assert ask(stack, ALICE, f"{path}?facts=true", None).status == 429
    over = ask(stack, ALICE, f"{path}?facts=true", None)
    assert over.status == 429 and int(over.headers["retry-after"]) > 1, over.body
    assert ask(stack, ALICE, path, None).status != 429
    assert ask(stack, BOB, f"{path}?facts=true", None).status != 429


# The head is asked of a copy; all at once pass the copy, and none passes the core.
@pytest.mark.parametrize("at_once", [[ASKS[1]], [("/v1/files", None), ("/v1/messages/batches", None), ("/v1/conversations", {})]])
def test_asks_that_come_at_once_are_counted_one_by_one(stack, at_once):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda n: ask(stack, ALICE, *at_once[n % len(at_once)]).status, range(96)))
    assert answers.count(200) == BURST and answers.count(429) == 96 - BURST, answers


def test_asks_are_no_tokens_of_the_daily_budget(stack):
    for _ in range(BURST - 1):
        assert ask(stack, ALICE, "/v2/tasks/preview", {**TASK, "max_tokens": 40}).json["feasible"] is True
    done = ask(stack, ALICE, "/v2/tasks?wait=true", {**TASK, "max_tokens": 40})
    assert done.status == 200 and json.loads(done.body)["tokens_out"] == 40, done.body


# ORCH-3006: what it costs to refuse a submission is spent before the core sees a job.
@pytest.mark.parametrize("kind", range(len(REFUSED) // BURST))
def test_a_submission_that_is_refused_is_a_request_of_the_rate(stack, kind):
    kinds = REFUSED[kind * BURST:][:BURST]
    for path, body in kinds:
        answer = ask(stack, ALICE, path, body)
        assert answer.status in (400, 404), (path, answer.body)
    # As above: one more, for the core publishes after it has answered.
    assert ask(stack, ALICE, *kinds[0]).status == 429
    for path, body in kinds:
        over = ask(stack, ALICE, path, body)
        assert over.status == 429 and int(over.headers["retry-after"]) > 1, (path, over.body)
        status, retry_after, told = refused_on_the_head(stack, path, "POST")
        assert status == 429 and retry_after and b"requests_per_second" in told, (path, told)


def test_refused_submissions_that_come_at_once_are_counted_one_by_one(stack):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda n: ask(stack, ALICE, *REFUSED[n % 2]).status, range(96)))
    assert answers.count(400) == BURST and answers.count(429) == 96 - BURST, answers


# However it ends, and however often it is sent: once each.
def test_a_submission_is_one_request(stack):
    named = {**TASK, "max_tokens": 1, "task_id": "once"}
    kept = {**TASK, "max_tokens": 1, "result": {"keep_ms": 60_000}}
    choices = {"model": "demo", "prompt": "Once", "max_tokens": 1, "n": 2}  # two jobs, two requests
    sent = [("/v2/tasks?wait=true", named), ("/v2/tasks?wait=true", named), ("/v2/tasks?wait=true", kept), ("/v1/completions", choices), REFUSED[0]]
    for path, body in sent:
        answer = ask(stack, ALICE, path, body)
        assert answer.status == (400 if (path, body) == REFUSED[0] else 200), (path, answer.body)
    over = ask(stack, ALICE, "/v2/tasks", named)
    assert over.status == 429 and over.json["error"]["policy_label"] == "throttle.requests_per_second"


# A body that is none costs its place in the rate as well, and nothing of it is told or kept.
def test_garbage_is_counted(stack):
    for n in range(BURST):
        assert ask(stack, ALICE, ASKS[n % 2][0], "{").status == 400
    assert ask(stack, ALICE, *ASKS[0]).status == 429
