"""/v1/messages/batches of real daemons: every request gets one answer, whatever dies meanwhile."""

import json
import uuid

import pytest
from chat_model import write_chat_model
from stack import HANG_S, Stack, wait_for

NEEDLE = "xyzzy-needle"
URL = "/v1/messages/batches"
KILLS = 3
REQUESTS = 60
STEPS = 12  # more than an answer has tokens, fewer than the batch takes


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    return {"models.aliases.tiny": f"file:{directory}", "models.allowed_roots": str(directory.parent)}


def params(number, **fields):
    return {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": f"Tell {NEEDLE} {number}."}], **fields}


def entry(number, **fields):
    return {"custom_id": f"ask-{number}", "params": params(number, **fields)}


def know_model(stack):
    wait_for("the model to be known", lambda: stack.request("POST", "/v1/messages", params(0)).status == 200)


@pytest.fixture(scope="module", name="stack")
def running_stack(settings):
    with Stack(settings) as stack:
        know_model(stack)
        yield stack


def begin(stack, requests, **arguments):
    answer = stack.request("POST", URL, {"requests": requests}, **arguments)
    assert answer.status == 200, answer.body
    return answer.json


def batch_of(stack, batch_id):
    answer = stack.request("GET", f"{URL}/{batch_id}")
    assert answer.status == 200, answer.body
    return answer.json


def ended(stack, batch_id):
    def batch():
        now = batch_of(stack, batch_id)
        assert sum(now["request_counts"].values()) == sum(begun_counts.setdefault(batch_id, now["request_counts"]).values())
        return now if now["processing_status"] == "ended" else None

    begun_counts = {}
    return wait_for("the batch to end", batch, timeout_s=2 * HANG_S)


def results(stack, batch):
    answer = stack.request("GET", batch["results_url"])
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-jsonl"), answer.body
    lines = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert len({line["custom_id"] for line in lines}) == len(lines), "one answer each"
    return {line["custom_id"]: line["result"] for line in lines}


def blobs(stack):
    return {path.name for path in (stack.dir / "blobs").iterdir() if path.is_file() and path.name.startswith("msgbatch_")}


# SYS-3.1.1: the bytes do not depend on who waits.
def test_every_request_has_one_answer(stack):
    bad = [entry("long", max_tokens=-1), entry("none", model="none"), entry("stream", stream=True), entry("odd", n=3)]
    begun = begin(stack, [entry(n) for n in range(30)] + bad)
    assert begun["type"] == "message_batch" and begun["id"].startswith("msgbatch_") and begun["processing_status"] == "in_progress"
    assert begun["request_counts"] == {"processing": 34, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
    assert begun["results_url"] is None and begun["ended_at"] is None
    batch = ended(stack, begun["id"])
    assert batch["request_counts"] == {"processing": 0, "succeeded": 30, "errored": 4, "canceled": 0, "expired": 0}
    assert batch["ended_at"] and batch["cancel_initiated_at"] is None and batch["created_at"] == begun["created_at"]
    answers = results(stack, batch)
    assert set(answers) == {f"ask-{n}" for n in [*range(30), "long", "none", "stream", "odd"]}
    for name, kind in (("long", "invalid_request_error"), ("none", "not_found_error"), ("stream", "invalid_request_error"), ("odd", "invalid_request_error")):
        result = answers[f"ask-{name}"]
        error = result["error"]
        assert (result["type"], error["type"], error["error"]["type"]) == ("errored", "error", kind)
        assert uuid.UUID(error["request_id"]) and NEEDLE not in error["error"]["message"]
    message = answers["ask-3"]["message"]
    assert (answers["ask-3"]["type"], message["type"]) == ("succeeded", "message")
    alone = stack.request("POST", "/v1/messages", params(3, seed=message["llorch"]["receipt"]["seed"])).json
    assert alone["content"] == message["content"] and alone["usage"] == message["usage"]
    assert stack.job(message["id"].removeprefix("msg_"))["priority"] == "batch"


def test_what_is_no_batch_is_refused_and_leaves_nothing(stack):
    before = blobs(stack)
    for body, field in (({}, "requests"), ({"requests": []}, "requests"), ({"requests": [entry(1), entry(1)]}, "requests[1].custom_id"),
                        ({"requests": [{**entry(1), "custom_id": "a b"}]}, "requests[0].custom_id"),
                        ({"requests": [{**entry(1), "params": "x"}]}, "requests[0].params"),
                        ({"requests": [entry(1)], "model": "tiny"}, "model")):
        answer = stack.request("POST", URL, body)
        assert (answer.status, answer.json["error"]["llorch"]["details"]["field"]) == (400, field), answer.body
        assert NEEDLE not in answer.body.decode()
    assert stack.request("POST", URL, {"requests": [entry(1, system="x" * (5 << 20))]}).status == 413
    assert blobs(stack) == before


def test_the_list_has_pages_in_both_directions(stack):
    ids = [begin(stack, [entry(n)])["id"] for n in range(5)][::-1]

    def page(query):
        answer = stack.request("GET", URL + query)
        assert answer.status == 200, answer.body
        assert "object" not in answer.json
        return [batch["id"] for batch in answer.json["data"]], answer.json["has_more"]

    assert page("?limit=2") == (ids[:2], True)
    assert page(f"?limit=2&after_id={ids[1]}") == (ids[2:4], True)
    assert page(f"?limit=2&before_id={ids[3]}") == (ids[1:3], True)
    assert page(f"?limit=4&before_id={ids[2]}") == (ids[:2], False)
    for query in ("?limit=0", "?limit=1001", "?after_id=nobody", f"?after_id={ids[0]}&before_id={ids[1]}"):
        assert stack.request("GET", URL + query).status == 400, query
    for batch_id in ids:
        ended(stack, batch_id)


def test_a_cancelled_batch_says_what_ran_and_what_did_not(stack):
    stack.gate.hold()
    try:
        begun = begin(stack, [entry(n, max_tokens=200, logit_bias={"2": -100}) for n in range(60)])
        wait_for("its jobs", lambda: [j for j in stack.request("GET", "/v2/tasks").json["tasks"] if j["status"] in ("running", "dispatched")])
        assert stack.request("GET", f"{URL}/{begun['id']}/results").status == 409
        assert stack.request("DELETE", f"{URL}/{begun['id']}").status == 409
        canceling = stack.request("POST", f"{URL}/{begun['id']}/cancel")
        assert canceling.status == 200 and canceling.json["processing_status"] in ("canceling", "ended"), canceling.body
        assert canceling.json["cancel_initiated_at"]
        assert stack.request("POST", f"{URL}/{begun['id']}/cancel").status in (200, 409)
    finally:
        stack.gate.open()
    batch = ended(stack, begun["id"])
    answers = results(stack, batch)
    counts = batch["request_counts"]
    assert len(answers) == 60 == sum(counts.values()) and counts["canceled"] > 30 and counts["processing"] == 0
    for status in ("succeeded", "errored", "canceled", "expired"):
        assert sum(result["type"] == status for result in answers.values()) == counts[status], status
    refused = stack.request("POST", f"{URL}/{begun['id']}/cancel")
    assert (refused.status, refused.json["error"]["llorch"]["code"]) == (409, "CONFLICT")
    assert refused.headers["x-should-retry"] == "false"


def test_a_deleted_batch_is_gone_and_its_requests_went_before(stack):
    stack.gate.hold()
    try:
        batch_id = begin(stack, [entry(1)])["id"]
        assert f"{batch_id}-requests" in {name.split(".")[0] for name in blobs(stack)}
    finally:
        stack.gate.open()
    ended(stack, batch_id)
    assert {name.split(".")[0] for name in blobs(stack) if name.startswith(batch_id)} == {batch_id, f"{batch_id}-results"}
    assert stack.request("DELETE", f"{URL}/{batch_id}").json == {"id": batch_id, "type": "message_batch_deleted"}
    for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("DELETE", "")):
        answer = stack.request(method, f"{URL}/{batch_id}{path}")
        assert (answer.status, answer.json["error"]["type"]) == (404, "not_found_error"), (method, path)
    assert not [name for name in blobs(stack) if name.startswith(batch_id)]


def test_a_batch_of_one_api_is_none_of_the_other(stack):
    batch_id = begin(stack, [entry(1)])["id"]
    assert stack.request("GET", f"/v1/batches/{batch_id}").status == 404
    assert batch_id not in [batch["id"] for batch in stack.request("GET", "/v1/batches").json["data"]]
    for name in (batch_id, f"{batch_id}-results", f"{batch_id}-requests"):
        assert stack.request("GET", f"/v1/files/{name}/content").status == 404
    assert stack.request("GET", f"{URL}/{batch_id}-results").status == 404
    ended(stack, batch_id)


def test_batches_of_both_apis_take_turns(stack):
    """One batch of a caller at a time, the oldest first, whichever API it came by."""
    lines = "".join(json.dumps({"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions",
                                "body": {"model": "tiny", "messages": params(n)["messages"], "max_tokens": 8}}) + "\n" for n in range(5))
    form = ('--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; '
            f'filename="x"\r\n\r\n{lines}\r\n--b--\r\n')
    file_id = stack.request("POST", "/v1/files", form, {"Content-Type": "multipart/form-data; boundary=b"}).json["id"]
    stack.gate.hold()
    try:
        first = begin(stack, [entry(n) for n in range(5)])["id"]
        theirs = stack.request("POST", "/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}).json["id"]
        last = begin(stack, [entry(n) for n in range(5)])["id"]
    finally:
        stack.gate.open()
    messages = [[result["message"]["id"].removeprefix("msg_") for result in results(stack, ended(stack, batch_id)).values()] for batch_id in (first, last)]
    batch = stack.request("GET", f"/v1/batches/{theirs}").json
    assert batch["status"] == "completed", "it came before the last one"
    answers = stack.request("GET", f"/v1/files/{batch['output_file_id']}/content").body.decode().splitlines()
    chats = [json.loads(line)["response"]["body"]["id"].removeprefix("chatcmpl-") for line in answers]
    turns = [[stack.job(job_id) for job_id in ids] for ids in (messages[0], chats, messages[1])]
    assert [len(jobs) for jobs in turns] == [5, 5, 5]
    for earlier, later in zip(turns, turns[1:]):
        assert max(job["finished_at"] for job in earlier) <= min(job["submitted_at"] for job in later)


# ORCH-2002, SYS-2.4.2: nothing accepted is lost, and nothing comes twice.
def test_a_batch_outlives_every_kill(settings):
    with Stack(settings) as stack:
        know_model(stack)
        begun = begin(stack, [entry(n, seed=n) for n in range(REQUESTS)])
        undisturbed = results(stack, ended(stack, begun["id"]))
        batch_id = begin(stack, [entry(n, seed=n) for n in range(REQUESTS)])["id"]
        behind = begin(stack, [entry(n, seed=n) for n in range(3)])["id"]
        def answered():
            return sum(path.stat().st_size for path in (stack.dir / "blobs").glob(f"{batch_id}-results*"))

        for _ in range(KILLS):
            stack.gate.hold()
            before = answered()
            stack.gate.let_pass(STEPS)
            wait_for("some answers", lambda: answered() > before)
            assert batch_of(stack, batch_id)["request_counts"]["processing"] == REQUESTS
            for process in (stack.orchestrator, stack.pool):
                process.kill()
                process.wait()
            stack.gate.open()
            stack.gate.hold()
            stack.start()
        stack.gate.open()
        batch = ended(stack, batch_id)
        assert batch["request_counts"] == {"processing": 0, "succeeded": REQUESTS, "errored": 0, "canceled": 0, "expired": 0}
        answers = results(stack, batch)
        assert {name: result["message"]["content"] for name, result in answers.items()} \
            == {name: result["message"]["content"] for name, result in undisturbed.items()}
        assert ended(stack, behind)["request_counts"]["succeeded"] == 3
        kept = b"".join(path.read_bytes() for path in (stack.dir / "blobs").iterdir() if path.is_file())
        assert kept and NEEDLE.encode() not in kept
        assert all(NEEDLE not in stack.log(name) for name in ("orchestratord", "pool-managerd"))


def test_a_cancel_outlives_a_kill(settings):
    with Stack(settings) as stack:
        know_model(stack)
        stack.gate.hold()
        begun = begin(stack, [entry(n, max_tokens=200, logit_bias={"2": -100}) for n in range(40)])
        wait_for("its jobs", lambda: [j for j in stack.request("GET", "/v2/tasks").json["tasks"] if j["status"] in ("running", "dispatched")])
        stack.request("POST", f"{URL}/{begun['id']}/cancel")
        for process in (stack.orchestrator, stack.pool):
            process.kill()
            process.wait()
        stack.gate.open()
        stack.start()
        batch = ended(stack, begun["id"])
        assert batch["cancel_initiated_at"] and len(results(stack, batch)) == 40
        assert wait_for("its requests to go", lambda: not [name for name in blobs(stack) if name.startswith(f"{begun['id']}-requests")])
