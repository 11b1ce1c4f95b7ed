"""What somebody with a token of another kind, with a node of his own, or with the credential of a node that was taken back can
do to the other nodes: who registers, who is called, and which tokens reach whom."""

import hashlib
import json
import subprocess

import pytest

from attacker import JSON, OPERATOR, TENANTS, Listener, Node
from attacker import bearer as token_of
from stack import BIN, HANG_S, MODEL, Stack, clean_env, llorch, request, wait_for

TENANT = TENANTS["alice"]


def bearer(token):
    return {**token_of(token), **JSON}


def state(pool_id, endpoint, workers=()):
    return {"pool_id": pool_id, "endpoint": endpoint, "boot_id": "b", "timestamp_ms": 1,
            "gpus": [{"gpu_id": "cpu", "vram_total_bytes": 1 << 33, "vram_available_bytes": 1 << 33, "vram_allocated_bytes": 0}],
            "workers": list(workers)}


FAILED = {"pool_id": "pool-1", "worker_id": "w", "gpu_id": "cpu", "exit_code": 1, "category": "crash", "error_code": "WORKER_RESET",
          "error_message": "gone", "vram_released_bytes": 0, "uptime_seconds": 1}


def worker(uri):
    return {"worker_id": "w-evil", "model_ref": "file:/x", "model_digest": "sha256:x", "gpu_id": "cpu", "status": "ready",
            "uri": uri, "slots_total": 1, "context_length": 512, "vram_bytes": 1}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secrets")
    tenant = directory / "tenant"
    tenant.write_text(TENANT + "\n")
    tenant.chmod(0o600)
    config = directory / "config.yaml"
    config.write_text(f"orchestratord:\n  tenants:\n    - {{id: alice, token_file: {tenant}}}\n")
    config.chmod(0o600)
    with Stack(token=OPERATOR, env={"LLORCH_CONFIG": str(config)},
               settings={"orchestratord.heartbeat.interval_ms": "200"}) as running:
        yield running


def pair(stack, pool_id):
    reply = stack.request("POST", f"/v2/pools/{pool_id}/credential", headers=bearer(OPERATOR))
    assert reply.status == 201, reply.body
    return Node(reply.json["credential"])


def test_a_node_takes_over_no_name_of_the_operator(stack, tmp_path):
    """It tells of a watched file what somebody has named already, then no more: name, checksum and owner stay."""
    name = {"model_id": "pinned", "model_ref": f"file:{MODEL}", "checksum": f"sha256:{hashlib.sha256(MODEL.read_bytes()).hexdigest()}"}
    made = stack.request("POST", "/v2/catalog/models", name, headers=bearer(OPERATOR))
    assert made.status in (200, 201), made.body

    def told():
        return next(model for model in stack.request("GET", "/v2/catalog/models", headers=bearer(OPERATOR)).json["models"]
                    if model["model_id"] == "pinned")

    before = {key: value for key, value in told().items() if "used" not in key}
    node = pair(stack, "watcher")
    with Listener() as other:
        for watched in ([{"model_id": "pinned", "model_ref": name["model_ref"], "stamp": "1"}], [], []):
            report = {**state("watcher", other.url), "watched_models": watched}
            assert stack.request("POST", "/v2/pools/register", report, headers=bearer(node.token)).status == 200
            if watched:
                stack.wait_lines("orchestratord", "catalog.watched_model_refused", "pinned")
        for slots in (0, 1025, 10**12):
            report = {**state("watcher", other.url, [{**worker(other.url), "slots_total": slots}])}
            refused = stack.request("POST", "/v2/pools/watcher/heartbeat", report, headers=bearer(node.token))
            assert (refused.status, refused.code) == (400, "INVALID_PARAMS"), refused.body
        assert {key: value for key, value in told().items() if "used" not in key} == before
        assert stack.request("DELETE", "/v2/pools/watcher", headers=bearer(node.token)).status in (200, 202, 204)


