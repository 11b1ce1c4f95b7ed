"""What clients of the OpenAI API leave here and fetch later: responses in the background, files, batches."""

import contextlib
import http.client
import json
import os
import resource
import signal
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_model import write_chat_model
from postgres import PostgresServer
from stack import ALIAS, HANG_S, MODEL, Stack, wait_for

NEEDLE = "xyzzy-needle"
ASK = {"model": "tiny", "input": f"Tell me of the {NEEDLE}.", "max_output_tokens": 12, "seed": 7}
KILLS = int(os.environ.get("LLORCH_BATCH_KILLS", "3"))
LINES = int(os.environ.get("LLORCH_BATCH_LINES", "60"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    return {"models.aliases.tiny": f"file:{directory}"}, directory.parent


def make_stack(settings, more=None, **arguments):
    aliases, root = settings
    return Stack({**aliases, "models.allowed_roots": f"{root},{MODEL.parent}", **(more or {})}, **arguments)


@pytest.fixture(scope="module", name="stack")
def running_stack(settings):
    with make_stack(settings) as stack:
        wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
        yield stack


def ask(stack, **fields):
    answer = stack.request("POST", "/v1/responses", {**ASK, "background": True, **fields})
    assert answer.status == 200, answer.body
    return answer.json


def fetch(stack, response_id, query="", **arguments):
    return stack.request("GET", f"/v1/responses/{response_id}{query}", **arguments)


def finished(stack, response_id):
    def done():
        answer = fetch(stack, response_id)
        assert answer.status == 200, answer.body
        return answer if answer.json["status"] not in ("queued", "in_progress") else None

    return wait_for("the response to be done", done)


def events_of(body):
    return [frame for frame in body.decode().split("\n\n") if frame and not frame.startswith(":")]


def said(response):
    return "".join(part["text"] for item in response["output"] for part in item.get("content", []))


def comparable(response):
    """What is the same of any run."""
    return said(response), response["usage"], response["status"], response["system_fingerprint"]


# SYS-3.1.1: the bytes do not depend on who waits.
def test_a_response_in_the_background_is_the_one_that_is_waited_for(stack):
    waited = stack.request("POST", "/v1/responses", ASK).json
    begun = ask(stack)
    assert begun["status"] == "queued" and begun["background"] and begun["store"] and begun["output"] == []
    done = finished(stack, begun["id"])
    assert comparable(done.json) == comparable(waited) and done.json["id"] == begun["id"]
    assert fetch(stack, begun["id"]).body == done.body, "any number of times"


def test_its_events_are_kept_and_cut_where_the_client_says(stack):
    response_id = ask(stack)["id"]
    last = finished(stack, response_id).json
    events = events_of(fetch(stack, response_id, "?stream=true").body)
    numbers = [json.loads(event.split("data: ")[1])["sequence_number"] for event in events]
    assert numbers == list(range(len(events))) and len(events) > 8
    assert json.loads(events[-1].split("data: ")[1])["response"] == last
    for after in (0, 5, len(events) - 2, len(events) - 1):
        assert events_of(fetch(stack, response_id, f"?stream=true&starting_after={after}").body) == events[after + 1 :]
    assert fetch(stack, response_id, "?stream=true&starting_after=x").status == 400


def read_events(connection, count):
    """So many events of an open stream."""
    got, held = [], b""
    while len(got) < count:
        held += connection.read1(4096)
        *whole, held = held.split(b"\n\n")
        got += [frame.decode() for frame in whole if frame and not frame.startswith(b":")]
    return got


def open_stream(stack, method, path, body=None):
    connection = http.client.HTTPConnection(stack.bind, timeout=HANG_S)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {})
    return connection, connection.getresponse()


# SYS-2.4.1, ORCH-2002: everything dies in the middle of a stream, and the official resume returns the rest.
def test_a_stream_goes_on_after_everything_was_killed(settings):
    with make_stack(settings) as stack:
        wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
        whole = events_of(fetch(stack, finished(stack, ask(stack)["id"]).json["id"], "?stream=true").body)
        stack.gate.hold()
        stack.gate.let_pass(5)
        connection, response = open_stream(stack, "POST", "/v1/responses", {**ASK, "background": True, "stream": True})
        first = read_events(response, 6)
        response_id = json.loads(first[0].split("data: ")[1])["response"]["id"]
        for process in (stack.orchestrator, stack.pool):
            process.kill()
            process.wait()
        connection.close()
        stack.gate.open()
        stack.start()
        rest = events_of(fetch(stack, response_id, f"?stream=true&starting_after={len(first) - 1}").body)
        done = finished(stack, response_id).json
        assert first + rest == events_of(fetch(stack, response_id, "?stream=true").body)
        deltas = [[json.loads(event.split("data: ")[1]).get("delta") for event in events] for events in (whole, first + rest)]
        assert deltas[0] == deltas[1] and done["status"] == json.loads(whole[-1].split("data: ")[1])["response"]["status"]


def test_who_comes_while_it_runs_sees_it_from_the_beginning(stack):
    stack.gate.hold()
    try:
        response_id = ask(stack)["id"]
        assert fetch(stack, response_id).json["status"] in ("queued", "in_progress")
        connection, response = open_stream(stack, "GET", f"/v1/responses/{response_id}?stream=true")
        stack.gate.let_pass(4)
        assert '"sequence_number":0' in read_events(response, 4)[0]
        connection.close()
    finally:
        stack.gate.open()
    assert finished(stack, response_id).json["status"] == "incomplete", "a reader that goes ends nothing"


def test_a_cancelled_one_says_so_and_stays_so(stack):
    stack.gate.hold()
    try:
        response_id = ask(stack, max_output_tokens=200)["id"]
        stack.gate.let_pass(3)
        answer = stack.request("POST", f"/v1/responses/{response_id}/cancel")
    finally:
        stack.gate.open()
    assert (answer.status, answer.json["status"]) == (200, "cancelled"), answer.body
    assert fetch(stack, response_id).json == answer.json
    assert stack.request("POST", f"/v1/responses/{response_id}/cancel").json == answer.json


def test_a_deleted_one_is_gone(stack):
    response_id = finished(stack, ask(stack)["id"]).json["id"]
    deleted = stack.request("DELETE", f"/v1/responses/{response_id}")
    assert deleted.json == {"id": response_id, "object": "response", "deleted": True}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        assert stack.request(method, f"/v1/responses/{response_id}{path}").status == 404
    assert not list((stack.dir / "blobs").glob(f"{response_id}*"))


def test_who_waits_for_a_deleted_one_is_told(stack):
    before = set((stack.dir / "blobs").glob("resp_*.blob"))
    stack.gate.hold()
    try:
        with ThreadPoolExecutor(1) as client:
            waiting = client.submit(stack.request, "POST", "/v1/responses", {**ASK, "store": True})
            file, = wait_for("the response to be kept", lambda: set((stack.dir / "blobs").glob("resp_*.blob")) - before)
            job_id = file.stem.removeprefix("resp_")
            wait_for("the job to be known", lambda: stack.request("GET", f"/v2/tasks/{job_id}").status == 200)  # it is kept first
            stack.wait_running(job_id)
            assert stack.request("DELETE", f"/v1/responses/{file.stem}").status == 200
            stack.gate.open()
            answer = waiting.result()
    finally:
        stack.gate.open()
    assert answer.code == "CANCELLED" and "deleted" in answer.json["error"]["message"], answer.body
    assert stack.wait_terminal(job_id)["status"] == "cancelled"


@contextlib.contextmanager
def admissions_held(server):
    """No job is admitted meanwhile, and none is refused."""
    command = [str(server.programs / "psql"), "-h", str(server.dir), "-U", "llorch", "-d", "jobs", "-At"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as session:
        print("BEGIN; LOCK TABLE llorch.jobs IN EXCLUSIVE MODE; SELECT 'held';", file=session.stdin, flush=True)
        while session.stdout.readline().strip() != "held":
            assert session.poll() is None
        yield
        print("COMMIT;", file=session.stdin, flush=True)
        session.stdin.close()
        session.wait(HANG_S)


def test_one_that_is_deleted_before_its_job_is_admitted_runs_no_job(settings, tmp_path):
    with PostgresServer() as server:
        store = {"orchestratord.persistence.store": "postgresql",
                 "orchestratord.persistence.postgresql.connection_file": str(server.connection_file(tmp_path))}
        with make_stack(settings, store) as stack, ThreadPoolExecutor(1) as client:
            wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
            stack.gate.hold()
            with admissions_held(server):
                asking = client.submit(stack.request, "POST", "/v1/responses", {**ASK, "background": True})
                file, = wait_for("the response to be kept", lambda: list((stack.dir / "blobs").glob("resp_*.blob")))
                assert stack.request("DELETE", f"/v1/responses/{file.stem}").status == 200
                answer = asking.result()
            assert answer.code == "CANCELLED", answer.body
            job_id = file.stem.removeprefix("resp_")
            wait_for("the job to be admitted", lambda: stack.request("GET", f"/v2/tasks/{job_id}").status == 200)
            assert stack.wait_terminal(job_id)["status"] == "cancelled"


def set_file_bytes_max(process, bytes_max):
    """What the process finds of room in a file: 0, and its disk takes nothing."""
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))


