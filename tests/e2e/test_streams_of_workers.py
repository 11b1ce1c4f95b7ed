"""What a worker says and what a client reads: the same tokens in the same order, one by one as they come, whole characters, stops."""

import hashlib
import json
import re
import signal

import pytest

import valgrind
from byte_tokenizer import byte_letters
from chat_model import write_chat_model
from gguf_vocabulary import encode, read_metadata
from stack import ALIAS, MODEL, EventStream, Stack, request, wait_for
from test_pool_commands import control_token


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A stack with a model of a GGUF file and one of a directory whose tokens are bytes."""
    directory = tmp_path_factory.mktemp("models")
    write_chat_model(directory / "bytes")
    settings = {"models.aliases.bytes": f"file:{directory / 'bytes'}", "models.allowed_roots": f"{directory},{MODEL.parent}",
                "orchestratord.limits.workers_per_gpu": "2"}
    with Stack(settings) as running:
        running.models = directory
        for model in (ALIAS, "bytes"):
            wait_for(f"{model} to be known", lambda model=model: running.request("POST", "/v2/tasks?wait=true", {
                "model": model, "prompt": "x", "max_tokens": 1}).status == 200)
        yield running


@pytest.fixture(autouse=True)
def rest(request):
    yield
    request.getfixturevalue("texts").gate.open()


def worker_of(stack, part):
    return next(w for w in stack.workers() if part in w["model_ref"])


def tokens_of(events):
    return [(event.data["i"], event.data["t"]) for event in events if event.name == "token"]


def test_a_relay_changes_neither_order_nor_meaning(texts):
    """STREAM-20030 SYS-6.1.1 SYS-4.3.2: what the worker itself answers to the request that orchestratord sends is what its client reads; only
    ids, position and waiting are added."""
    prompt = "Once upon a time"
    job = texts.submit(prompt=prompt, max_tokens=24, seed=11)["job_id"]
    relayed = texts.read_to_end(job)
    ids = texts.request("POST", "/tokenize", {"model": ALIAS, "content": prompt, "add_special": True}).json["tokens"]
    body = {"job_id": "direct", "prompt_tokens": ids, "max_tokens": 24, "seed": 11, "temperature": 0.7}
    answer = request(worker_of(texts, "q8_0")["uri"], "POST", "/execute", body, {**control_token(texts), "Content-Type": "application/json"})
    assert answer.status == 200, answer.body
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in answer.body.decode().split("\n\n") if block.startswith("event")]
    direct = [(json.loads(b["data"])["i"], json.loads(b["data"])["t"]) for b in blocks if b["event"] == "token"]
    assert direct and direct == tokens_of(relayed)
    ends = json.loads(blocks[-1]["data"]), relayed[-1].data
    assert blocks[-1]["event"] == relayed[-1].name == "end"
    for field in ("tokens_in", "tokens_out", "stop_reason"):
        assert ends[0][field] == ends[1][field], field
    assert ends[0]["receipt"]["output_sha256"] == ends[1]["receipt"]["output_sha256"]
    assert [name for name in (b["event"] for b in blocks) if name != "metrics"] == \
        [event.name for event in relayed if event.name not in ("queued", "metrics")]


def test_a_token_is_read_when_it_is_said(texts):
    """SSE-1001: nothing waits for the next one: with three steps done a client has three tokens, and the job is not at its end."""
    job = texts.submit_held(steps=3, max_tokens=20)
    stream = iter(texts.events(job))
    seen = []
    for event in stream:
        seen.append(event)
        if sum(e.name == "token" for e in seen) == 3:
            break
    assert texts.job(job)["status"] == "running"
    texts.gate.open()
    rest = list(stream)
    assert rest[-1].name == "end" and [i for i, _ in tokens_of(seen + rest)] == list(range(20))


def test_a_stream_does_not_go_through_the_pool():
    """ORCH-1060 ORCH-1001 SYS-4.1.1#admission: a pool manager that has stopped holds up neither a job that runs nor an admission: orchestratord
    reads the worker itself, and decides by itself who is refused."""
    with Stack({"orchestratord.queue.capacity": "1"}) as stack:
        running = stack.submit_held(max_tokens=20)
        stack.pool.send_signal(signal.SIGSTOP)
        try:
            assert stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": "x", "max_tokens": 5000}).code == "INVALID_PARAMS"
            waiting = stack.submit(max_tokens=2)["job_id"]
            assert stack.request("POST", "/v2/tasks", {"model": ALIAS, "prompt": "x", "max_tokens": 2}).code == "QUEUE_FULL"
            stack.gate.open()
            assert stack.read_to_end(running)[-1].data["tokens_out"] == 20
            assert stack.wait_terminal(waiting)["status"] == "completed"
        finally:
            stack.pool.send_signal(signal.SIGCONT)


def test_characters_reach_a_client_whole(texts):
    """M0-W-1824 M0-W-1361: tokens that are single bytes of a character say nothing until it is there."""
    words = "(ä|€|🙂){8}"
    task = {"model": "bytes", "prompt": "x", "max_tokens": 64, "seed": 3, "regex": words}
    events = list(EventStream(texts.url, "/v2/tasks?stream=true", body=task))
    said = [t for _, t in tokens_of(events)]
    assert events[-1].name == "end" and "".join(said)
    assert set(said) <= {"", "ä", "€", "🙂"} and "" in said, said
    text = "".join(said)
    assert len(text.encode()) == len(said) or events[-1].data["stop_reason"] == "eos"
    assert hashlib.sha256(text.encode()).hexdigest() == events[-1].data["receipt"]["output_sha256"]
    health = request(worker_of(texts, "bytes")["uri"], path="/health").json
    assert health["tokenizer_kind"] == "hf-json"


def test_each_model_is_read_with_the_tokenizer_of_its_format(texts):
    """M0-W-1362 M0-W-1363: a GGUF file's vocabulary and merges make the ids of one model, a directory's tokenizer.json those of the other: the
    ids that this test computes from the files itself; the workers name their backends, count the same prompts and give the text back.

    M0-W-1365 M0-W-1821"""
    text = "Once upon a time, 12 dragons didn't  sleep: the caf\u00e9 burned\n"
    spelled = json.loads((texts.models / "bytes/tokenizer.json").read_text())["model"]["vocab"]
    letters = byte_letters()
    known = {ALIAS: ("gguf-bpe", "q8_0", encode(read_metadata(MODEL), text)),
             "bytes": ("hf-json", "bytes", [spelled[letters[byte]] for byte in text.encode()])}
    assert len(known[ALIAS][2]) < len(known["bytes"][2]), "only one of them merges"
    for model, (kind, part, ids) in known.items():
        assert texts.request("POST", "/tokenize", {"model": model, "content": text}).json["tokens"] == ids, model
        assert texts.request("POST", "/detokenize", {"model": model, "tokens": ids}).json["content"] == text, model
        special = texts.request("POST", "/tokenize", {"model": model, "content": text, "add_special": True}).json["tokens"]
        job = texts.submit(model=model, prompt=text, max_tokens=1)["job_id"]
        assert texts.wait_terminal(job)["tokens_in"] == len(special) and special[len(special) - len(ids):] == ids, model
        assert request(worker_of(texts, part)["uri"], path="/health").json["tokenizer_kind"] == kind


def test_an_output_ends_before_a_stop_string(texts):
    """M0-W-1422: wherever the tokens' borders are; what comes before it is the same as without."""
    whole = texts.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 40, "seed": 7}).json["text"]
    for stop in (whole[10:14], whole[21:22], whole[7:30]):
        cut = texts.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 40, "seed": 7,
                                                           "stop": [stop]}).json
        assert cut["text"] == whole[:whole.index(stop)] and cut["stop_reason"] == "stop", (stop, cut)