def test_an_old_report_tells_nothing_of_watched_files(stack):
    """Requests overtake each other: what a report says that was written before the last one is over."""
    node = pair(stack, "overtaken")
    names = {sequence: f"watched-{sequence}" for sequence in (5, 4, 6)}
    for name in names.values():
        made = stack.request("POST", "/v2/catalog/models", {"model_id": name, "model_ref": f"file:{MODEL}"}, headers=bearer(OPERATOR))
        assert made.status in (200, 201), made.body
    with Listener() as other:
        for sequence, name in names.items():
            watched = [{"model_id": name, "model_ref": f"file:/watched/{name}.gguf", "stamp": "1"}]
            report = {**state("overtaken", other.url), "sequence": sequence, "watched_models": watched}
            assert stack.request("POST", "/v2/pools/register", report, headers=bearer(node.token)).status == 200
        stack.wait_lines("orchestratord", "catalog.watched_model_refused", "watched-6")
        log = stack.log("orchestratord")
        assert '"watched-5"' in log and '"watched-4"' not in log
        assert stack.request("DELETE", "/v2/pools/overtaken", headers=bearer(node.token)).status in (200, 202, 204)


def pool_ids(stack):
    return sorted(pool["pool_id"] for pool in stack.pools())


def run_a_job(stack):
    ended = stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])
    assert ended["status"] == "completed", ended


@pytest.mark.parametrize("token, status, code", [(OPERATOR, 403, "FORBIDDEN"), (TENANT, 403, "FORBIDDEN"),
                                                 ("x" * 64, 401, "BAD_TOKEN"), (None, 401, "MISSING_TOKEN")],
                         ids=["operator", "tenant", "stranger", "nobody"])
def test_only_a_node_registers_and_nobody_else_is_called(stack, token, status, code):
    """A registration, a heartbeat, a deregistration, a ready or a failed worker of somebody who is no node: refused, and nothing is
    left of it: the address it names is never connected to."""
    headers = bearer(token) if token else JSON
    with Listener() as evil:
        body = state("evil", evil.url, [worker(evil.url)])
        for method, path, content in [
                ("POST", "/v2/pools/register", body), ("POST", "/v2/pools/evil/heartbeat", body),
                ("POST", "/v2/pools/register", state("pool-1", evil.url)), ("DELETE", "/v2/pools/pool-1", None),
                ("POST", "/v2/internal/workers/ready", {"pool_id": "pool-1", "worker": worker(evil.url)}),
                ("POST", "/v2/internal/workers/failed", FAILED)]:
            refused = stack.request(method, path, content, headers=headers)
            assert (refused.status, refused.code) == (status, code), (path, refused.body)
        run_a_job(stack)
        assert stack.request("POST", "/v2/cache/clear", headers=bearer(OPERATOR)).status == 200
        assert evil.requests == []
    assert pool_ids(stack) == ["pool-1"]


def test_who_may_pair(stack):
    for token, status in [(TENANT, 403), ("x" * 64, 401), (Node(stack.credential_file.read_text()).token, 403)]:
        for method in ("POST", "DELETE"):
            assert stack.request(method, "/v2/pools/pool-1/credential", headers=bearer(token)).status == status
    run_a_job(stack)


def test_a_paired_listener_sees_its_own_token_and_no_other(stack):
    """SEC-AUTH-3003: all that reaches a node is the token made for calls to it: not the operator's, no tenant's, no other node's; a redirect
    of it takes nothing elsewhere."""
    own = Node(stack.credential_file.read_text())
    with Listener() as evil, Listener() as elsewhere:
        evil.answer = lambda handler: (307, {"Location": elsewhere.url + handler.path}, b"{}")
        node = pair(stack, "evil")
        registered = stack.request("POST", "/v2/pools/register", state("evil", evil.url), headers=bearer(node.token))
        assert registered.status == 200, registered.body
        # Silent, it is asked for its state; unable to answer, it is given up.
        wait_for("it to be called", lambda: len(evil.requests) >= 3)
        run_a_job(stack)
        stack.request("POST", "/v2/cache/clear", headers=bearer(OPERATOR))
        assert evil.tokens() == {node.control}
        foreign = [OPERATOR, TENANT, own.token, own.control, own.text.strip(), node.token]
        for method, path, headers, body in evil.requests:
            for secret in foreign:
                assert secret not in json.dumps(headers) and secret.encode() not in body, (method, path)
        assert elsewhere.requests == []
        assert stack.request("DELETE", "/v2/pools/evil/credential", headers=bearer(OPERATOR)).status == 204
        assert pool_ids(stack) == ["pool-1"]