def test_what_the_disk_did_not_erase_ends_nothing(settings):
    """A response whose job runs, an artifact: refused with 503, gone for readers, and made again once the disk takes it."""
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)}
    document = {"kind": "plan", "content": {"steps": [1]}}
    with make_stack(settings, spawn=ignore) as stack:
        wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
        artifact = f"/v2/artifacts/{stack.request('POST', '/v2/artifacts', document).json['id']}"
        stack.gate.hold()
        response_id = ask(stack)["id"]
        response = f"/v1/responses/{response_id}"
        stack.wait_running(response_id.removeprefix("resp_"))
        set_file_bytes_max(stack.orchestrator, 0)
        for path in (response, artifact):
            refused = stack.request("DELETE", path)
            assert (refused.status, refused.code) == (503, "STORE_UNAVAILABLE"), refused.body
            assert stack.request("GET", path).status == 404
        refused = stack.request("POST", "/v2/artifacts", document)
        assert (refused.status, refused.code) == (503, "STORE_UNAVAILABLE"), refused.body
        set_file_bytes_max(stack.orchestrator, resource.RLIM_INFINITY)
        stack.gate.open()
        stack.wait_terminal(response_id.removeprefix("resp_"))
        assert stack.request("POST", "/v2/artifacts", document).status == 201
        assert finished(stack, ask(stack)["id"]).status == 200
        assert stack.orchestrator.poll() is None


