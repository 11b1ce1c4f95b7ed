"""A page of another site, in the browser of somebody on this machine or one whose network reaches it."""

import pytest

from attacker import JSON, OPERATOR, bearer, send
from stack import Stack

TASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1}
EVIL = "http://evil.example"
LISTED = "https://chat.example"



def jobs_of(url, headers=None):
    return len(send(url, "GET", "/v2/tasks?limit=1000", headers=headers).json["tasks"])


def reason(response):
    return response.json["error"]["details"]["reason"]


# What a page can make a browser send without asking first: forms, fetch(no-cors), beacons, images.
@pytest.mark.parametrize("headers", [
    {"Origin": EVIL, "Content-Type": "text/plain"},
    {"Origin": "null", "Content-Type": "text/plain"},
    {"Origin": EVIL, **JSON},
    {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/x-www-form-urlencoded"},
    {"Sec-Fetch-Site": "same-site", **JSON},
    {"Host": "evil.example", "Origin": EVIL, "Content-Type": "text/plain"},
    {"Host": "evil.example", **JSON},
])
def test_a_page_of_another_site_moves_nothing(open_stack, headers):
    """Jobs are not submitted, pools neither purged nor registered, sessions not made: and nothing of it happens first."""
    before = jobs_of(open_stack.url)
    for method, path, body in [("POST", "/v2/tasks", TASK), ("POST", "/v2/pools/pool-1/purge", {}),
                               ("POST", "/v2/pools/register", {"pool_id": "evil"}), ("POST", "/v2/sessions", {}),
                               ("POST", "/v2/pools/pool-1/drain", {}), ("POST", "/v2/cache/clear", None)]:
        refused = send(open_stack.url, method, path, body, headers)
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), (path, refused.body)
        assert reason(refused) == ("host" if "Host" in headers else "origin")
        assert "access-control-allow-origin" not in refused.headers
    assert jobs_of(open_stack.url) == before
    assert [pool["pool_id"] for pool in open_stack.pools()] == ["pool-1"]
    assert not open_stack.pools()[0].get("draining")


@pytest.mark.parametrize("path", ["/v2/tasks", "/v2/sessions", "/v2/pools", "/metrics", "/v2/health"])
def test_dns_rebinding_reads_nothing(open_stack, path):
    """A page whose own name was pointed at this machine sends that name as Host, and no Origin with a GET."""
    for host in ("evil.example", f"evil.example:{open_stack.bind.split(':')[1]}", "localhost.evil.example", "evil.example.",
                 "127.0.0.1.evil.example", "2130706433", "0x7f.1", ""):
        refused = send(open_stack.url, "GET", path, headers={"Host": host})
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), (host, refused.body)
        assert reason(refused) == "host"


def test_pool_managers_and_workers_refuse_pages_too(open_stack):
    open_stack.read_to_end(open_stack.submit(max_tokens=1)["job_id"])
    worker = open_stack.ready_worker()["uri"]
    for url, path in [(open_stack.pool_url, "/v2/workers/stop"), (open_stack.pool_url, "/v2/workers/start"),
                      (worker, "/execute"), (worker, "/shutdown"), (worker, "/cancel")]:
        for headers in ({"Origin": EVIL, **JSON}, {"Host": "evil.example", **JSON}, {"Sec-Fetch-Site": "cross-site", **JSON}):
            assert send(url, "POST", path, {}, headers).code == "FORBIDDEN", (url, path, headers)
        assert send(url, "POST", path, {}, {"Content-Type": "text/plain"}).status in (401, 415)
    assert open_stack.ready_worker()["uri"] == worker


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                                        "text/plain; application/json", "application/jsonp", "", None])
def test_bodies_are_json_and_say_so(open_stack, media_type):
    """What a form can send is none, whatever is in it; the refusal says what to send."""
    before = jobs_of(open_stack.url)
    headers = {} if media_type is None else {"Content-Type": media_type}
    refused = send(open_stack.url, "POST", "/v2/tasks", TASK, headers)
    assert (refused.status, refused.code) == (415, "INVALID_PARAMS")
    assert "Content-Type: application/json" in refused.json["error"]["message"]
    assert jobs_of(open_stack.url) == before


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize("marks", [
    {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:60.0) Gecko/20100101 Firefox/60.0"},
    {"User-Agent": "curl/8.5.0", "Referer": "http://evil.example/"},
    {"User-Agent": "curl/8.5.0", "Cookie": "a=b"},
    {"User-Agent": "curl/8.5.0", "Sec-Fetch-Mode": "no-cors"},
    {"User-Agent": "Mozilla/5.0 curl/8.5.0"},
])
def test_a_browser_that_marks_nothing_moves_nothing(open_stack, marks):
    """Old browsers send neither Origin nor Sec-Fetch-Site with a form's type, and a page may leave out the Referer: the name of the
    program is what it cannot choose."""
    before = jobs_of(open_stack.url)
    for path, body in (("/v2/tasks", TASK), ("/v2/pools/pool-1/purge", {}), ("/v1/completions", TASK)):
        refused = send(open_stack.url, "POST", path, body, {"Content-Type": FORM, **marks})
        assert refused.status == 415 and "curl: -H 'Content-Type: application/json'" in refused.body.decode(), path
    assert jobs_of(open_stack.url) == before


