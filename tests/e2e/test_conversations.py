"""/v1/conversations of real daemons: items from turn to turn, each once and in order, whatever dies meanwhile."""

import concurrent.futures
import contextlib
import http.client
import json
import resource
import signal
import time
import uuid

import pytest
from chat_model import write_chat_model
from stack import Stack, wait_for

NEEDLE = "xyzzy-needle"
# Without the byte 0 (token 3): what is said comes back with the next turn, where it is refused.
ASK = {"model": "tiny", "input": f"Tell me of the {NEEDLE}.", "max_output_tokens": 8, "seed": 7, "logit_bias": {"3": -100}}
HI = {"type": "message", "role": "user", "content": "Hi."}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "tiny-llama"
    write_chat_model(directory)
    return {"models.aliases.tiny": f"file:{directory}", "models.allowed_roots": str(directory.parent)}


def know_model(stack):
    wait_for("the model to be known", lambda: stack.request("POST", "/v1/responses", ASK).status == 200)


@pytest.fixture(scope="module", name="stack")
def running_stack(settings):
    with Stack(settings) as stack:
        know_model(stack)
        yield stack


def call(stack, method, path, body=None, status=200, **arguments):
    answer = stack.request(method, f"/v1/conversations{path}", body, **arguments)
    assert answer.status == status, (method, path, answer.body)
    return answer.json


def begin(stack, **fields):
    return call(stack, "POST", "", fields)["id"]


def items_of(stack, an_id):
    return call(stack, "GET", f"/{an_id}/items?order=asc&limit=100")["data"]


def respond(stack, status=200, **fields):
    answer = stack.request("POST", "/v1/responses", {**ASK, **fields})
    assert answer.status == status, answer.body
    return answer.json


def said(response):
    return "".join(part["text"] for item in response["output"] for part in item.get("content", []))


def text_of(item):
    return "".join(part["text"] for part in item["content"])


def blobs(stack, prefix=""):
    return {path.name for path in (stack.dir / "blobs").glob(f"{prefix}*.blob")}


def kill_all(stack):
    for process in (stack.orchestrator, stack.pool):
        process.kill()
        process.wait()


def idle(stack, an_id):
    """Waits until no response of it runs: it may be counted for a turn again."""
    body = {"model": "tiny", "input": "x", "conversation": an_id}
    wait_for("the turn to end", lambda: stack.request("POST", "/v1/responses/input_tokens", body).status == 200)


def test_a_conversation_is_made_shown_changed_and_deleted(stack):
    made = call(stack, "POST", "", {"items": [HI], "metadata": {"topic": "tea"}})
    assert made == {"id": made["id"], "object": "conversation", "created_at": made["created_at"], "metadata": {"topic": "tea"}}
    path = f"/{made['id']}"
    assert call(stack, "GET", path) == made and abs(made["created_at"] - time.time()) < 3600
    changed = call(stack, "POST", path, {"metadata": {"mood": "good"}})
    assert changed == {**made, "metadata": {"mood": "good"}} == call(stack, "GET", path)
    assert [text_of(item) for item in items_of(stack, made["id"])] == ["Hi."]
    assert call(stack, "DELETE", path) == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    for method, more, body in (("GET", "", None), ("POST", "", {"metadata": {}}), ("DELETE", "", None), ("GET", "/items", None),
                               ("POST", "/items", {"items": [HI]}), ("GET", "/items/x", None), ("DELETE", "/items/x", None)):
        call(stack, method, path + more, body, 404)
    assert respond(stack, 404, conversation=made["id"])["error"]["param"] == "conversation"
    assert not blobs(stack, made["id"])
    assert call(stack, "POST", "")["metadata"] == {}, "without a body"


def test_items_are_added_listed_and_deleted(stack):
    an_id = begin(stack)
    sent = [HI, {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "nothing"}, {"type": "reasoning", "id": "mine", "summary": []}]
    added = call(stack, "POST", f"/{an_id}/items", {"items": sent})
    assert added["object"] == "list" and [item["type"] for item in added["data"]] == [item["type"] for item in sent]
    ids = [item["id"] for item in added["data"]]
    assert len(set(ids)) == 4 and ids[3] == "mine" and (added["first_id"], added["last_id"], added["has_more"]) == (ids[0], ids[3], False)
    assert items_of(stack, an_id) == added["data"]
    page = call(stack, "GET", f"/{an_id}/items?limit=3")
    assert [item["id"] for item in page["data"]] == ids[:0:-1] and page["has_more"] is True
    assert [item["id"] for item in call(stack, "GET", f"/{an_id}/items?after={page['last_id']}")["data"]] == ids[:1]
    assert call(stack, "GET", f"/{an_id}/items/{ids[2]}") == added["data"][2]
    assert call(stack, "DELETE", f"/{an_id}/items/{ids[2]}")["object"] == "conversation"
    call(stack, "GET", f"/{an_id}/items/{ids[2]}", status=404)
    call(stack, "DELETE", f"/{an_id}/items/{ids[2]}", status=404)
    assert [item["id"] for item in items_of(stack, an_id)] == [ids[0], ids[1], ids[3]]
    for query in ("limit=0", "limit=101", "order=up", "after=nobody"):
        call(stack, "GET", f"/{an_id}/items?{query}", status=400)