def test_only_what_is_asked_for_is_kept(stack):
    before = set((stack.dir / "blobs").iterdir())
    for fields in ({}, {"store": False}):
        assert stack.request("POST", "/v1/responses", {**ASK, **fields}).json["store"] is False
    refused = stack.request("POST", "/v1/responses", {**ASK, "background": True, "model": "none"})
    assert (refused.status, refused.code) == (404, "MODEL_NOT_FOUND")
    assert set((stack.dir / "blobs").iterdir()) == before


# ---- conversations ----

def respond(stack, status=200, **fields):
    answer = stack.request("POST", "/v1/responses", {**ASK, **fields})
    assert answer.status == status, answer.body
    return answer.json


def test_a_stored_response_is_waited_for_and_stays(stack):
    plain = respond(stack)
    stored = respond(stack, store=True)
    assert comparable(stored) == comparable(plain) and stored["store"] is True and "background" not in stored
    assert fetch(stack, stored["id"]).json == stored
    streamed = stack.request("POST", "/v1/responses", {**ASK, "store": True, "stream": True})
    last = json.loads(events_of(streamed.body)[-1].split("data: ")[1])["response"]
    assert said(last) == said(plain) and finished(stack, last["id"]).json == last


# The same bytes as where the client sends the whole conversation.
def test_a_conversation_goes_on_with_what_is_kept(stack):
    first = respond(stack, store=True)
    second = respond(stack, input="And then?", previous_response_id=first["id"], store=True)
    assert second["previous_response_id"] == first["id"]
    history = [{"role": "user", "content": ASK["input"]}, *first["output"], {"role": "user", "content": "And then?"}]
    assert comparable(second) == comparable(respond(stack, input=history))
    # Each holds the whole conversation: the first one may go. What nobody wants kept may follow all the same.
    assert stack.request("DELETE", f"/v1/responses/{first['id']}").status == 200
    third = respond(stack, input=[{"role": "user", "content": "More."}], previous_response_id=second["id"])
    assert comparable(third) == comparable(respond(stack, input=[*history, *second["output"], {"role": "user", "content": "More."}]))
    assert third["store"] is False and fetch(stack, third["id"]).status == 404


def items_of(stack, response_id, query="?order=asc"):
    answer = stack.request("GET", f"/v1/responses/{response_id}/input_items{query}")
    assert answer.status == 200, answer.body
    return answer.json