def test_a_node_speaks_for_itself_only(stack):
    node = pair(stack, "pool-2")
    with Listener() as evil:
        for method, path, content in [
                ("POST", "/v2/pools/register", state("pool-1", evil.url)),
                ("POST", "/v2/pools/pool-1/heartbeat", state("pool-1", evil.url)), ("DELETE", "/v2/pools/pool-1", None),
                ("POST", "/v2/internal/workers/ready", {"pool_id": "pool-1", "worker": worker(evil.url)}),
                ("POST", "/v2/internal/workers/failed", FAILED)]:
            refused = stack.request(method, path, content, headers=bearer(node.token))
            assert (refused.status, refused.code) == (403, "FORBIDDEN"), (path, refused.body)
        # Its credential is for what pools say, and nothing else; that of the other direction is for nothing here.
        for token, status in [(node.token, 403), (node.control, 401)]:
            for path in ("/v2/tasks", "/v2/pools", "/metrics"):
                assert stack.request("GET", path, headers=bearer(token)).status == status, path
        run_a_job(stack)
        assert evil.requests == []
    assert pool_ids(stack) == ["pool-1"]


def test_a_worker_is_on_its_pools_host(stack):
    """A node that announces a worker elsewhere, or itself at an address that is nobody's, is refused before anybody calls."""
    node = pair(stack, "pool-2")
    with Listener("127.0.0.2") as other, Listener() as evil:
        for content, reason in [(state("pool-2", evil.url, [worker(other.url)]), "host"),
                                (state("pool-2", evil.url, [worker(evil.url.replace("127.0.0.1", "0.0.0.0"))]), "host"),
                                (state("pool-2", evil.url.replace("127.0.0.1", "0.0.0.0")), "wildcard"),
                                (state("pool-2", evil.url.replace("127.0.0.1", "[::]")), "wildcard"),
                                (state("pool-2", other.url + "/admin?x="), "url"),
                                (state("pool-2", evil.url, [worker(evil.url + "/admin?x=")]), "url")]:
            refused = stack.request("POST", "/v2/pools/register", content, headers=bearer(node.token))
            assert (refused.status, refused.code) == (400, "INVALID_PARAMS"), refused.body
            assert refused.json["error"]["details"]["reason"] == reason
        assert stack.request("POST", "/v2/pools/register", state("pool-2", evil.url), headers=bearer(node.token)).status == 200
        refused = stack.request("POST", "/v2/internal/workers/ready", {"pool_id": "pool-2", "worker": worker(other.url)},
                                headers=bearer(node.token))
        assert refused.status == 400 and refused.json["error"]["details"]["reason"] == "host"
        run_a_job(stack)
        assert other.requests == []
        assert stack.request("DELETE", "/v2/pools/pool-2/credential", headers=bearer(OPERATOR)).status == 204


def test_the_operators_token_stays_with_the_operator(stack):
    """It is on no command line, in no worker's environment, in no log, and neither are the nodes' secrets."""
    run_a_job(stack)
    node = Node(stack.credential_file.read_text())
    workers = request(stack.pool_url, path="/v2/state", headers=bearer(OPERATOR)).json["workers"]
    assert workers
    for pid in [w["pid"] for w in workers]:
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                text = file.read()
            held = [entry.partition("=")[0] for entry in text.decode(errors="replace").split("\0")
                    if any(secret in entry for secret in (OPERATOR, TENANT, node.secret.hex(), node.token))]
            assert held == [], name
    for log in stack.dir.rglob("*.log"):
        text = log.read_text(errors="replace")
        for secret in (OPERATOR, TENANT, node.secret.hex(), node.token, node.control):
            assert secret not in text, log


