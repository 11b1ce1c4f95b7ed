"""A tenant that leaves more batches than there is room for: what is kept of them is bounded, and nothing that was begun is lost."""

import json

import pytest

from attacker import JSON, OPERATOR, TENANTS, bearer, secret, send
from stack import HANG_S, Stack, wait_for

ALICE, BOB = (bearer(token) for token in TENANTS.values())
BYTES_MAX = 1 << 20
BLOB_BYTES_MIN = 4096  # as which each kept thing counts at least
BATCH_BYTES_MIN = 3 * BLOB_BYTES_MIN  # itself and what its answers go to, of either API
UNFINISHED_MAX = 64
FORM = {"Content-Type": "multipart/form-data; boundary=edge"}


def ask(stack, who, method, path, body=None):
    return send(stack.url, method, path, body, {**who, **(JSON if body is not None else {})})


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secrets")
    tenants = "".join(f"    - id: {name}\n      token_file: {secret(directory, name, token)}\n" for name, token in TENANTS.items())
    config = directory / "config.yaml"
    config.write_text(f"orchestratord:\n  tenants:\n{tenants}")
    config.chmod(0o600)
    with Stack(token=OPERATOR, settings={"orchestratord.files.tenant_bytes_max": str(BYTES_MAX)}, env={"LLORCH_CONFIG": str(config)}) as running:
        wait_for("the model", lambda: ask(running, {"Authorization": f"Bearer {OPERATOR}"}, "POST", "/v2/tasks?wait=true",
                                          {"model": "demo", "prompt": "Once", "max_tokens": 1}).status == 200)
        yield running


