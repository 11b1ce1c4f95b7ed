"""The files of the web console as the daemon serves them. What they do in a browser: tests/console."""

import re

import pytest

from stack import REPO, Stack, llorch, request

PAGE = REPO / "src/orchestratord/http/console/page"
FILES = sorted(str(path.relative_to(PAGE)) for path in PAGE.rglob("*") if path.is_file())
TOKEN = "c" * 40


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_as_it_lies_there(stack, name):
    answer = stack.request("GET", f"/console/{name}")
    assert (answer.status, answer.body) == (200, (PAGE / name).read_bytes())
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    again = stack.request("GET", f"/console/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert stack.request("HEAD", f"/console/{name}").body == b""


def test_the_page_is_at_the_root(stack):
    page = stack.request("GET", "/", headers={"Accept": "text/html"})
    assert page.body == (PAGE / "index.html").read_bytes()
    assert page.headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.parametrize("path", ["/console/", "/console/none.js", "/console/../orchestratord", "/console/views", "/console/%2e%2e/x"])
def test_there_is_nothing_else(stack, path):
    answer = stack.request("GET", path)
    assert (answer.status, answer.code) == (404, "NOT_FOUND")


def test_no_file_names_another_host():
    """But the name of SVG, which is no address that anybody asks."""
    for name in FILES:
        text = (PAGE / name).read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:|wss?:)?//[a-z0-9-]+\.[a-z]{2,}", text, re.I), name


def test_files_are_for_everybody_and_facts_are_not():
    with Stack(token=TOKEN) as stack:
        for path in ("/", "/console/app.js"):
            assert request(stack.url, path=path).status == 200
            assert request(stack.url, path=path, headers={"Authorization": "Bearer " + "x" * 40}).status == 401
            assert request(stack.url, path=path, headers={"Host": "elsewhere.example"}).status == 403
            assert request(stack.url, path=path, headers={"Sec-Fetch-Site": "cross-site"}).status == 403
        for path in ("/v2/health", "/v2/tasks", "/v2/meta/settings", "/metrics", "/console"):
            assert request(stack.url, path=path).status == 401, path
        assert request(stack.url, "POST", "/").status == 401


def test_settings_hold_no_secret(tmp_path):
    secret = tmp_path / "token-of-a-reader"
    secret.write_text("r" * 40)
    secret.chmod(0o600)
    with Stack({"auth.reader_token_files": str(secret), "orchestratord.queue.capacity": "17"}, token=TOKEN) as stack:
        answer = stack.request("GET", "/v2/meta/settings")
        assert answer.json["settings"]["orchestratord"]["queue"]["capacity"] == 17
        assert answer.json["schema"]["properties"]["orchestratord"]["properties"]["queue"]["properties"]["capacity"]["default"] == 100
        assert answer.json["settings"]["auth"]["reader_token_files"] == ["(a file)"]
        assert b"token-of-a-reader" not in answer.body and TOKEN.encode() not in answer.body
        reader = {"Authorization": "Bearer " + "r" * 40}
        assert stack.request("GET", "/v2/meta/settings", headers=reader).status == 403


def test_a_job_tells_its_times_and_a_worker_its_memory(stack):
    job = stack.wait_terminal(stack.submit(max_tokens=8)["job_id"])
    assert job["submitted_at"] <= job["dispatched_at"] <= job["started_at"] <= job["finished_at"]
    assert job["first_token_ms"] >= 0 and job["decode_time_ms"] >= 0
    worker = stack.workers()[0]
    memory = worker["memory_by_device"]
    assert len(memory) == 1 and sum(memory[0].values()) == worker["vram_bytes"]
    assert memory[0]["weights_bytes"] > 1_000_000 and memory[0]["cache_bytes"] > 0
    models = stack.request("GET", "/v2/catalog/models?facts=true").json["models"]
    assert [m["facts"]["architecture"] for m in models] == ["llama", "llama"]
    assert "facts" not in stack.request("GET", "/v2/catalog/models").json["models"][0]


def test_a_model_that_no_pool_knows_says_why(tmp_path):
    with Stack({"models.aliases.gone": f"file:{tmp_path}/gone.gguf", "models.allowed_roots": str(tmp_path)}) as stack:
        models = {m["model_id"]: m for m in stack.request("GET", "/v2/catalog/models?facts=true").json["models"]}
        assert models["gone"]["reason"]["code"] == "MODEL_NOT_FOUND" and "facts" not in models["gone"]


def test_it_can_be_switched_off():
    with Stack({"orchestratord.gateways.console": "false"}) as stack:
        assert stack.request("GET", "/console/app.js").status == 404
        assert stack.request("GET", "/").body == b"Ollama is running"  # the other gateway that looks there
    with Stack({"orchestratord.gateways.console": "false", "orchestratord.gateways.ollama": "false"}) as stack:
        assert stack.request("GET", "/").status == 404
        assert stack.request("GET", "/v2/health").status == 200


def test_up_says_where_it_is(tmp_path):
    ports = ["--set", "orchestratord.bind=127.0.0.1:0", "--set", "pool-managerd.bind=127.0.0.1:0"]
    try:
        started = llorch(*ports, "up", "--cpu", "--detach", state_dir=tmp_path)
        assert started.returncode == 0, started.stderr
        address = re.search(r"^console +(http://\S+/)$", started.stdout.decode(), re.M)
        assert address, started.stdout
        assert request(address[1], path="/").status == 200
    finally:
        llorch("down", state_dir=tmp_path)
