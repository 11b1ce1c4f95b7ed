"""Requests that are spelled otherwise, or hide another one, so that who is asked for and who is let in are two."""

import re
import socket
import urllib.parse

import pytest

from attacker import JSON, OPERATOR, TENANTS, bearer, send
from stack import HANG_S

TENANT = TENANTS["alice"]
# Of one route that a tenant must not use, and what else could lead there.
SPELLINGS = ["/v2/pools/pool-1/drain/", "//v2/pools/pool-1/drain", "/v2//pools/pool-1/drain", "/V2/pools/pool-1/drain",
             "/v2/pools/pool-1/../pool-1/drain", "/v2/tasks/../pools/pool-1/drain", "/v2/./pools/pool-1/drain",
             "/v2%2Fpools%2Fpool-1%2Fdrain", "/v2/pools/pool-1%2Fdrain", "/v2/%70ools/pool-1/drain", "/v2/pools/pool-1/drain%00",
             "/v2/pools/pool-1/drain;x=1", "/v2/tasks/x%2F..%2F..%2Fpools/pool-1/drain", "/v2/pools/pool-1/drain#x",
             "\\v2\\pools\\pool-1\\drain"]


def raw(url, data):
    """All that comes back for these bytes until the other side closes."""
    parsed = urllib.parse.urlsplit(url)
    with socket.create_connection((parsed.hostname, parsed.port), timeout=HANG_S) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def statuses_of(answers):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


@pytest.mark.parametrize("path", SPELLINGS)
def test_no_spelling_gets_round_a_role(guarded_stack, path):
    """It is the route, and refused as it, or it is none."""
    host = urllib.parse.urlsplit(guarded_stack.url).netloc
    for target in (path, f"http://{host}{path}"):
        answer = raw(guarded_stack.url, f"POST {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TENANT}\r\n"
                     "Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}".encode())
        status = int(answer.split(b" ", 2)[1])
        assert status in (400, 403, 404, 405), (target, answer[:200])
    assert not guarded_stack.pools()[0].get("draining")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"])
def test_a_call_is_the_same_in_any_spelling(guarded_stack, path):
    """The router and the decoder of the body agree on which call it is, and orchestratord goes on."""
    body = {"model": "demo", "of_no_call": True}
    plain = send(guarded_stack.url, "POST", path, body, {**JSON, **bearer(TENANT)})
    assert plain.status == 400, plain.body
    for spelling in ("/%76" + path[2:], path[:-1] + f"%{ord(path[-1]):02x}"):
        answer = send(guarded_stack.url, "POST", spelling, body, {**JSON, **bearer(TENANT)})
        assert (answer.status, answer.json["error"]["message"]) == (400, plain.json["error"]["message"]), spelling


def test_what_is_not_there_is_nobodys_to_ask(guarded_stack):
    """Without a token a path that is no route is refused like one that is; a method too."""
    worker = next(w["uri"] for w in guarded_stack.workers()) if guarded_stack.workers() else guarded_stack.pool_url
    for url in (guarded_stack.url, guarded_stack.pool_url, worker):
        for method, path in (("GET", "/nothing"), ("GET", "/v2/nothing"), ("POST", "/v1/nothing"), ("GET", "/api/nothing"),
                             ("DELETE", "/v2/tasks"), ("PUT", "/health"), ("GET", "/console"), ("GET", "/.env"),
                             ("GET", "/v2/debug/other")):
            assert send(url, method, path).status == 401, (url, method, path)
            assert send(url, method, path, headers=bearer("x" * 40)).code == "BAD_TOKEN"
    assert send(guarded_stack.url, "GET", "/v2/nothing", headers=bearer(OPERATOR)).code == "NOT_FOUND"


def test_files_of_the_console_are_those_of_the_build(guarded_stack):
    for name in ("..%2f..%2fetc%2fpasswd", "%2e%2e%2fconsole_files.cpp", "%00app.js", "app.js%00.png", "views", "nothing.js", "C:", "~"):
        for directory in ("/console/", "/console/views/"):
            assert send(guarded_stack.url, "GET", directory + name).status in (400, 404), (directory, name)


HIDDEN = (b"POST /v2/pools/pool-1/drain HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
          b"Content-Length: 2\r\n\r\n{}")


@pytest.mark.parametrize("head, body", [
    (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),     # two lengths
    (b"Content-Length: 0\r\nContent-Length: 4", b""),
    (b"Content-Length: 0, 4", b""), (b"Content-Length: +0", b""), (b"Content-Length: 0x0", b""), (b"Content-Length: -1", b""),
    (b"Transfer-Encoding: xchunked", b"0\r\n\r\n"), (b"Transfer-Encoding: chunked, identity", b"0\r\n\r\n"),
    (b"Transfer-Encoding : chunked", b"0\r\n\r\n"), (b"X: y\r\n Transfer-Encoding: chunked", b"0\r\n\r\n"),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"00000000000000000000\r\n\r\n"), (b"Transfer-Encoding: chunked", b"-1\r\n\r\n"),
    (b"Transfer-Encoding: chunked", b"ffffffffffffffff1\r\n\r\n"), (b"X:\x00y\r\nContent-Length: 0", b""),
    (b"Authorization: Bearer %s\r\nContent-Length: 0" % OPERATOR.encode(), b""),                     # two callers
    (b"Host: evil.example\r\nContent-Length: 0", b""),
], ids=lambda part: re.sub(rb"[^ -~]+", b"_", part).decode().replace(OPERATOR, "operator"))
def test_no_request_hides_another(guarded_stack, head, body):
    """Whose length can be read in two ways is refused and its connection closed: nothing behind it is a request. Where it can be
    read in one way only, what follows is a request of its own, without a token."""
    first = (b"POST /v2/sessions/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + TENANT.encode() +
             b"\r\nContent-Type: application/json\r\n" + head + b"\r\n\r\n" + body)
    answers = raw(guarded_stack.url, first + HIDDEN)
    statuses = statuses_of(answers)
    assert statuses and statuses[0] in (400, 401, 403, 404, 405, 413), answers[:300]
    assert all(status in (400, 401) for status in statuses[1:]), answers  # 400: what follows is no request
    assert not guarded_stack.pools()[0].get("draining")


def test_a_connection_remembers_no_caller(guarded_stack):
    """The second request on a connection of the operator's is nobody's without a token."""
    first = (b"GET /v2/health HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + OPERATOR.encode() + b"\r\n\r\n")
    answers = raw(guarded_stack.url, first + HIDDEN)
    statuses = statuses_of(answers)
    assert statuses == [200, 401]
    assert not guarded_stack.pools()[0].get("draining")