def test_what_a_kept_response_was_asked_is_listed(stack):
    first = respond(stack, store=True)
    sent = [{"role": "user", "content": [{"type": "input_text", "text": "And then?"}]}, {"type": "reasoning", "id": "mine", "summary": []}]
    second = respond(stack, input=sent, previous_response_id=first["id"], store=True)
    items = items_of(stack, second["id"])["data"]
    assert [item["type"] for item in items] == ["message", *[item["type"] for item in first["output"]], "message", "reasoning"]
    assert items[0]["content"] == [{"type": "input_text", "text": ASK["input"]}] and items[0]["role"] == "user"
    assert items[1] == first["output"][0] and items[-2]["content"] == sent[0]["content"] and items[-1]["id"] == "mine"
    ids = [item["id"] for item in items]
    assert len(set(ids)) == len(ids)
    page = items_of(stack, second["id"], "?limit=2")
    assert [item["id"] for item in page["data"]] == ids[:-3:-1] and page["has_more"] is True
    assert (page["first_id"], page["last_id"]) == (ids[-1], ids[-2])
    rest = items_of(stack, second["id"], f"?limit=100&after={ids[-2]}")
    assert [item["id"] for item in rest["data"]] == ids[-3::-1] and rest["has_more"] is False
    for query in ("?limit=0", "?limit=101", "?limit=x", "?order=up", "?after=nobody"):
        assert stack.request("GET", f"/v1/responses/{second['id']}/input_items{query}").status == 400, query
    unkept = respond(stack)
    assert stack.request("GET", f"/v1/responses/{unkept['id']}/input_items").status == 404
    stack.gate.hold()
    try:
        running = ask(stack)["id"]
        assert items_of(stack, running)["data"][0]["content"][0]["text"] == ASK["input"]
        stack.request("POST", f"/v1/responses/{running}/cancel")
    finally:
        stack.gate.open()


# The same bytes as where the client sends the items.
def test_a_reference_is_the_item_that_it_names(stack):
    first = respond(stack, store=True)
    asked = items_of(stack, first["id"])["data"][0]
    refs = [{"type": "item_reference", "id": item["id"]} for item in (asked, *first["output"])]
    question = {"role": "user", "content": "And then?"}
    whole = [{"role": "user", "content": ASK["input"]}, *first["output"], question]
    second = respond(stack, input=[*refs, question], store=True)
    assert comparable(second) == comparable(respond(stack, input=whole))
    # What is kept of it holds the items themselves: the response that they are of may go.
    assert [item["id"] for item in items_of(stack, second["id"])["data"]][:-1] == [ref["id"] for ref in refs]
    third = respond(stack, input=[refs[-1], question], previous_response_id=second["id"])
    assert comparable(third) == comparable(respond(stack, input=[*whole, *second["output"], first["output"][-1], question]))
    assert stack.request("DELETE", f"/v1/responses/{first['id']}").status == 200
    assert comparable(respond(stack, input="x", previous_response_id=second["id"])) \
        == comparable(respond(stack, input=[*whole, *second["output"], {"role": "user", "content": "x"}]))
    gone = respond(stack, 404, input=[question, refs[0]])
    assert gone["error"]["param"] == "input[1].id" and "store" in gone["error"]["message"]
    assert gone["error"]["type"] == "invalid_request_error"


def test_a_reference_to_nothing_is_refused(stack):
    kept, unkept = respond(stack, store=True), respond(stack)
    nobody = [kept["output"][0]["id"] + "_9", unkept["output"][0]["id"], "msg_1", "", "x" * 100_000, kept["id"], "msg_" + "f" * 36]
    for an_id in nobody:
        refused = respond(stack, 404, input=[{"type": "item_reference", "id": an_id}])
        assert refused["error"]["param"] == "input[0].id", an_id[:60]
    assert respond(stack, 404, input=[{"type": "item_reference"}])["error"]["param"] == "input[0].id"
    many = [{"type": "item_reference", "id": f"msg_{uuid.uuid4()}"} for _ in range(129)]
    assert respond(stack, 400, input=many)["error"]["param"] == "input"
    # One item named over and over is as long as what it names is.
    long = respond(stack, input=[{"role": "user", "content": "Hm."}, {"type": "reasoning", "summary": ["long" * 50_000]}], store=True)
    named = items_of(stack, long["id"])["data"][1]["id"]
    assert named.startswith("rs_")
    refused = respond(stack, 400, input=[{"type": "item_reference", "id": named}] * 500)
    assert refused["error"]["param"] == "input" and "bytes" in refused["error"]["message"]
    twice = stack.request("POST", "/v1/responses", json.dumps({**ASK, "input": [{"type": "item_reference", "id": named}]})[:-1] + ',"seed":1,"seed":2}')
    assert twice.status == 400 and twice.json["error"]["llorch"]["details"]["reason"] == "duplicate"
    assert stack.request("GET", "/v2/health").status == 200


