"""result: {keep_ms} of POST /v2/tasks: a result that waits for whoever submitted the job."""

import pytest

from stack import ALIAS, Stack, wait_for

# Without its end of text (2047): whatever seed is drawn, an answer has twelve tokens.
TASK = {"model": ALIAS, "prompt": "Once upon a time xyzzy-needle", "max_tokens": 12, "seed": 7, "logit_bias": {"2047": -100}}
KEEP = {"result": {"keep_ms": 600_000}}


def submit(stack, query="", **fields):
    answer = stack.request("POST", f"/v2/tasks{query}", {**TASK, **fields})
    assert answer.status in (200, 202), answer.body
    return answer.json


def result(stack, job_id):
    return stack.request("GET", f"/v2/tasks/{job_id}/result")


def kept(stack, job_id):
    return wait_for("the result", lambda: (answer := result(stack, job_id)).status != 409 and answer)


def blobs(stack):
    return {path.name for path in (stack.dir / "blobs").iterdir() if path.name != "keys"}


def test_a_kept_result_is_the_one_that_is_waited_for(stack):
    waited = submit(stack, "?wait=true", **KEEP)
    answer = kept(stack, waited["job_id"])
    assert answer.status == 200 and answer.json == waited
    assert result(stack, waited["job_id"]).body == answer.body, "any number of times"
    assert stack.request("DELETE", f"/v2/tasks/{waited['job_id']}/result").status == 204
    gone = result(stack, waited["job_id"])
    assert (gone.status, gone.code) == (404, "NOT_FOUND")


def test_nothing_is_kept_without_a_word(stack):
    before = blobs(stack)
    plain = submit(stack, "?wait=true")
    assert result(stack, plain["job_id"]).status == 404 and blobs(stack) == before
    refused = stack.request("POST", "/v2/tasks", {**TASK, **KEEP, "model": "none"})
    assert refused.status == 404 and blobs(stack) == before
    assert stack.request("POST", "/v2/tasks", {**TASK, "result": {"keep_ms": 0}}).status == 400
    assert result(stack, "0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b").code == "JOB_NOT_FOUND"


def test_it_comes_after_its_client_has_gone(stack):
    stack.gate.hold()
    try:
        job_id = submit(stack, **KEEP)["job_id"]
        early = result(stack, job_id)
        assert (early.status, early.code) == (409, "CONFLICT")
    finally:
        stack.gate.open()
    assert kept(stack, job_id).json["tokens_out"] == 12


def test_the_same_task_is_the_same_result(stack):
    first = submit(stack, task_id="tale-1", **KEEP)
    again = submit(stack, task_id="tale-1", **KEEP)
    assert first["job_id"] == again["job_id"] and kept(stack, first["job_id"]).json["task_id"] == "tale-1"
    other = stack.request("POST", "/v2/tasks", {**TASK, "task_id": "tale-1"})
    assert (other.status, other.code) == (409, "CONFLICT"), "another request"


def test_a_cancelled_job_has_its_error_for_a_result(stack):
    stack.gate.hold()
    try:
        job_id = submit(stack, max_tokens=200, **KEEP)["job_id"]
        stack.request("POST", f"/v2/tasks/{job_id}/cancel")
    finally:
        stack.gate.open()
    assert kept(stack, job_id).code == "CANCELLED"


def ended_and_forgotten(stack, **fields):
    """The id of a job of the task `fields`, whose stream is gone and whose result was deleted."""
    job_id = submit(stack, **fields)["job_id"]
    yield job_id
    kept(stack, job_id)
    assert stack.request("DELETE", f"/v2/tasks/{job_id}/result").status == 204

    def streams():
        text = stack.request("GET", "/metrics").body.decode()
        return [float(line.split()[-1]) for line in text.splitlines() if line.startswith("orchd_active_streams")]

    wait_for("the stream to go", lambda: streams() == [0])


@pytest.fixture(scope="module", name="forgetful")
def forgetful_stack():
    with Stack({"orchestratord.stream.retain_ms": "0"}) as stack:
        yield stack


@pytest.mark.parametrize("query", ["", "?wait=true"])
def test_a_failed_task_that_comes_again_after_its_result_went_says_so(forgetful, query):
    stack, fields = forgetful, {"task_id": f"failed-{len(query)}", "max_tokens": 200, **KEEP}
    stack.gate.hold()
    try:
        ended = ended_and_forgotten(stack, **fields)
        job_id = next(ended)
        stack.request("POST", f"/v2/tasks/{job_id}/cancel")
    finally:
        stack.gate.open()
    next(ended, None)
    answer = stack.request("POST", f"/v2/tasks{query}", {**TASK, **fields})
    if query:
        assert answer.code == "CANCELLED", answer.body
    else:
        assert (answer.status, answer.json["job_id"], answer.json["status"]) == (202, job_id, "cancelled"), answer.body
    assert kept(stack, job_id).code == "CANCELLED"


@pytest.mark.parametrize("query", ["", "?wait=true"])
def test_a_task_that_comes_again_after_its_result_went_has_it_where_it_was(forgetful, query):
    """It runs once more, under another name that only its events have."""
    stack, fields = forgetful, {"task_id": f"done-{len(query)}", **KEEP}
    ended = ended_and_forgotten(stack, **fields)
    job_id = next(ended)
    first = kept(stack, job_id).json
    next(ended, None)
    answer = submit(stack, query, **fields)
    assert (answer["job_id"], answer["task_id"]) == (job_id, fields["task_id"])
    if not query:
        running = answer["events_url"].split("/")[3]
        assert running != job_id and stack.read_to_end(running)[-1].name == "end", "what runs can be followed"
    again = kept(stack, job_id).json
    assert (again["job_id"], again["task_id"], again["text"]) == (job_id, fields["task_id"], first["text"])
    assert stack.request("DELETE", f"/v2/tasks/{job_id}/result").status == 204


# ORCH-2002: what was accepted is finished, and what was to be kept is kept.
@pytest.mark.parametrize("seed", [7, None])
def test_it_outlives_a_kill_of_everything(seed):
    fields = {"seed": seed} if seed else {}
    task = {key: value for key, value in TASK.items() if key != "seed"}
    with Stack() as stack:
        stack.request("POST", "/v2/tasks?wait=true", TASK)  # a worker is there
        stack.gate.hold()
        stack.gate.let_pass(4)
        job_id = stack.request("POST", "/v2/tasks", {**task, **fields, **KEEP}).json["job_id"]
        wait_for("some tokens", lambda: stack.gate.steps_left() == 0)
        for process in (stack.orchestrator, stack.pool):
            process.kill()
            process.wait()
        stack.gate.open()
        stack.start()
        answer = kept(stack, job_id).json
        assert answer["job_id"] == job_id and answer["tokens_out"] == 12
        alone = submit(stack, "?wait=true", seed=answer["receipt"]["seed"])
        assert alone["text"] == answer["text"] and alone["receipt"]["output_sha256"] == answer["receipt"]["output_sha256"]
        files = b"".join(path.read_bytes() for path in (stack.dir / "blobs").iterdir())
        assert b"xyzzy" not in files and answer["text"].encode() not in files


def test_its_time_is_over():
    with Stack() as stack:
        job_id = submit(stack, "?wait=true", result={"keep_ms": 1})["job_id"]
        wait_for("the result to go", lambda: result(stack, job_id).status == 404 and not blobs(stack))
