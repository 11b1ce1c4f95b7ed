"""What a tenant can learn of, and do to, what another one asked to have kept: results, artifacts, files, batches, responses,
conversations. All of it is one's own, and what is another's answers as what never was."""

import json
import uuid

import pytest

from attacker import JSON, OPERATOR, READER, TENANTS, bearer, send
from stack import wait_for

ALICE, BOB = (bearer(token) for token in TENANTS.values())
NEEDLE = "alices own words"
TASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 3, "seed": 7}
DOCUMENT = {"kind": "plan", "content": {"steps": [NEEDLE]}, "tags": ["mine"]}
LINE = {"custom_id": "1", "method": "POST", "url": "/v1/completions",
        "body": {"model": "demo", "prompt": "Once", "max_tokens": 1}}
MESSAGE = {"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": NEEDLE}]}


def ask(stack, who, method, path, body=None):
    return send(stack.url, method, path, body, {**who, **(JSON if body is not None else {})})


def upload(stack, who):
    form = (b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
            + json.dumps(LINE).encode() + b"\r\n--edge--\r\n")
    return send(stack.url, "POST", "/v1/files", form, {**who, "Content-Type": "multipart/form-data; boundary=edge"})


@pytest.fixture(scope="module")
def alices(guarded_stack):
    """The ids of what Alice has kept, by kind."""
    stack = guarded_stack
    ids = {}
    job = ask(stack, ALICE, "POST", "/v2/tasks?wait=true", {**TASK, "task_id": "nightly", "result": {"keep_ms": 600_000}})
    assert job.status == 200, job.body
    ids["job"] = job.json["job_id"]
    wait_for("the result", lambda: ask(stack, ALICE, "GET", f"/v2/tasks/{ids['job']}/result").status == 200)
    ids["artifact"] = ask(stack, ALICE, "POST", "/v2/artifacts", DOCUMENT).json["id"]
    ids["file"] = upload(stack, ALICE).json["id"]
    batch = {"input_file_id": ids["file"], "endpoint": "/v1/completions", "completion_window": "24h"}
    ids["batch"] = ask(stack, ALICE, "POST", "/v1/batches", batch).json["id"]
    ids["message_batch"] = ask(stack, ALICE, "POST", "/v1/messages/batches", {"requests": [{"custom_id": "1", "params": MESSAGE}]}).json["id"]
    response = ask(stack, ALICE, "POST", "/v1/responses", {"model": "tale", "input": "Once", "max_output_tokens": 1, "background": True,
                                                           "store": True})
    assert response.status == 200, response.body
    ids["response"] = response.json["id"]
    talk = ask(stack, ALICE, "POST", "/v1/conversations", {"items": [{"role": "user", "content": NEEDLE}], "metadata": {"note": NEEDLE}})
    ids["conversation"] = talk.json["id"]
    return ids


ROUTES = [("job", "GET", "/v2/tasks/{id}/result"), ("job", "DELETE", "/v2/tasks/{id}/result"),
          ("artifact", "GET", "/v2/artifacts/{id}"), ("artifact", "DELETE", "/v2/artifacts/{id}"),
          ("artifact", "GET", "/v1/artifacts/{id}"),
          ("file", "GET", "/v1/files/{id}"), ("file", "GET", "/v1/files/{id}/content"), ("file", "DELETE", "/v1/files/{id}"),
          ("batch", "GET", "/v1/batches/{id}"), ("batch", "POST", "/v1/batches/{id}/cancel"),
          *[("message_batch", method, "/v1/messages/batches/{id}" + path)
            for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("DELETE", ""))],
          *[("conversation", method, "/v1/conversations/{id}" + path)
            for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/items"), ("GET", "/items/msg_1"), ("DELETE", "/items/msg_1"))],
          ("response", "GET", "/v1/responses/{id}"), ("response", "GET", "/v1/responses/{id}?stream=true"),
          ("response", "GET", "/v1/responses/{id}/input_items"),
          ("response", "POST", "/v1/responses/{id}/cancel"), ("response", "DELETE", "/v1/responses/{id}")]


def of_nobody(an_id):
    """An id of the same form that nobody has."""
    if len(an_id) == 64:
        return "0" * 64
    return f"{an_id.rpartition('-' if an_id.startswith('batch-') else '_')[0]}_{uuid.uuid4().hex}" if "_" in an_id else str(uuid.uuid4())


def told(answer, an_id):
    """An answer without what differs by itself."""
    text = answer.body.decode().replace(an_id, "ID")
    return answer.status, text.replace(answer.headers.get("x-correlation-id", "-"), "CORRELATION")