def count(stack, status=200, **fields):
    body = {key: value for key, value in {**ASK, **fields}.items() if key not in ("max_output_tokens", "seed")}
    answer = stack.request("POST", "/v1/responses/input_tokens", body)
    assert answer.status == status, answer.body
    return answer.json


def test_the_tokens_of_an_input_are_counted_without_a_job(stack):
    first = respond(stack, store=True)
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
    item = {"type": "item_reference", "id": first["output"][0]["id"]}
    asked = [{}, {"instructions": "Be terse."}, {"tools": [tool]}, {"input": "And then?", "previous_response_id": first["id"]},
             {"input": [{"role": "user", "content": "Hm."}, item, {"role": "user", "content": "And then?"}]}]
    before = len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"])
    counted = [count(stack, **fields) for fields in asked]
    assert len(stack.request("GET", "/v2/tasks?limit=1000").json["tasks"]) == before
    assert all(answer == {"object": "response.input_tokens", "input_tokens": answer["input_tokens"]} for answer in counted)
    told = [respond(stack, **fields)["usage"]["input_tokens"] for fields in asked]
    assert [answer["input_tokens"] for answer in counted] == told and counted[3]["input_tokens"] > counted[0]["input_tokens"] > 5
    assert count(stack, 404, model="none")["error"]["llorch"]["code"] == "MODEL_NOT_FOUND"
    assert count(stack, 400, previous_response_id="resp_none")["error"]["param"] == "previous_response_id"
    assert count(stack, 400, unheard=1)["error"]["param"] == "unheard"
    assert count(stack, 400, input=3)["error"]["param"] == "input"


def test_counts_of_tokens_are_no_lines_of_a_batch(stack):
    assert begin_batch(stack, jsonl([line(1)]), "/v1/responses/input_tokens").json["error"]["param"] == "endpoint"


def test_a_conversation_of_which_nothing_is_kept_is_refused(stack):
    unkept = respond(stack)
    refused = stack.request("POST", "/v1/responses", {**ASK, "previous_response_id": unkept["id"]})
    assert refused.status == 400 and refused.json["error"]["param"] == "previous_response_id"
    assert refused.json["error"]["code"] == "previous_response_not_found" and "store" in refused.json["error"]["message"]
    stack.gate.hold()
    try:
        running = ask(stack)["id"]
        refused = stack.request("POST", "/v1/responses", {**ASK, "previous_response_id": running})
        assert refused.status == 409 and refused.json["error"]["param"] == "previous_response_id"
        assert count(stack, 409, previous_response_id=running)["error"]["param"] == "previous_response_id"
        stack.request("POST", f"/v1/responses/{running}/cancel")
    finally:
        stack.gate.open()
    refused = stack.request("POST", "/v1/responses", {**ASK, "previous_response_id": running})
    assert refused.status == 409 and refused.json["error"]["param"] == "previous_response_id"


# What is accepted goes on with the same prompt after a crash, also if the response before it has gone.
def test_a_conversation_outlives_a_kill(settings):
    with make_stack(settings) as stack:
        wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
        first = respond(stack, store=True)
        more = {"input": "And then?", "previous_response_id": first["id"]}
        expected = respond(stack, **more)
        stack.gate.hold()
        stack.gate.let_pass(3)
        begun = ask(stack, **more)["id"]
        assert stack.request("DELETE", f"/v1/responses/{first['id']}").status == 200
        for process in (stack.orchestrator, stack.pool):
            process.kill()
            process.wait()
        stack.gate.open()
        stack.start()
        assert comparable(finished(stack, begun).json) == comparable(expected)


# ---- files ----