def test_bodies_that_are_none_are_refused_by_field(stack):
    an_id = begin(stack, items=[{**HI, "id": "there"}])
    refused = [("", {"items": [HI] * 21}, "items"), ("", {"items": [{"type": "item_reference", "id": "msg_1"}]}, "items[0].type"),
               ("", {"metadata": {f"k{n}": "" for n in range(17)}}, "metadata"), ("", {"metadata": {"k": "x" * 513}}, "metadata"),
               ("", {"metadata": {"k": 1}}, "metadata.k"), ("", {"unheard": 1}, "unheard"), (f"/{an_id}", {}, "metadata"),
               (f"/{an_id}/items", {}, "items"), (f"/{an_id}/items", {"items": [{"type": "computer_call"}]}, "items[0].type"),
               (f"/{an_id}/items", {"items": [HI, {**HI, "id": "there"}]}, "items[1].id"),
               (f"/{an_id}/items", {"items": [{**HI, "id": "a/b"}]}, "items[0].id")]
    for path, body, field in refused:
        assert call(stack, "POST", path, body, 400)["error"]["param"] == field, body
    for body in (b"", b"[]", b"{", b'{"items":[],"items":[]}', b'{"items":["\xff"]}', b'{"items":[{"role":"user","content":"\\u0000"}]}'):
        call(stack, "POST", f"/{an_id}/items", body, 400)
    assert len(items_of(stack, an_id)) == 1
    assert respond(stack, 400, conversation=an_id, previous_response_id="resp_1")["error"]["param"] == "previous_response_id"
    assert respond(stack, 400, conversation=an_id, input=[{**HI, "id": "there"}])["error"]["param"] == "input[0].id"
    assert respond(stack, 404, conversation={"id": "conv_none"})["error"]["param"] == "conversation"
    assert respond(stack, 404, conversation=an_id, model="none")["error"]["code"] == "model_not_found"
    assert [item["id"] for item in items_of(stack, an_id)] == ["there"], "a response that is refused leaves nothing"
    respond(stack, conversation=an_id)


# The bytes are those of a request that sends the items.
def test_a_response_reads_the_items_and_adds_its_own(stack):
    an_id = begin(stack, items=[{**HI, "role": "system"}, HI, {"role": "assistant", "content": "Hello."}])
    history = [{**HI, "role": "system"}, HI, {"role": "assistant", "content": "Hello."}]
    first = respond(stack, conversation=an_id)
    asked = {"role": "user", "content": ASK["input"]}
    assert said(first) == said(respond(stack, input=[*history, asked])) and first["conversation"] == {"id": an_id}
    assert first["store"] is False
    items = items_of(stack, an_id)
    assert items[4:] == first["output"] and text_of(items[3]) == ASK["input"] and items[3]["role"] == "user"
    streamed = stack.request("POST", "/v1/responses", {**ASK, "input": [{"role": "user", "content": "More."}], "stream": True, "conversation": {"id": an_id}})
    last = json.loads(streamed.body.decode().split("data: ")[-1])["response"]
    third = respond(stack, input="And?", conversation=an_id)
    history += [asked, *first["output"], {"role": "user", "content": "More."}]
    assert said(last) == said(respond(stack, input=history))
    assert said(third) == said(respond(stack, input=[*history, *last["output"], {"role": "user", "content": "And?"}]))
    items = items_of(stack, an_id)
    assert len({item["id"] for item in items}) == len(items) == 9 and items[-1] == third["output"][0]
    assert third["usage"]["input_tokens"] > first["usage"]["input_tokens"]
    # Only the conversation is kept: its responses asked for nothing of the kind.
    wait_for("the responses to be gone", lambda: not any(blobs(stack, response["id"]) for response in (first, last, third)))
    assert stack.request("GET", f"/v1/responses/{first['id']}").status == 404
    stored = respond(stack, conversation=an_id, store=True)
    assert stack.request("GET", f"/v1/responses/{stored['id']}").json == stored
    assert [item["id"] for item in items_of(stack, an_id)][:9] == [item["id"] for item in items]
    # A reference names an item of a kept response, which is put into the conversation: once.
    other = respond(stack, input="Who else?", store=True, max_output_tokens=2)
    reference = {"type": "item_reference", "id": other["output"][0]["id"]}
    turn = respond(stack, conversation=an_id, input=[reference, {"role": "user", "content": "So?"}])
    assert [item["id"] for item in items_of(stack, an_id)][-3:] == [reference["id"], items_of(stack, an_id)[-2]["id"], turn["output"][0]["id"]]
    for named in (reference, {"type": "item_reference", "id": stored["output"][0]["id"]}):
        assert respond(stack, 400, conversation=an_id, input=[named])["error"]["param"] == "input[0].id"
    # What was deleted is not read any more.
    for item in items_of(stack, an_id)[1:]:
        call(stack, "DELETE", f"/{an_id}/items/{item['id']}")
    alone = respond(stack, conversation=an_id)
    assert said(alone) == said(respond(stack, input=[{**HI, "role": "system"}, asked]))