def test_a_revoked_pool_is_refused_and_says_so(tmp_path):
    """From then on its credential is refused, its address forgotten, its workers get no more work, over a restart as well; what
    waits goes on when the pool is paired anew. Nobody needs a token on one machine; a pool does."""
    settings = {"orchestratord.heartbeat.interval_ms": "200"}
    with Stack(state_dir=tmp_path, settings=settings) as stack:
        run_a_job(stack)
        old = Node(stack.credential_file.read_text())
        gone = llorch("--url", stack.url, "pool", "unpair", "pool-1", state_dir=tmp_path)
        assert gone.returncode == 0, gone.stderr
        assert llorch("--url", stack.url, "pool", "unpair", "pool-1", state_dir=tmp_path).returncode == 1
        wait_for("the pool to go", lambda: not stack.pools())
        wait_for("the pool to say why", lambda: "llorch pool pair pool-1" in stack.log("pool-managerd"))
        refused = stack.request("POST", "/v2/pools/pool-1/heartbeat", state("pool-1", stack.pool_url), headers=bearer(old.token))
        assert (refused.status, refused.code) == (401, "BAD_TOKEN")
        job = stack.submit(max_tokens=4)["job_id"]
        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        assert stack.pools() == []
        assert stack.job(job)["status"] == "queued"
        assert stack.job(job)["reason"]["code"] == "WAITING_FOR_POOL"
        made = llorch("--url", stack.url, "pool", "pair", "pool-1", "--out", str(stack.credential_file), state_dir=tmp_path)
        assert made.returncode == 0 and old.secret.hex().encode() not in made.stdout
        assert stack.credential_file.stat().st_mode & 0o777 == 0o600
        stack.pool.terminate()
        stack.pool.wait()
        stack.start_pool()
        assert stack.wait_terminal(job)["status"] == "completed"
        stack.stop_daemons()
        for name in ("pool_credential", "pool_credentials"):
            assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_pool_on_all_addresses_announces_one(tmp_path):
    """Bound to every address a pool has to be told which one it announces; its workers are announced there too, and jobs run."""
    command = [str(BIN / "pool-managerd"), "--cpu", "--bind", "0.0.0.0:0", "--state-dir"]
    with Stack(state_dir=tmp_path / "s") as stack:
        stack.pool.terminate()
        stack.pool.wait()
        done = subprocess.run([*command, str(stack.dir)], capture_output=True, timeout=HANG_S, env=clean_env(stack.dir))
        assert done.returncode == 2 and b"pool-managerd.advertise" in done.stderr, done.stderr
        stack.settings["pool-managerd.advertise"] = "127.0.0.2"
        stack.pool_bind = "0.0.0.0:0"
        stack.start_pool()
        wait_for("the pool to register", lambda: [p for p in stack.pools() if p["endpoint"].startswith("http://127.0.0.2:")])
        run_a_job(stack)
        uris = [w["uri"] for p in stack.pools() for w in p["workers"]]
        assert uris and all(uri.startswith("http://127.0.0.2:") for uri in uris)
        # A machine of the network needs the pool's token, and no other will do.
        port = stack.pool_bind.rpartition(":")[2]
        for url in [f"http://127.0.0.2:{port}", *uris]:
            path = "/v2/state" if url.endswith(port) else "/cache/clear"
            method = "GET" if url.endswith(port) else "POST"
            assert request(url, method, path).code == "MISSING_TOKEN"
            assert request(url, method, path, headers=bearer("x" * 64)).code == "BAD_TOKEN"


def test_an_unpaired_pool_opens_nothing_beyond_its_machine(tmp_path):
    done = subprocess.run([str(BIN / "pool-managerd"), "--cpu", "--bind", "0.0.0.0:0", "--state-dir", str(tmp_path)],
                          capture_output=True, timeout=HANG_S, env=clean_env(tmp_path))
    assert done.returncode == 4 and b"llorch pool pair" in done.stderr, done.stderr


def test_up_pairs_its_own_pool(tmp_path):
    """Nobody who runs one box hears of credentials: they are made, kept over restarts, made anew where they are lost, and those
    of one state directory are nothing in another."""
    def up(directory):
        started = llorch("--set", "orchestratord.bind=127.0.0.1:0", "--set", "pool-managerd.bind=127.0.0.1:0", "--json", "up",
                         "--cpu", "--detach", state_dir=directory)
        assert started.returncode == 0, started.stderr
        url = json.loads(started.stdout.splitlines()[-1])["orchestratord"]
        wait_for("the pool", lambda: [p["status"] for p in request(url, path="/v2/pools").json["pools"]] == ["healthy"])
        return url, (directory / "pool_credential").read_text()

    def down(directory):
        assert llorch("down", state_dir=directory).returncode == 0

    one, two = tmp_path / "one", tmp_path / "two"
    try:
        first, credential = up(one)
        other, foreign = up(two)
        assert foreign != credential
        refused = request(other, "POST", "/v2/pools/register", state("pool-1", first), headers=bearer(Node(credential).token))
        assert (refused.status, refused.code) == (401, "BAD_TOKEN")
        down(one)
        assert up(one)[1] == credential
        down(one)
        (one / "pool_credential").unlink()
        url, made = up(one)
        assert made != credential
        refused = request(url, "POST", "/v2/pools/pool-1/heartbeat", state("pool-1", first), headers=bearer(Node(credential).token))
        assert refused.code == "BAD_TOKEN"
    finally:
        down(one)
        down(two)