def upload(stack, content, purpose="batch", name="in.jsonl", headers=None, more=None):
    boundary = "a-boundary"
    fields = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
                     for name, value in {"purpose": purpose, **(more or {})}.items())
    body = (f'{fields}--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            f"Content-Type: application/octet-stream\r\n\r\n").encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return stack.request("POST", "/v1/files", body, {"Content-Type": f"multipart/form-data; boundary={boundary}", **(headers or {})})


def test_a_file_comes_back_as_it_was_sent(stack):
    content = bytes(range(256)) * 5000 + b"\r\n--not the boundary\r\n"
    file = upload(stack, content)
    assert (file.status, file.json["bytes"], file.json["filename"]) == (200, len(content), "in.jsonl"), file.body
    file_id = file.json["id"]
    assert stack.request("GET", f"/v1/files/{file_id}/content").body == content
    assert file_id in [f["id"] for f in stack.request("GET", "/v1/files?purpose=batch").json["data"]]
    assert stack.request("GET", "/v1/files?limit=1").json["data"][0]["id"] == file_id, "newest first"
    assert stack.request("DELETE", f"/v1/files/{file_id}").json["deleted"]
    assert stack.request("GET", f"/v1/files/{file_id}/content").status == 404


@pytest.mark.parametrize("body, kind, status", [
    (b"--b\r\n\r\nx", "multipart/form-data; boundary=b", 400),
    (b"", "multipart/form-data; boundary=b", 400),
    (b"--b--\r\n", "multipart/form-data; boundary=b", 400),
    (b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--", "multipart/form-data", 400),
    (b"{}", "application/json", 415),
])
def test_a_broken_form_is_refused(stack, body, kind, status):
    assert stack.request("POST", "/v1/files", body, {"Content-Type": kind}).status == status


def test_a_file_for_nothing_is_refused(stack):
    assert upload(stack, b"x", purpose="assistants").json["error"]["param"] == "purpose"


def expiry(anchor="created_at", seconds="3600"):
    return {"expires_after[anchor]": anchor, "expires_after[seconds]": seconds}


def test_a_file_expires_when_its_client_says(stack):
    month_s = 30 * 24 * 3600
    for more, kept_s in (({}, month_s), (expiry(), 3600), (expiry(seconds="86400"), 86400), (expiry(seconds=str(month_s)), month_s)):
        file = upload(stack, b"x", more=more).json
        assert file["expires_at"] - file["created_at"] in (kept_s, kept_s + 1), more
        assert stack.request("GET", f"/v1/files/{file['id']}").json == file
    for wrong in (expiry(anchor="last_active_at"), expiry(seconds="3599"), expiry(seconds=str(month_s + 1)), expiry(seconds="1h"),
                  {"expires_after[anchor]": "created_at"}, {"expires_after[seconds]": "3600"}, {"expires_after": "3600"}):
        refused = upload(stack, b"x", more=wrong)
        assert refused.status == 400 and refused.code == "INVALID_PARAMS", (wrong, refused.body)


def test_a_file_stays_no_longer_than_its_server_keeps_it(settings):
    with make_stack(settings, {"orchestratord.files.retention_ms": "7200000"}) as stack:
        kept = [upload(stack, b"x", more=expiry(seconds=seconds)).json for seconds in ("3600", "86400")]
        assert [(file["expires_at"] - file["created_at"]) // 3600 for file in kept] == [1, 2]


# ---- batches ----

def line(number, **fields):
    body = {"model": ALIAS, "prompt": f"Once upon a time {NEEDLE} {number}", "max_tokens": 8, **fields}
    return {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/completions", "body": body}


def jsonl(lines):
    return "".join(json.dumps(entry) + "\n" for entry in lines).encode()


def begin_batch(stack, content, endpoint="/v1/completions", **fields):
    file_id = upload(stack, content).json["id"]
    return stack.request("POST", "/v1/batches", {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h", **fields})


def batch_of(stack, batch_id):
    return stack.request("GET", f"/v1/batches/{batch_id}").json


def ended_batch(stack, batch_id):
    def ended():
        batch = batch_of(stack, batch_id)
        return batch if batch["status"] in ("completed", "failed", "cancelled", "expired") else None

    return wait_for("the batch to end", ended, timeout_s=2 * HANG_S)


def results(stack, file_id):
    if not file_id:
        return {}
    lines = stack.request("GET", f"/v1/files/{file_id}/content").body.decode().splitlines()
    entries = [json.loads(entry) for entry in lines]
    assert len({entry["custom_id"] for entry in entries}) == len(entries), "one answer each"
    return {entry["custom_id"]: entry["response"] for entry in entries}


def test_a_batch_answers_every_line(stack):
    refused = {"bad": {"max_tokens": 0}, "none": {"model": "none"}, "unnamed": {"model": ""}, "stream": {"stream": True}}
    lines = [line(n) for n in range(40)] + [line(name, **fields) for name, fields in refused.items()]
    begun = begin_batch(stack, jsonl(lines), metadata={"for": "a test"})
    assert begun.status == 200 and begun.json["object"] == "batch", begun.body
    batch = ended_batch(stack, begun.json["id"])
    assert (batch["status"], batch["metadata"]) == ("completed", {"for": "a test"})
    assert batch["request_counts"] == {"total": 44, "completed": 40, "failed": 4}
    good, bad = results(stack, batch["output_file_id"]), results(stack, batch["error_file_id"])
    assert set(good) == {f"line-{n}" for n in range(40)} and set(bad) == {f"line-{name}" for name in refused}
    assert {name: entry["status_code"] for name, entry in bad.items()} == {
        "line-bad": 400, "line-none": 404, "line-unnamed": 400, "line-stream": 400}
    alone = stack.request("POST", "/v1/completions", {**line(3)["body"], "seed": good["line-3"]["body"]["llorch"]["receipt"]["seed"]})
    assert alone.json["choices"] == good["line-3"]["body"]["choices"], "the same as when it is sent alone"
    assert begun.json["id"] in [b["id"] for b in stack.request("GET", "/v1/batches").json["data"]]


@pytest.mark.parametrize("content, code", [
    (b"", "empty_file"),
    (b"not json\n", "invalid_json_line"),
    (jsonl([line(1), line(1)]), "duplicate_custom_id"),
    (jsonl([{**line(1), "url": "/v1/embeddings"}]), "mismatched_url"),
    (jsonl([{**line(1), "method": "GET"}]), "invalid_method"),
    (jsonl([{**line(1), "custom_id": ""}]), "missing_required_parameter"),
])
def test_an_input_that_is_none_fails_before_anything_runs(stack, content, code):
    batch = begin_batch(stack, content).json
    assert batch["status"] == "failed" and batch["errors"]["data"][0]["code"] == code and not batch["output_file_id"]


def test_what_a_batch_reads_is_not_deleted(stack):
    stack.gate.hold()
    try:
        batch = begin_batch(stack, jsonl([line(n) for n in range(3)])).json
        assert stack.request("DELETE", f"/v1/files/{batch['input_file_id']}").status == 409
    finally:
        stack.gate.open()
    ended_batch(stack, batch["id"])
    assert stack.request("DELETE", f"/v1/files/{batch['input_file_id']}").status == 200


def test_a_cancelled_batch_keeps_what_it_has(stack):
    stack.request("POST", "/v1/completions", line(1)["body"])  # a worker is there
    stack.gate.hold()
    try:
        batch = begin_batch(stack, jsonl([line(n, max_tokens=200) for n in range(100)])).json
        wait_for("its jobs", lambda: [j for j in stack.request("GET", "/v2/tasks").json["tasks"] if j["status"] in ("running", "dispatched")])
        cancelling = stack.request("POST", f"/v1/batches/{batch['id']}/cancel")
        assert cancelling.json["status"] in ("cancelling", "cancelled"), cancelling.body
    finally:
        stack.gate.open()
    ended = ended_batch(stack, batch["id"])
    assert ended["status"] == "cancelled" and ended["request_counts"]["completed"] < 100
    assert stack.request("POST", f"/v1/batches/{batch['id']}/cancel").status == 409


# ORCH-2002, SYS-2.4.2: nothing accepted is lost, and nothing comes twice.
def test_a_batch_outlives_every_kill(settings):
    lines = [line(n) for n in range(LINES)]
    with make_stack(settings) as stack:
        undisturbed = results(stack, ended_batch(stack, begin_batch(stack, jsonl(lines)).json["id"])["output_file_id"])
        assert len(undisturbed) == LINES
        batch_id = begin_batch(stack, jsonl(lines)).json["id"]
        for kill in range(KILLS):
            done = (kill + 1) * LINES // (KILLS + 1)
            wait_for("some answers", lambda: sum(batch_of(stack, batch_id)["request_counts"][c] for c in ("completed", "failed")) >= done)
            for process in (stack.orchestrator, stack.pool):
                process.kill()
                process.wait()
            stack.start()
        batch = ended_batch(stack, batch_id)
        assert (batch["status"], batch["request_counts"]) == ("completed", {"total": LINES, "completed": LINES, "failed": 0})
        answers = results(stack, batch["output_file_id"])
        assert set(answers) == set(undisturbed) and {answer["status_code"] for answer in answers.values()} == {200}
        kept = b"".join(path.read_bytes() for path in (stack.dir / "blobs").iterdir())
        assert NEEDLE.encode() not in kept
        assert all(NEEDLE not in stack.log(name) for name in ("orchestratord", "pool-managerd"))


def test_tenants_see_their_own(settings, tmp_path):
    names = ("lab", "other")
    for name in names:
        (tmp_path / name).write_text(name * 16)
        (tmp_path / name).chmod(0o600)
    config = tmp_path / "config.yaml"
    config.write_text("orchestratord:\n  tenants:\n" + "".join(f"    - id: {n}\n      token_file: {tmp_path / n}\n" for n in names))
    config.chmod(0o600)
    with make_stack(settings, token="o" * 40, env={"LLORCH_CONFIG": str(config)}) as stack:
        headers = {name: {"Authorization": f"Bearer {name * 16}"} for name in names}
        json_headers = {name: {**headers[name], "Content-Type": "application/json"} for name in names}
        wait_for("the model", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)
        begun = stack.request("POST", "/v1/responses", {**ASK, "background": True}, json_headers["lab"])
        file = upload(stack, jsonl([line(1)]), headers=headers["lab"])
        body = {"input_file_id": file.json["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
        assert stack.request("POST", "/v1/batches", body, json_headers["other"]).status == 400
        batch = stack.request("POST", "/v1/batches", body, json_headers["lab"])
        for path in (f"/v1/responses/{begun.json['id']}", f"/v1/files/{file.json['id']}", f"/v1/batches/{batch.json['id']}"):
            assert stack.request("GET", path, headers=headers["other"]).status == 404
            assert stack.request("GET", path, headers=headers["lab"]).status == 200
            assert stack.request("GET", path).status == 200, "the operator sees all"
        for path in ("/v1/files", "/v1/batches"):
            assert stack.request("GET", path, headers=headers["other"]).json["data"] == []


def held_batch(stack, lines):
    """A batch whose first lines run, and say nothing while the gate is held."""
    stack.gate.hold()

    def begun():
        answer = begin_batch(stack, jsonl(lines))
        return answer.json if answer.status == 200 else None

    batch = wait_for("a batch before its input expires", begun)
    wait_for("the batch to run", lambda: batch_of(stack, batch["id"])["status"] == "in_progress")
    return batch


def restarted(stack, **settings):
    stack.orchestrator.terminate()
    stack.orchestrator.wait(HANG_S)
    stack.settings.update(settings)
    return stack


def test_an_input_that_expires_stays_until_its_batch_has_ended(settings):
    """Over a restart too, where it is read once more."""
    lines = [line(number) for number in range(40)]
    with make_stack(settings, {"orchestratord.files.retention_ms": "1500"}) as stack:
        batch = held_batch(stack, lines)
        later = upload(stack, b"x").json["id"]
        wait_for("a later file to expire", lambda: stack.request("GET", f"/v1/files/{later}").status == 404)
        assert stack.request("GET", f"/v1/files/{batch['input_file_id']}").status == 200
        restarted(stack, **{"orchestratord.files.retention_ms": "600000"}).start_orchestrator()
        wait_for("the batch to be there", lambda: batch_of(stack, batch["id"])["status"] == "in_progress")
        assert stack.request("DELETE", f"/v1/files/{batch['input_file_id']}").status == 409
        stack.gate.open()
        ended = ended_batch(stack, batch["id"])
        assert (ended["status"], ended["request_counts"]) == ("completed", {"total": 40, "completed": 40, "failed": 0})
        wait_for("the input to expire", lambda: stack.request("GET", f"/v1/files/{batch['input_file_id']}").status == 404)


def test_a_batch_whose_input_is_lost_says_that_it_failed(settings):
    with make_stack(settings) as stack:
        batch = held_batch(stack, [line(number) for number in range(40)])
        restarted(stack)
        (stack.dir / f"blobs/{batch['input_file_id']}.blob").unlink()
        stack.start_orchestrator()
        stack.gate.open()
        ended = ended_batch(stack, batch["id"])
        assert ended["status"] == "failed" and ended["failed_at"] and ended["request_counts"]["completed"] < 40
        assert ended["errors"]["data"][0]["code"] == "input_file_missing"