def test_versions_are_recorded_and_the_order_of_events_is_stable(texts):
    """SYS-2.3.2: run again, also by new processes: the same events under the same ids; engine, sampler and numerics are in every receipt and
    are those that the node reports."""
    def run():
        events = [event for event in texts.read_to_end(texts.submit(max_tokens=12, seed=5)["job_id"]) if event.id]
        return [(event.name, event.id) for event in events], events[-1].data["receipt"]

    first = run()
    assert run() == first
    for process in (texts.orchestrator, texts.pool):
        process.kill()
        process.wait()
    texts.start()
    wait_for("the model to be known", lambda: texts.request("POST", "/v2/tasks?wait=true", {"model": ALIAS, "prompt": "x", "max_tokens": 1}).status == 200)
    assert run() == first
    worker = worker_of(texts, "q8_0")
    for field in ("engine_build", "sampler", "numerics", "device_class", "model_digest", "kv_dtype"):
        assert first[1][field] == worker[field], field


class CountedAllocations(valgrind.Counted):
    counter = ("--leak-check=no", "--undef-value-errors=no")

    def start(self):
        self.start_orchestrator()
        self.start_pool()
        # Questions are counted: none until the pool is there, and few until orchestratord has read the model's tokenizer.
        wait_for("the pool to register", lambda: '"pool.registered"' in self.log("orchestratord"))
        first = {"model": ALIAS, "prompt": "Once", "max_tokens": 1, "seed": 7}
        wait_for("the model to be known", lambda: self.request("POST", "/v2/tasks?wait=true", first).status == 200, every_s=1)
        return self

    def allocations(self):
        self.stop_daemons()
        return int(re.search("total heap usage: ([0-9,]+) allocs", self.log("orchestratord"))[1].replace(",", ""))


@valgrind.needed
def test_a_token_on_its_way_costs_no_allocation():
    """OC-CTRL-2026: jobs of many tokens, relayed from their worker to a client that reads along, make orchestratord allocate less than once for
    each token more than jobs of few. What it does by the clock and by the read is in the count as well, and on a slow machine is half of that."""
    few, many, jobs = 8, 456, 8
    counts = {}
    for tokens in (few, many):
        with CountedAllocations() as running:
            for _ in range(jobs):
                assert len(tokens_of(running.read_to_end(running.submit(max_tokens=tokens, prompt="Once")["job_id"]))) == tokens
            counts[tokens] = running.allocations()
    assert counts[many] - counts[few] < jobs * (many - few), counts