def test_curl_sends_its_own_type(open_stack):
    """`curl -d` as manuals of other servers have it."""
    curl = {"Content-Type": FORM, "User-Agent": "curl/8.5.0", "Accept": "*/*"}
    assert send(open_stack.url, "POST", "/v2/tasks", TASK, curl).status == 202
    for headers in ({"Host": "evil.example"}, {"Origin": EVIL}, {"Sec-Fetch-Site": "cross-site"}):
        assert send(open_stack.url, "POST", "/v2/tasks", TASK, {**curl, **headers}).code == "FORBIDDEN", headers
    assert send(open_stack.url, "POST", "/v2/tasks", "prompt=a&model=demo", curl).status == 400, "a form is no JSON"


def test_what_is_ours_goes_on(open_stack):
    """Pages that orchestratord serves, other names of this machine, requests without a body, charsets."""
    port = open_stack.bind.split(":")[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "localhost", "127.8.9.1", "LOCALHOST."):
        same = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert send(open_stack.url, "GET", "/v2/tasks", headers=same).status == 200, host
        answer = send(open_stack.url, "POST", "/v2/tasks", TASK, {**same, "Content-Type": "application/json; charset=utf-8"})
        assert answer.status == 202, (host, answer.body)
    assert send(open_stack.url, "GET", "/v2/tasks", headers={"Sec-Fetch-Site": "none"}).status == 200
    assert send(open_stack.url, "POST", "/v2/cache/clear").status == 200
    # A page of another port of this machine is another site.
    other = {"Host": f"localhost:{port}", "Origin": "http://localhost:1"}
    assert send(open_stack.url, "GET", "/v2/tasks", headers=other).code == "FORBIDDEN"


@pytest.fixture(scope="module")
def listed_stack():
    """A site whose pages may call, a name of this server, and a token."""
    settings = {"orchestratord.cors_origins": LISTED, "orchestratord.hosts": "llm.example"}
    with Stack(token=OPERATOR, settings=settings) as running:
        yield running


def test_pool_managers_are_called_by_the_names_of_their_configuration(listed_stack):
    """The refusal says that a name is to be listed in orchestratord.hosts, which holds for a pool as well."""
    port = listed_stack.pool_url.rpartition(":")[2]
    for host in ("llm.example", f"llm.example:{port}"):
        assert send(listed_stack.pool_url, "GET", "/v2/state", headers={"Host": host, **bearer(OPERATOR)}).status == 200
    refused = send(listed_stack.pool_url, "GET", "/v2/state", headers={"Host": "evil.example", **bearer(OPERATOR)})
    assert refused.code == "FORBIDDEN" and "orchestratord.hosts of this server's configuration" in refused.json["error"]["message"]


