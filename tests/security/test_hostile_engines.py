"""An engine of another system that was taken over, or never was what it said: what its answers can do to the adapter in front of it,
to the jobs behind it, and to the key it is called with. Each answer is scripted on the bare connection."""

import contextlib
import json
import select
import socket
import threading
import urllib.parse

import pytest

from adapter import Adapter, one_end, text
from attacker import Listener
from fake_engine import FakeEngine
from stack import HANG_S, wait_for

KEY = "sk-keyoftheengine0123456789abcdef"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
GROWTH_KIB_MAX = 64 << 10  # of the adapter's memory, whatever is poured into it
ENDLESS = 1 << 30          # bytes after which a deed counts as never stopped by the other side


class Hostile(FakeEngine):
    """`deeds` answer the next submissions, in order; each gets the connection. Then it is as any other."""

    def __init__(self, kind="openai", key=KEY):
        super().__init__(kind, key=key)
        self.deeds = []
        self.poured = []  # bytes that the adapter let every deed send
        handler = self.server.RequestHandlerClass
        honest_post, honest_get = handler.do_POST, handler.do_GET

        def do_POST(request):
            if not self.deeds:
                return honest_post(request)
            request._record(request.rfile.read(int(request.headers["Content-Length"])))
            request.close_connection = True
            self.deeds.pop(0)(request)
            return None

        def do_GET(request):
            if self.look is None:
                return honest_get(request)
            request._record(b"")
            request.close_connection = True
            return self.look(request)

        self.look = None  # instead of facts and probes
        handler.do_POST, handler.do_GET = do_POST, do_GET

    def pour(self, first, again):
        """A deed: `first`, then `again` until the other side has enough."""
        def deed(request):
            sent = 0
            try:
                request.connection.sendall(first)
                while sent < ENDLESS:
                    request.connection.sendall(again)
                    sent += len(again)
            except OSError:
                pass
            self.poured.append(sent)

        return deed


def say(*parts):
    """A deed: these bytes, and the connection closes."""
    def deed(request):
        for part in parts:
            request.connection.sendall(part)
        request.connection.shutdown(socket.SHUT_WR)

    return deed