def test_the_next_turn_may_follow_the_end_of_a_stream_at_once(stack):
    for _ in range(25):
        an_id = begin(stack)
        streamed = stack.request("POST", "/v1/responses", {**ASK, "max_output_tokens": 2, "stream": True, "conversation": an_id})
        assert streamed.status == 200 and b"event: response.incomplete" in streamed.body
        respond(stack, conversation=an_id, max_output_tokens=2)
        assert len(items_of(stack, an_id)) == 4


# A NUL byte, which a request may not hold, but an output can.
def test_an_output_that_cannot_be_read_again_is_named_and_deleted(stack):
    ask = {"max_output_tokens": 60, "logit_bias": {}}
    seed = next(seed for seed in range(200) if "\0" in said(respond(stack, seed=seed, **ask)))
    an_id = begin(stack)
    said_it = respond(stack, conversation=an_id, seed=seed, **ask)["output"][0]["id"]
    refused = respond(stack, 400, conversation=an_id)["error"]
    assert refused["param"] == "conversation" and "NUL" in refused["message"]
    call(stack, "DELETE", f"/{an_id}/items/{said_it}")
    respond(stack, conversation=an_id)


# One turn at a time, so that their order is never in doubt.
def test_while_a_response_runs_the_items_stay_as_they_are(stack):
    an_id = begin(stack, items=[HI])
    stack.gate.hold()
    try:
        running = respond(stack, conversation=an_id, background=True)
        refused = respond(stack, 409, conversation=an_id)
        assert (refused["error"]["param"], refused["error"]["code"]) == ("conversation", "conflict")
        item = items_of(stack, an_id)[0]
        call(stack, "POST", f"/{an_id}/items", {"items": [HI]}, 409)
        call(stack, "DELETE", f"/{an_id}/items/{item['id']}", status=409)
        call(stack, "POST", f"/{an_id}", {"metadata": {"a": "b"}})
        cancelled = stack.request("POST", f"/v1/responses/{running['id']}/cancel").json
        assert cancelled["status"] == "cancelled" and cancelled["conversation"] == {"id": an_id}
        assert items_of(stack, an_id) == [item], "what was cancelled adds nothing"
        begun = respond(stack, conversation=an_id, background=True)
        assert stack.request("DELETE", f"/v1/responses/{begun['id']}").status == 200
    finally:
        stack.gate.open()
    respond(stack, conversation=an_id)
    assert len(items_of(stack, an_id)) == 3 and call(stack, "GET", f"/{an_id}")["metadata"] == {"a": "b"}


def test_of_many_that_come_at_once_each_is_a_turn_or_refused(stack):
    an_id = begin(stack)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: stack.request("POST", "/v1/responses", {**ASK, "input": f"{n}?", "conversation": an_id}), range(24)))
    good = [answer.json for answer in answers if answer.status == 200]
    assert good and {answer.status for answer in answers} <= {200, 409}
    items = items_of(stack, an_id)
    assert len(items) == 2 * len(good)
    assert {item["id"] for item in items[1::2]} == {response["output"][0]["id"] for response in good}
    history = [{"role": item["role"], "content": text_of(item)} for item in items]
    by_output = {response["output"][0]["id"]: response for response in good}
    last = by_output[items[-1]["id"]]
    assert said(last) == said(respond(stack, input=history[:-1])), "each read all that stands before it"