def upload(stack, who, content):
    form = (b'--edge\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            b'--edge\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n' + content + b"\r\n--edge--\r\n")
    return send(stack.url, "POST", "/v1/files", form, {**who, **FORM})


def room(stack, who):
    """What a tenant may still keep, as the refusal of too much says it."""
    refused = upload(stack, who, b"x" * BYTES_MAX)
    assert (refused.status, refused.code) == (429, "QUOTA_EXCEEDED"), refused.body
    details = refused.envelope["details"]
    return details["bytes_max"] - details["held_bytes"]


def fill(stack, who, left):
    """The id of a file that takes all but `left` bytes and less than what a blob counts as."""
    overhead = 2048  # more than what a blob is beside its content
    ballast = upload(stack, who, b"x" * (room(stack, who) - left - overhead))
    assert ballast.status == 200, ballast.body
    assert left <= room(stack, who) < left + BLOB_BYTES_MIN
    return ballast.json["id"]


class OpenAi:
    url = "/v1/batches"

    @staticmethod
    def prepare(stack, who, count):
        lines = [{"custom_id": f"c{n}", "method": "POST", "url": "/v1/completions",
                  "body": {"model": "demo", "prompt": f"Once {n}", "max_tokens": 2}} for n in range(count)]
        file = upload(stack, who, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return {"input_file_id": file.json["id"], "endpoint": "/v1/completions", "completion_window": "24h"}

    @staticmethod
    def answered(batch):
        return batch["request_counts"]["completed"] if batch["status"] == "completed" else None

    @staticmethod
    def results(stack, who, batch):
        return ask(stack, who, "GET", f"/v1/files/{batch['output_file_id']}/content").body


class Anthropic:
    url = "/v1/messages/batches"

    @staticmethod
    def prepare(_stack, _who, count):
        params = {"model": "demo", "max_tokens": 2, "messages": [{"role": "user", "content": "Once"}]}
        return {"requests": [{"custom_id": f"c{n}", "params": params} for n in range(count)]}

    @staticmethod
    def answered(batch):
        counts = batch["request_counts"]  # the demo model has no template: each is an answer nevertheless
        return counts["succeeded"] + counts["errored"] if batch["processing_status"] == "ended" else None

    @staticmethod
    def results(stack, who, batch):
        return ask(stack, who, "GET", batch["results_url"]).body


def ended(stack, who, api, batch_id):
    """The batch, and how many requests were answered."""
    def look():
        batch = ask(stack, who, "GET", f"{api.url}/{batch_id}").json
        return (batch, api.answered(batch)) if api.answered(batch) is not None else None

    return wait_for("the batch to end", look, timeout_s=2 * HANG_S)


def tasks(stack, who):
    return ask(stack, who, "GET", "/v2/tasks?limit=1000").json["tasks"]


def custom_ids(results):
    return sorted(json.loads(line)["custom_id"] for line in results.splitlines())


@pytest.mark.parametrize("api", [OpenAi, Anthropic])
def test_no_batch_begins_while_its_owner_keeps_too_much(stack, api):
    before = len(tasks(stack, ALICE))
    wanted = api.prepare(stack, ALICE, 5)
    ballast = fill(stack, ALICE, BATCH_BYTES_MIN)
    begun = ask(stack, ALICE, "POST", api.url, wanted)
    assert begun.status == 200, begun.body
    batch_id = begun.json["id"]
    line, = stack.wait_lines("orchestratord", "batch.waits_for_room", batch_id)
    assert f"of {BYTES_MAX} bytes" in json.loads(line)["reason"]
    other = ask(stack, BOB, "POST", api.url, api.prepare(stack, BOB, 5))
    assert ended(stack, BOB, api, other.json["id"])[1] == 5, "nobody else waits"
    waiting = ask(stack, ALICE, "GET", f"{api.url}/{batch_id}").json
    assert api.answered(waiting) is None and len(tasks(stack, ALICE)) == before
    if api is OpenAi:
        assert waiting["status"] == "validating" and waiting["request_counts"]["completed"] == 0
    assert ask(stack, ALICE, "DELETE", f"/v1/files/{ballast}").status == 200
    batch, answered = ended(stack, ALICE, api, batch_id)
    assert answered == 5 and custom_ids(api.results(stack, ALICE, batch)) == [f"c{n}" for n in range(5)]
    assert len(stack.wait_lines("orchestratord", "batch.waits_for_room", batch_id)) == 1, "it is said once"


def test_a_running_batch_begins_no_further_line_until_there_is_room(stack):
    """Those under way are answered and kept; a restart changes nothing; when something was deleted, the others come."""
    total = 200
    before = len(tasks(stack, ALICE))
    wanted = OpenAi.prepare(stack, ALICE, total)
    ballast = fill(stack, ALICE, BATCH_BYTES_MIN + 2 * BLOB_BYTES_MIN)
    batch_id = ask(stack, ALICE, "POST", OpenAi.url, wanted).json["id"]

    def at_rest():
        batch = ask(stack, ALICE, "GET", f"{OpenAi.url}/{batch_id}").json
        return batch["request_counts"] if batch["request_counts"]["completed"] == len(tasks(stack, ALICE)) - before else None

    stack.wait_lines("orchestratord", "batch.waits_for_room", batch_id)
    counts = wait_for("what runs to be answered", at_rest)
    assert 0 < counts["completed"] < total and counts["failed"] == 0, counts
    assert ask(stack, ALICE, "POST", OpenAi.url, wanted).code == "QUOTA_EXCEEDED"
    stack.orchestrator.kill()
    stack.orchestrator.wait()
    stack.start_orchestrator()
    stack.wait_lines("orchestratord", "batch.waits_for_room", batch_id, least=2)
    assert wait_for("its counts", at_rest) == counts
    assert ask(stack, ALICE, "GET", f"{OpenAi.url}/{batch_id}").json["status"] == "in_progress"
    assert ask(stack, ALICE, "DELETE", f"/v1/files/{ballast}").status == 200
    batch, answered = ended(stack, ALICE, OpenAi, batch_id)
    assert answered == total and custom_ids(OpenAi.results(stack, ALICE, batch)) == sorted(f"c{n}" for n in range(total))


def test_a_batch_that_waits_for_room_is_cancelled(stack):
    wanted = OpenAi.prepare(stack, ALICE, 5)
    ballast = fill(stack, ALICE, BATCH_BYTES_MIN)
    batch_id = ask(stack, ALICE, "POST", OpenAi.url, wanted).json["id"]
    stack.wait_lines("orchestratord", "batch.waits_for_room", batch_id)
    assert ask(stack, ALICE, "POST", f"{OpenAi.url}/{batch_id}/cancel").status == 200
    wait_for("its end", lambda: ask(stack, ALICE, "GET", f"{OpenAi.url}/{batch_id}").json["status"] == "cancelled")
    assert ask(stack, ALICE, "DELETE", f"/v1/files/{ballast}").status == 200


def test_a_tenant_has_so_many_unfinished_batches_and_no_more(stack):
    """Whichever API they came by; others have theirs."""
    wanted = {api: api.prepare(stack, BOB, 1) for api in (OpenAi, Anthropic)}
    stack.gate.hold()
    try:
        batches = [(api, ask(stack, BOB, "POST", api.url, wanted[api])) for api in [OpenAi, Anthropic] * (UNFINISHED_MAX // 2)]
        assert {begun.status for _, begun in batches} == {200}
        for api in (OpenAi, Anthropic):
            refused = ask(stack, BOB, "POST", api.url, wanted[api])
            assert (refused.status, refused.code) == (429, "QUOTA_EXCEEDED"), refused.body
            assert refused.envelope["details"]["limit"] == UNFINISHED_MAX and f"{UNFINISHED_MAX} batches" in refused.envelope["message"]
            assert refused.envelope["policy_label"] == "quota.batches"
        held = room(stack, BOB)
        assert ask(stack, BOB, "POST", OpenAi.url, wanted[OpenAi]).status == 429 and room(stack, BOB) == held, "nothing is left of it"
        assert ask(stack, ALICE, "POST", Anthropic.url, Anthropic.prepare(stack, ALICE, 1)).status == 200
    finally:
        stack.gate.open()
    api, first = batches[0]
    ended(stack, BOB, api, first.json["id"])
    assert ask(stack, BOB, "POST", OpenAi.url, wanted[OpenAi]).status == 200