def test_a_listed_site_may_call(listed_stack):
    """CORS: the preflight needs no token, the request does; answers and refusals carry the origin.

    OC-CTRL-2070"""
    page = {"Origin": LISTED, "Sec-Fetch-Site": "cross-site", "Host": "llm.example:8080"}
    asked = send(listed_stack.url, "OPTIONS", "/v2/tasks", headers={
        **page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"})
    assert asked.status == 204 and not asked.body
    assert asked.headers["access-control-allow-origin"] == LISTED
    assert set(asked.headers["access-control-allow-methods"].split(", ")) == {"GET", "HEAD", "POST"}
    allowed = asked.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "content-type", "last-event-id"} <= set(allowed)
    assert "origin" in asked.headers["vary"].lower()
    assert "access-control-allow-credentials" not in asked.headers

    done = send(listed_stack.url, "POST", "/v2/tasks", TASK, {**page, **JSON, **bearer(OPERATOR)})
    assert done.status == 202 and done.headers["access-control-allow-origin"] == LISTED
    assert "X-Correlation-Id" in done.headers["access-control-expose-headers"]
    events = send(listed_stack.url, "GET", done.json["events_url"], headers={**page, **bearer(OPERATOR)})
    assert events.status == 200 and events.headers["access-control-allow-origin"] == LISTED
    refused = send(listed_stack.url, "GET", "/v2/tasks", headers=page)
    assert refused.code == "MISSING_TOKEN" and refused.headers["access-control-allow-origin"] == LISTED


def test_a_site_that_is_not_listed_may_not(listed_stack):
    for origin in (EVIL, "http://chat.example", LISTED + ".evil.example", LISTED + ":444", "null"):
        preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        asked = send(listed_stack.url, "OPTIONS", "/v2/tasks", headers=preflight)
        assert asked.code == "FORBIDDEN" and "access-control-allow-origin" not in asked.headers, origin
        refused = send(listed_stack.url, "GET", "/v2/tasks", headers={"Origin": origin, **bearer(OPERATOR)})
        assert refused.code == "FORBIDDEN", origin
    assert send(listed_stack.url, "GET", "/v2/health", headers={"Host": "other.example"}).code == "FORBIDDEN"


PROGRAMS = ["app://obsidian.md", "tauri://localhost", "vscode-webview://1f2a0b3c", "file://", "capacitor://localhost",
            "ionic://localhost", "chrome-extension://abcdefghijklmnopabcdefghijklmnop", "moz-extension://7c8a5d1e-0b6e-4a8e-9d0f-3b1f2a0b3c4d"]


def test_a_program_is_refused_with_the_way_in(open_stack):
    """Where nobody shows a token, the list alone says which program of this machine may call."""
    for origin in [*PROGRAMS, "http://tauri.localhost", "http://localhost:3000"]:
        refused = send(open_stack.url, "GET", "/v2/tasks", headers={"Origin": origin})
        assert refused.code == "FORBIDDEN" and refused.json["error"]["details"]["origin"] == origin
        assert f'add "{origin}" to orchestratord.cors_origins' in refused.json["error"]["message"]
    refused = send(open_stack.url, "GET", "/v2/tasks", headers={"Origin": "null"})
    assert refused.code == "FORBIDDEN" and "sandboxed" in refused.json["error"]["message"]
    for url in (open_stack.pool_url, open_stack.ready_worker()["uri"]):
        refused = send(url, "GET", "/health", headers={"Origin": PROGRAMS[0]})
        assert refused.code == "FORBIDDEN" and "cors_origins" not in refused.json["error"]["message"]


def test_a_program_that_shows_a_token_may_call(listed_stack):
    for origin in PROGRAMS:
        asked = send(listed_stack.url, "OPTIONS", "/v2/tasks", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
        assert asked.status == 204 and asked.headers["access-control-allow-origin"] == origin
        done = send(listed_stack.url, "GET", "/v2/tasks", headers={"Origin": origin, **bearer(OPERATOR)})
        assert done.status == 200 and done.headers["access-control-allow-origin"] == origin
        assert send(listed_stack.url, "GET", "/v2/tasks", headers={"Origin": origin}).code == "MISSING_TOKEN"
    for origin in ("null", "http://tauri.localhost", "https://localhost"):
        assert send(listed_stack.url, "GET", "/v2/tasks", headers={"Origin": origin, **bearer(OPERATOR)}).code == "FORBIDDEN", origin


def test_head_is_get_without_a_body(open_stack):
    """Same status and headers; a stream is not read by it."""
    job = open_stack.submit(max_tokens=3)["job_id"]
    open_stack.wait_terminal(job)
    for path in (f"/v2/tasks/{job}", "/v2/meta/version", "/v2/catalog/models", "/v2/tasks/none"):
        got, head = (send(open_stack.url, method, path) for method in ("GET", "HEAD"))
        assert head.status == got.status and head.body == b"", path
        for name in ("content-type", "content-length"):
            assert head.headers.get(name) == got.headers.get(name), (path, name)
    head = send(open_stack.url, "HEAD", f"/v2/tasks/{job}/events")
    assert head.status == 200 and head.headers["content-type"] == "text/event-stream" and head.body == b""
    assert [event.name for event in open_stack.events(job)][-1] == "end"