def piece(content, reason=None, **more):
    choice = {"index": 0, "text": content, "finish_reason": reason}
    return b"data: " + json.dumps({"id": "c", "object": "chunk", "choices": [choice], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def memory_kib(adapter):
    with open(f"/proc/{adapter.process.pid}/status") as file:
        return int(next(line.split()[1] for line in file if line.startswith("VmHWM:")))


@pytest.fixture(scope="module")
def pair():
    with Hostile() as engine, Adapter(engine, key=KEY) as adapter:
        one_end(adapter.run())
        yield engine, adapter


def attacked(pair, *deeds, **job):
    """The error of a job whose answers are these, after which the adapter serves as before and has not grown."""
    engine, adapter = pair
    before = memory_kib(adapter)
    engine.poured.clear()
    engine.deeds += deeds
    events = adapter.run(**job)
    engine.deeds.clear()
    adapter.wait_idle()
    assert one_end(adapter.run()).name == "end"
    assert memory_kib(adapter) - before < GROWTH_KIB_MAX
    return events, events[-1].data


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_neither_key_nor_prompt_elsewhere(pair, status):
    with Listener() as elsewhere:
        reply = f"HTTP/1.1 {status} Go\r\nLocation: {elsewhere.url}/v1/completions\r\nContent-Length: 0\r\n\r\n".encode()
        _, error = attacked(pair, say(reply))
        assert (error["code"], error["details"]["upstream_status"]) == ("INTERNAL", status)
        assert elsewhere.requests == []


def test_a_redirect_of_what_an_adapter_asks_first_is_not_followed():
    """Its facts and its probes carry the key as well."""
    with Hostile() as engine, Listener() as elsewhere:
        engine.look = say(f"HTTP/1.1 307 Go\r\nLocation: {elsewhere.url}/v1/models\r\nContent-Length: 0\r\n\r\n".encode())
        adapter = Adapter(engine, key=KEY, start_timeout_ms=300)
        with pytest.raises(AssertionError, match="status 307"):
            adapter.__enter__()
        adapter.__exit__()
        assert engine.requests and elsewhere.requests == []


def test_headers_without_an_end(pair):
    """Of the answer, or of any number of answers before it."""
    for again in (b"X-More: " + b"x" * 8000 + b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" * 400, b"x" * 8000):
        deeds = [pair[0].pour(b"HTTP/1.1 200 OK\r\n" if again[:1] != b"H" else b"", again) for _ in range(6)]
        _, error = attacked(pair, *deeds)
        assert error["code"] == "WORKER_RESET", (again[:8], error)
        wait_for("the connections to close", lambda: pair[0].poured)
        assert max(pair[0].poured) < ENDLESS


@pytest.mark.parametrize("status, code", [(500, "WORKER_UNAVAILABLE"), (422, "INVALID_PARAMS"), (307, "INTERNAL")])
def test_a_refusal_without_an_end(pair, status, code):
    """A reason is short. What never ends is left, so that the slot is free for the next job."""
    head = f"HTTP/1.1 {status} No\r\nConnection: close\r\n\r\n".encode()
    _, error = attacked(pair, *[pair[0].pour(head, b"x" * 65536) for _ in range(6)])
    assert (error["code"], error["details"]["upstream_status"]) == (code, status)
    wait_for("the connections to close", lambda: pair[0].poured)
    assert max(pair[0].poured) < ENDLESS


def test_an_answer_that_goes_on_behind_its_end(pair):
    """The job is done; the connection does not stay for whatever comes."""
    events, _ = attacked(pair, pair[0].pour(HEAD + piece("a", "stop") + DONE, b": and on\n\n" * 4096))
    assert one_end(events).name == "end" and text(events) == "a"
    wait_for("the connection to close", lambda: pair[0].poured)
    assert pair[0].poured[0] < ENDLESS


def test_a_body_that_drips_ends_with_the_jobs_time(pair):
    """Comments keep a connection alive, and no job."""
    left = threading.Event()

    def drip(request):
        try:
            request.connection.sendall(HEAD)
            while not left.wait(0.05):
                request.connection.sendall(b": still here\n\n")
        except OSError:
            left.set()

    _, error = attacked(pair, drip, timeout_ms=700)
    assert error["code"] == "TIMEOUT"
    assert left.wait(HANG_S), "and the engine is told"


def test_silence_is_no_answer():
    done = threading.Event()
    with Hostile() as engine, Adapter(engine, key=KEY, more=["--silence-ms", "1000"]) as adapter:
        engine.deeds.append(lambda request: (request.connection.sendall(HEAD + piece("a")), done.wait(HANG_S)))
        error = one_end(adapter.run()).data
        done.set()
        assert error["code"] == "WORKER_RESET" and error["details"]["cause"] == "TIMEOUT"


@pytest.mark.parametrize("bytes_, code", [
    (b"data: " + b"[" * 900_000 + b"\n\n", "WORKER_RESET"),                       # deeper than any stack
    (piece("x" * 900_000) * 40, "INTERNAL"),                                      # more text than tokens
    (b"data: " + b"\x00\x01\xff" * 1000 + b"\n\n", "WORKER_RESET"),
    (b"\x1f\x8b\x08\x00" + bytes(1000), "WORKER_RESET"),                          # of another encoding
    (b"data: {\"choices\": [{\"text\": 7}]}\n\n" * 1000, "WORKER_RESET"),         # of another shape, and no end
    (b"data: x\n" * 1_000_000, "WORKER_RESET"),                                   # one event of endless lines
], ids=["deep", "long", "bytes", "zipped", "shape", "lines"])
def test_answers_that_are_none(pair, bytes_, code):
    _, error = attacked(pair, *[say(HEAD, bytes_)] * 6)
    assert error["code"] == code, error


def pour_into(bytes_, stopped, stops):
    """A deed: `stopped` is set once the other side takes nothing for a while, which goes into `stops`, or is gone. What it takes later
    it gets."""
    def deed(request):
        left = memoryview(bytes_)
        request.connection.setblocking(False)
        with contextlib.suppress(OSError):
            while left:
                if not select.select([], [request.connection], [], 0.2)[1] and not stopped.is_set():
                    stops.append(len(bytes_) - len(left))
                    stopped.set()
                with contextlib.suppress(BlockingIOError):
                    left = left[request.connection.send(left):]
        stopped.set()

    return deed


def read_late(adapter, when):
    """What a client is told that begins to read `when`, and then reads all."""
    url = urllib.parse.urlsplit(adapter.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(HANG_S)
        client.connect((url.hostname, url.port))
        body = json.dumps({"job_id": "late", "prompt": "a", "max_tokens": 5000, "seed": 7}).encode()
        client.sendall(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert when.wait(HANG_S)
        return b"".join(iter(lambda: client.recv(1 << 20), b""))


@pytest.mark.parametrize("bad", [b"data: {]\n\n", b'data: {"error": {"message": "no", "code": 500}}\n\n'], ids=["shape", "error"])
def test_a_bad_event_while_nobody_reads(pair, bad):
    """An adapter whose client does not read stops reading the engine, with some bytes in its hands. The job ends well where it takes
    those up again and they are bad. Where that is depends on the system's buffers: it is a little later each time, until it is behind."""
    engine, adapter = pair
    stops = []
    for kib in range(256, 8192, 6):
        stopped = threading.Event()
        answer = HEAD + piece("x" * 1950) * (kib // 2) + bad + b": and on\n\n" * (1 << 20)
        engine.deeds.append(pour_into(answer, stopped, stops))
        told = read_late(adapter, stopped)
        assert b"event: error" in told and b'"WORKER_RESET"' in told, (kib, told[-300:])
        adapter.wait_idle()
        if len(stops) == 4:
            break
    assert len(stops) == 4
    assert one_end(adapter.run()).name == "end"


@pytest.mark.parametrize("usage", [{"prompt_tokens": 2**63 - 1, "completion_tokens": 2**63 - 1},
                                   {"prompt_tokens": -5, "completion_tokens": -5}, {"prompt_tokens": "many", "completion_tokens": 1e300},
                                   {"prompt_tokens": 2**64, "completion_tokens": None}],
                         ids=["largest", "negative", "words", "larger"])
def test_counts_that_cannot_be(pair, usage):
    """What an engine says it read and wrote is bounded by what it was asked."""
    events, end = attacked(pair, say(HEAD, piece("a"), piece("b", "stop"), b"data: " + json.dumps(
        {"choices": [], "usage": usage}).encode() + b"\n\n", DONE), max_tokens=12)
    assert one_end(events).name == "end" and text(events) == "ab"
    assert 2 <= end["tokens_out"] == end["receipt"]["tokens_out"] <= 12
    assert 0 <= end["tokens_in"] <= 1 << 31


def test_words_of_an_engine_end_no_stream(pair):
    """A text that looks like an event of ours is a text."""
    words = "\n\nevent: end\ndata: {}\n\nevent: token\ndata: {\"i\":0,\"t\":\"forged\"}\n\r\n\r: \u2028\u0085"
    events, _ = attacked(pair, say(HEAD, piece(words, "stop"), DONE))
    assert one_end(events).name == "end" and text(events) == words


def test_its_key_is_in_nothing_that_came_of_it(pair):
    """After all of the above, and of what repeats the request's own headers."""
    engine, adapter = pair
    echo = json.dumps({"error": {"message": f"bad key {KEY}", "type": KEY, "code": KEY}}).encode()
    events, error = attacked(pair, say(b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(echo) + echo))
    assert error["details"]["reason"] == "upstream_auth"
    for told in (adapter.log(), str(events), adapter.request("GET", "/metrics").body.decode(), str(adapter.health())):
        assert KEY not in told
    assert all(headers["Authorization"] == f"Bearer {KEY}" for _, _, headers, _ in engine.requests)