def test_a_conversation_may_be_deleted_while_its_response_runs(stack):
    an_id = begin(stack, items=[HI])
    stack.gate.hold()
    try:
        running = respond(stack, conversation=an_id, background=True)
        call(stack, "DELETE", f"/{an_id}")
        assert not blobs(stack, an_id)
    finally:
        stack.gate.open()
    done = wait_for("the response", lambda: (answer := stack.request("GET", f"/v1/responses/{running['id']}").json)["status"]
                    not in ("queued", "in_progress") and answer)
    assert said(done) and not blobs(stack, an_id)
    call(stack, "GET", f"/{an_id}", status=404)


# What is accepted comes to the conversation, and once, wherever everything dies.
@pytest.mark.parametrize("tokens", [0, 4, 7])
def test_a_turn_outlives_a_kill_of_everything(settings, tokens):
    with Stack(settings) as stack:
        know_model(stack)
        an_id = begin(stack, items=[HI])
        expected = respond(stack, input=[HI, {"role": "user", "content": ASK["input"]}])
        stack.gate.hold()
        stack.gate.let_pass(tokens)
        # Its client goes with everything else: nobody waits for it.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: stack.request("POST", "/v1/responses", {**ASK, "conversation": an_id}))
            wait_for("the response to be accepted", lambda: blobs(stack, "resp_"))
            respond(stack, 409, conversation=an_id)
            kill_all(stack)
            assert waiting.exception() is not None
        stack.start()
        assert respond(stack, 409, conversation=an_id)["error"]["param"] == "conversation", "it still runs"
        stack.gate.open()
        idle(stack, an_id)
        items = items_of(stack, an_id)
        assert [text_of(item) for item in items] == ["Hi.", ASK["input"], said(expected)]
        kill_all(stack)
        stack.start()
        assert items_of(stack, an_id) == items
        again = respond(stack, input="And?", conversation=an_id)
        assert len(items_of(stack, an_id)) == 5 and again["conversation"] == {"id": an_id}


# Turn after turn, and everything is killed when its files say how far one is: no turn that was answered is missing, none is
# there twice.
def test_turns_among_kills_are_there_once(settings):
    with Stack(settings) as stack:
        know_model(stack)
        an_id = begin(stack)
        conversation = stack.dir / "blobs" / f"{an_id}.blob"

        def response_bytes():
            size = 0
            for path in (stack.dir / "blobs").glob("resp_*.blob"):
                with contextlib.suppress(FileNotFoundError):  # it went meanwhile
                    size += path.stat().st_size
            return size

        answered, rounds = [], 0
        for moment in ("accepted", "has its output", "is in the conversation", "answered") * 2:
            wait_for("the one before to be gone", lambda: not response_bytes())
            inode, rounds = conversation.stat().st_ino, rounds + 1
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                body = {**ASK, "input": f"{rounds}?", "max_output_tokens": 2, "conversation": an_id}
                waiting = pool.submit(lambda sent=body: stack.request("POST", "/v1/responses", sent))
                accepted = wait_for("the blob", lambda: response_bytes() or waiting.done(), every_s=0)
                if moment == "has its output":
                    wait_for(moment, lambda: response_bytes() != accepted or waiting.done(), every_s=0)
                elif moment == "is in the conversation":
                    wait_for(moment, lambda: conversation.stat().st_ino != inode or waiting.done(), every_s=0)
                elif moment == "answered":
                    wait_for(moment, waiting.done, every_s=0)
                kill_all(stack)
                error = waiting.exception()
                assert error is None or isinstance(error, (OSError, http.client.HTTPException)), error
                if error is None:
                    assert waiting.result().status == 200, waiting.result().body
                    answered.append(waiting.result().json["output"][0]["id"])
            stack.start()
            idle(stack, an_id)
        items = items_of(stack, an_id)
        ids = [item["id"] for item in items]
        assert len(set(ids)) == len(ids) and set(answered) <= set(ids) and len(answered) >= 2
        assert [text_of(item) for item in items[::2]] == [f"{number + 1}?" for number in range(rounds)], "each was accepted"
        assert [item["role"] for item in items] == ["user", "assistant"] * rounds