def test_what_is_kept_for_another_is_what_never_was(guarded_stack, alices):
    """Read, stream, cancel, delete: 404 with the words for an id that nobody has; it stays as it was, over a restart too."""
    def probe():
        for kind, method, path in ROUTES:
            mine, nobodys = alices[kind], of_nobody(alices[kind])
            foreign = ask(guarded_stack, BOB, method, path.format(id=mine))
            strange = ask(guarded_stack, BOB, method, path.format(id=nobodys))
            assert foreign.status == 404, (method, path, foreign.body)
            assert told(foreign, mine) == told(strange, nobodys), (method, path)

    probe()
    guarded_stack.orchestrator.kill()
    guarded_stack.orchestrator.wait()
    guarded_stack.start_orchestrator()
    wait_for("the stack to serve", lambda: ask(guarded_stack, ALICE, "GET", f"/v2/artifacts/{alices['artifact']}").status == 200)
    probe()
    for kind, path in (("job", "/v2/tasks/{id}/result"), ("artifact", "/v2/artifacts/{id}"), ("file", "/v1/files/{id}/content"),
                       ("batch", "/v1/batches/{id}"), ("message_batch", "/v1/messages/batches/{id}"), ("response", "/v1/responses/{id}"),
                       ("conversation", "/v1/conversations/{id}")):
        assert ask(guarded_stack, ALICE, "GET", path.format(id=alices[kind])).status == 200, kind


def test_nothing_of_another_is_named_in_a_request(guarded_stack, alices):
    """A parent, an input, an earlier turn, a name of a task: an id of another's is refused as one of nobody's, or is one's own."""
    answers = set()
    for id_of in (lambda an_id: an_id, of_nobody):
        parent = ask(guarded_stack, BOB, "POST", "/v2/artifacts", {**DOCUMENT, "parent": id_of(alices["artifact"])})
        assert (parent.status, parent.code) == (400, "INVALID_PARAMS")
        assert parent.envelope["details"] == {"field": "parent", "reason": "unknown"}
        batch = ask(guarded_stack, BOB, "POST", "/v1/batches", {"input_file_id": id_of(alices["file"]), "endpoint": "/v1/completions",
                                                                "completion_window": "24h"})
        assert batch.status in (400, 404) and NEEDLE.encode() not in batch.body
        turn = ask(guarded_stack, BOB, "POST", "/v1/responses", {"model": "tale", "input": "x", "max_output_tokens": 1,
                                                                 "previous_response_id": id_of(alices["response"])})
        assert turn.status in (400, 404), turn.body
        turn = ask(guarded_stack, BOB, "POST", "/v1/responses", {"model": "tale", "input": "x", "max_output_tokens": 1,
                                                                 "conversation": id_of(alices["conversation"])})
        assert turn.status == 404 and turn.json["error"]["param"] == "conversation", turn.body
        item = f"msg_{id_of(alices['response']).removeprefix('resp_')}"
        for named in (item, f"{item}_in0"):
            turn = ask(guarded_stack, BOB, "POST", "/v1/responses", {"model": "tale", "input": [{"type": "item_reference", "id": named}],
                                                                     "max_output_tokens": 1})
            assert turn.status == 404 and turn.json["error"]["param"] == "input[0].id", turn.body
            answers.add(told(turn, named))
    assert len(answers) == 1, "what is kept for another is told as what never was"
    same_name = ask(guarded_stack, BOB, "POST", "/v2/tasks?wait=true", {**TASK, "task_id": "nightly", "seed": 8,
                                                                        "result": {"keep_ms": 600_000}})
    assert same_name.status == 200 and same_name.json["job_id"] != alices["job"]


def test_lists_and_equal_documents_tell_nothing(guarded_stack, alices):
    """That somebody else has posted these bytes shows in no status and no time."""
    for path in ("/v1/files", "/v1/batches", "/v1/messages/batches"):
        assert ask(guarded_stack, BOB, "GET", path).json["data"] == [], path
    guess = ask(guarded_stack, BOB, "POST", "/v2/artifacts", DOCUMENT)
    assert guess.status == 201 and guess.json["id"] == alices["artifact"], "the id is the content's; that it is kept is not"
    assert ask(guarded_stack, BOB, "DELETE", f"/v2/artifacts/{guess.json['id']}").status == 204
    assert ask(guarded_stack, ALICE, "GET", f"/v2/artifacts/{alices['artifact']}").json["content"] == DOCUMENT["content"]


def test_who_reads_metrics_reads_nothing_that_is_kept(guarded_stack, alices):
    for kind, method, path in ROUTES:
        refused = ask(guarded_stack, bearer(READER), method, path.format(id=alices[kind]))
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), (method, path)


def test_a_preview_tells_of_nobody_else(guarded_stack, alices):
    """It names the caller's own jobs and sessions; a session of another's is a new one, with no budget of another's."""
    made = ask(guarded_stack, ALICE, "POST", "/v2/sessions", {"session_id": "kept-1", "token_budget": 5})
    assert made.status == 201, made.body
    own = ask(guarded_stack, ALICE, "POST", "/v2/tasks/preview", {**TASK, "session_id": "kept-1", "max_tokens": 100})
    assert own.json["feasible"] is False and own.json["reason"] == "BUDGET_EXCEEDED", own.body
    for session in ("kept-1", "never-made"):
        seen = ask(guarded_stack, BOB, "POST", "/v2/tasks/preview", {**TASK, "session_id": session, "max_tokens": 100})
        assert seen.status == 200 and seen.json["feasible"] is True, seen.body
        for word in (alices["job"], "alice", OPERATOR):
            assert word.encode() not in seen.body
    assert ask(guarded_stack, BOB, "GET", "/v2/sessions/never-made").status == 404, "and nothing of it stays"