def test_it_is_sealed_and_expires_when_nobody_uses_it(settings):
    with Stack({**settings, "orchestratord.files.retention_ms": "3000"}) as stack:
        know_model(stack)
        an_id, unused = begin(stack, metadata={"note": NEEDLE}), begin(stack)
        stack.gate.hold()
        respond(stack, conversation=an_id, background=True)
        wait_for("the one that nobody uses to go", lambda: not blobs(stack, unused))
        assert blobs(stack, an_id), "it is in use"
        stack.gate.open()
        wait_for("the turn", lambda: len(call(stack, "GET", f"/{an_id}/items")["data"]) == 2)
        kept = b"".join(path.read_bytes() for path in (stack.dir / "blobs").iterdir())
        assert NEEDLE.encode() not in kept and all(NEEDLE not in stack.log(name) for name in ("orchestratord", "pool-managerd"))
        wait_for("it to go as well", lambda: not blobs(stack, an_id))
        call(stack, "GET", f"/{an_id}", status=404)


def test_a_change_is_made_once_where_the_disk_does_not_overwrite_the_old_key(settings):
    """New items are no less there for it; that an item is deleted is not said before it is."""
    keys = 27  # of conversations that came before
    key_bytes = 32

    def set_file_bytes_max(bytes_max):
        resource.prlimit(stack.orchestrator.pid, resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))

    with Stack(settings, spawn={"preexec_fn": lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)}) as stack:
        for _ in range(keys):
            begin(stack)
        an_id = begin(stack, items=[HI])
        set_file_bytes_max(keys * key_bytes)
        item, = call(stack, "POST", f"/{an_id}/items", {"items": [HI]})["data"]
        assert len(items_of(stack, an_id)) == 2
        refused = stack.request("DELETE", f"/v1/conversations/{an_id}/items/{item['id']}")
        assert (refused.status, refused.code) == (503, "STORE_UNAVAILABLE"), refused.body
        call(stack, "GET", f"/{an_id}/items/{item['id']}", status=404)
        set_file_bytes_max(resource.RLIM_INFINITY)
        call(stack, "POST", f"/{an_id}/items", {"items": [HI]})
        assert len(items_of(stack, an_id)) == 2


def test_it_is_as_long_as_a_request(settings):
    with Stack({**settings, "orchestratord.limits.request_bytes_max": "20000"}) as stack:
        know_model(stack)
        an_id = begin(stack)
        long = {**HI, "content": "x" * 9000}
        for _ in range(2):
            call(stack, "POST", f"/{an_id}/items", {"items": [long]})
        assert call(stack, "POST", f"/{an_id}/items", {"items": [long]}, 400)["error"]["param"] == "conversation"
        assert respond(stack, 400, conversation=an_id, input=[long])["error"]["param"] == "conversation"
        call(stack, "DELETE", f"/{an_id}/items/{items_of(stack, an_id)[0]['id']}")
        call(stack, "POST", f"/{an_id}/items", {"items": [long]})


def test_tenants_see_their_own(settings, tmp_path):
    names = ("ann", "bob")
    for name in names:
        (tmp_path / name).write_text(name * 16)
        (tmp_path / name).chmod(0o600)
    config = tmp_path / "config.yaml"
    config.write_text("orchestratord:\n  tenants:\n" + "".join(f"    - id: {n}\n      token_file: {tmp_path / n}\n" for n in names))
    config.chmod(0o600)
    with Stack(settings, token="o" * 40, env={"LLORCH_CONFIG": str(config)}) as stack:
        know_model(stack)
        alice, bob = ({"Authorization": f"Bearer {name * 16}", "Content-Type": "application/json"} for name in names)
        made = call(stack, "POST", "", {"items": [HI]}, headers=alice)
        item = call(stack, "GET", f"/{made['id']}/items", headers=alice)["data"][0]["id"]
        for method, path, body in (("GET", "", None), ("POST", "", {"metadata": {}}), ("DELETE", "", None), ("GET", "/items", None),
                                   ("POST", "/items", {"items": [HI]}), ("GET", f"/items/{item}", None), ("DELETE", f"/items/{item}", None)):
            foreign = call(stack, method, f"/{made['id']}{path}", body, 404, headers=bob)
            strange = call(stack, method, f"/conv_{uuid.uuid4()}{path}", body, 404, headers=bob)
            for error in (foreign["error"], strange["error"]):
                del error["llorch"]["correlation_id"]
            assert foreign == strange
        turn = stack.request("POST", "/v1/responses", {**ASK, "conversation": made["id"]}, bob)
        assert turn.status == 404 and turn.json["error"]["param"] == "conversation"
        assert stack.request("POST", "/v1/responses", {**ASK, "conversation": made["id"]}, alice).status == 200
        assert len(call(stack, "GET", f"/{made['id']}/items", headers=alice)["data"]) == 3
        assert call(stack, "GET", f"/{made['id']}") == made, "the operator sees all"
