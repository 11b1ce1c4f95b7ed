"""Models that one pool gives to another, watched directories, and models that have a worker before the first job."""

import hashlib
import hmac
import os
import shutil
import tempfile
import urllib.parse

import pytest

from embedding_model import add_dense, files_of, write_embedding_model
from model_server import Hub, ModelServer
from stack import MODEL, MODEL_F16, Stack, request, wait_for
from test_pull import DATA, SHA256, ask_for, ended, model_of, published, pull, remove, settings_for

CHECKSUM = f"sha256:{SHA256}"
CHECKSUM_F16 = f"sha256:{hashlib.sha256(MODEL_F16.read_bytes()).hexdigest()}"


class Second(Stack):
    """A pool of another node: with a state directory and a cache of its own."""

    def __init__(self, first, cache):
        directory = tempfile.TemporaryDirectory(prefix="llorch-e2e-peer-")
        super().__init__({**first.settings, "models.cache_dir": str(cache), "pool-managerd.pool_id": "pool-2"}, state_dir=directory.name,
                         token=first.token)
        self._temporary = directory
        self.bind = first.bind
        paired = first.request("POST", "/v2/pools/pool-2/credential")
        assert paired.status == 201, paired.body
        self.credential_file.touch(mode=0o600)
        self.credential_file.write_text(paired.json["credential"] + "\n")
        self.start_pool()


class TwoNodes:
    def __init__(self, tmp_path):
        self.caches = (tmp_path / "cache-1", tmp_path / "cache-2")
        # The second node's cache is somewhere else; orchestratord lets models come from both.
        self.first = Stack({**settings_for(self.caches[0]), "models.allowed_roots": f"{MODEL.parent},{self.caches[1]}"}, token="t" * 40)
        self.second = None

    def __enter__(self):
        self.first.start()
        try:
            self.second = Second(self.first, self.caches[1])
            wait_for("the second pool to register", lambda: len(self.first.pools()) == 2)
        except BaseException:
            self.first.stop()
            raise
        return self

    def __exit__(self, *_):
        self.second.stop()
        self.first.stop()

    def pull_to_first(self, url, **fields):
        ask_for(self.first, url, model_id="tale", pool_id="pool-1", **fields)
        return ended(self.first, "tale")

    def pull_to_second(self, url, **fields):
        ask_for(self.first, url, model_id="tale-2", pool_id="pool-2", **fields)
        return ended(self.first, "tale-2")


@pytest.fixture
def server():
    with ModelServer() as one:
        yield one


@pytest.fixture
def nodes(tmp_path):
    with TwoNodes(tmp_path) as running:
        yield running


# A pool gets a model from the pool that has it, and the network is not asked; what came is usable there.
def test_a_model_comes_from_the_pool_that_has_it(nodes, server):
    server.add("/tale.gguf", DATA)
    assert nodes.pull_to_first(f"{server.url}/tale.gguf", checksum=CHECKSUM)["checksum"] == CHECKSUM
    server.requests.clear()
    assert nodes.pull_to_second("https://models.example/not-there.gguf", checksum=CHECKSUM)["checksum"] == CHECKSUM
    assert server.requests == []
    assert published(nodes.caches[1]) == [f"{SHA256}/tale.gguf"]
    nodes.first.wait_lines("orchestratord", '"peer_pool_id":"pool-1"')
    seen = nodes.second.wait_lines("pool-managerd", '"egress"')
    assert seen and all(f'"host":"{urllib.parse.urlsplit(nodes.first.pool_url).hostname}"' in line for line in seen)
    job = nodes.first.submit(model="tale-2", max_tokens=4, placement={"mode": "pin", "pin_pool_id": "pool-2"})
    done = nodes.first.wait_terminal(job["job_id"])
    assert done["status"] == "completed" and done["receipt"]["model_digest"] == CHECKSUM
    # One name is of one pool's model: it is said, and not silently the other one's.
    assert ask_for(nodes.first, f"{server.url}/tale.gguf", expect=409, model_id="tale", pool_id="pool-2",
                   checksum=CHECKSUM)["error"]["code"] == "CONFLICT"


# Without a checksum the source says what it has, and a peer gives the bytes: of a hub, one request for the list, none for the file.
def test_the_source_says_what_and_a_peer_gives_it(tmp_path, server):
    with ModelServer() as storage:
        nodes = TwoNodes(tmp_path)
        nodes.first.settings["models.pull.hub_url"] = server.url
        Hub(server, storage, "org/tales", {"tale-Q8_0.gguf": DATA})
        with nodes:
            assert nodes.pull_to_first("hf:org/tales")["checksum"] == CHECKSUM
            storage.requests.clear()
            assert nodes.pull_to_second("hf:org/tales")["checksum"] == CHECKSUM
            assert storage.requests == []


# A model of several files, some of them below its directory, comes from a peer as it is there.
def test_a_peer_gives_a_directory(tmp_path, server):
    directory = tmp_path / "embed"
    write_embedding_model(directory)
    add_dense(directory)
    with ModelServer() as storage:
        nodes = TwoNodes(tmp_path)
        nodes.first.settings["models.pull.hub_url"] = server.url
        Hub(server, storage, "org/embed", files_of(directory))
        with nodes:
            checksum = nodes.pull_to_first("hf:org/embed")["checksum"]
            storage.requests.clear()
            assert nodes.pull_to_second("hf:org/embed", checksum=checksum)["checksum"] == checksum
            assert storage.requests == []
            assert files_of(nodes.caches[1] / checksum.removeprefix("sha256:")) == files_of(directory)


# A peer that has lost the model, gives other bytes or is gone costs nothing but a warning.
def test_a_peer_that_lies(nodes, server):
    server.add("/tale.gguf", DATA)
    nodes.pull_to_first(f"{server.url}/tale.gguf", checksum=CHECKSUM)
    file = nodes.caches[0] / SHA256 / "tale.gguf"
    wrong = file.with_name("wrong")
    wrong.write_bytes(DATA[:-1] + bytes([DATA[-1] ^ 1]))
    os.replace(wrong, file)
    assert nodes.pull_to_second(f"{server.url}/tale.gguf", checksum=CHECKSUM)["checksum"] == CHECKSUM
    nodes.second.wait_lines("pool-managerd", '"peer_failed"', "UNTRUSTED_ARTIFACT")
    assert (nodes.caches[1] / SHA256 / "tale.gguf").read_bytes() == DATA
    remove(nodes.first, "tale-2")
    shutil.rmtree(nodes.caches[0] / SHA256)
    assert nodes.pull_to_second(f"{server.url}/tale.gguf", checksum=CHECKSUM)["checksum"] == CHECKSUM


# What opens a model to another pool: a grant, for that model, for a while. Neither no grant nor another's does, and no name leads out.
def test_grants(nodes, server):
    server.add("/tale.gguf", DATA)
    nodes.pull_to_first(f"{server.url}/tale.gguf", checksum=CHECKSUM)
    path = f"/v2/models/{SHA256}/files"

    def asked(path, grant=None, **headers):
        if grant is not None:
            headers["X-Model-Grant"] = grant
        return request(nodes.first.pool_url, path=path, headers=headers)

    token = "another-secret"
    for grant in (None, "", "9999999999.", "9999999999." + "0" * 64, token):
        assert asked(path, grant).code == "FORBIDDEN"
        assert asked(f"{path}/tale.gguf", grant, Range="bytes=0-0").code == "FORBIDDEN"
    control = control_token(nodes.first)
    grant = grant_for(control, CHECKSUM, 9999999999)
    assert asked(path, grant).json == {"checksum": CHECKSUM, "files": [{"name": "tale.gguf", "size_bytes": len(DATA)}]}
    part = asked(f"{path}/tale.gguf", grant, Range=f"bytes=7-{len(DATA) - 1}")
    assert part.status == 206 and part.body == DATA[7:]
    assert part.headers["content-range"] == f"bytes 7-{len(DATA) - 1}/{len(DATA)}"
    for wrong in ("bytes=0-", "bytes=5-4", f"bytes=0-{len(DATA)}", "bytes=-5", "bytes=a-b", "lines=0-1", "bytes=0-0,2-3"):
        assert asked(f"{path}/tale.gguf", grant, Range=wrong).code == "INVALID_PARAMS", wrong
    assert asked(f"{path}/tale.gguf", grant).code == "INVALID_PARAMS"
    for name in ("..%2F..%2Fpool_credential", "%2E%2E", ".partial", "none.gguf"):
        assert asked(f"{path}/{name}", grant, Range="bytes=0-0").status in (400, 404), name
    assert asked(f"/v2/models/{'0' * 64}/files", grant).code == "FORBIDDEN"  # it is of another model
    assert asked(path, grant_for(control, CHECKSUM, 1)).code == "FORBIDDEN"  # its time is over
    assert token not in nodes.first.log("pool-managerd") and grant not in nodes.first.log("pool-managerd")


def control_token(stack):
    """As src/config/pool_credential derives it; orchestratord keeps it beside the pool's name."""
    lines = (stack.dir / "pool_credentials").read_text().splitlines()
    return next(line.split()[2] for line in lines if line.startswith("pool-1 "))


def grant_for(control, checksum, until):
    return f"{until}.{hmac.digest(control.encode(), f'model {checksum} until {until}'.encode(), 'sha256').hex()}"


# What is put into a watched directory can be named once it is whole, and its name goes with its file.
def test_a_watched_directory(tmp_path):
    watched = tmp_path / "models"
    watched.mkdir()
    (watched / "broken.gguf").write_bytes(b"GGUF, but no model")
    with Stack({"models.cache_dir": str(tmp_path / "cache"), "models.watched_directories": str(watched)}) as own:
        shutil.copy(MODEL, watched / "incoming")
        os.rename(watched / "incoming", watched / "My Tale.gguf")
        model = wait_for("the file to have a name", lambda: model_of(own, "My_Tale"))
        assert model["checksum"] == CHECKSUM and model["pool_id"] == "pool-1"
        assert own.wait_terminal(own.submit(model="My_Tale", max_tokens=2)["job_id"])["status"] == "completed"
        own.wait_lines("pool-managerd", '"watched_file_refused"')
        assert model_of(own, "broken") is None
        shutil.copy(MODEL_F16, watched / "incoming")
        os.replace(watched / "incoming", watched / "My Tale.gguf")  # the name stands for what lies there now
        wait_for("the name to be of the new file", lambda: model_of(own, "My_Tale")["checksum"] == CHECKSUM_F16)
        done = own.wait_terminal(own.submit(model="My_Tale", max_tokens=2)["job_id"])
        assert done["status"] == "completed" and done["receipt"]["model_digest"] == CHECKSUM_F16
        os.remove(watched / "My Tale.gguf")
        wait_for("the name to go", lambda: model_of(own, "My_Tale") is None)


# A pool that starts anew has looked at nothing yet: what the operator has set of its models stays.
def test_marks_of_a_watched_model_outlive_its_pool_manager(tmp_path):
    watched = tmp_path / "models"
    watched.mkdir()
    shutil.copy(MODEL, watched / "tale.gguf")
    settings = {"models.cache_dir": str(tmp_path / "cache"), "models.watched_directories": str(watched),
                "orchestratord.heartbeat.interval_ms": "200", "pool-managerd.heartbeat_interval_ms": "200"}
    with Stack(settings) as own:
        wait_for("the file to have a name", lambda: model_of(own, "tale"))
        changed = own.request("POST", "/v2/catalog/models/tale/state", {"lifecycle_state": "Retired", "pinned": True})
        assert changed.status == 200, changed.body
        before = model_of(own, "tale")
        own.pool.kill()
        own.pool.wait()
        own.start_pool()
        shutil.copy(MODEL_F16, watched / "late.gguf")
        wait_for("a later file to have a name", lambda: model_of(own, "late"))
        assert model_of(own, "tale") == before
        os.remove(watched / "tale.gguf")
        wait_for("the name to go", lambda: model_of(own, "tale") is None)


# ORCH-3504, ORCH-3821, OC-POOL-3001, OC-POOL-3002, OC-POOL-3003: not ready before every model of the list has a worker; why, and how often it was tried,
# is said; attempts go on until what was missing is there.
def test_preloads(tmp_path):
    late = tmp_path / "late.gguf"
    settings = {"models.preload": f"demo,file:{late}", "models.allowed_roots": f"{MODEL.parent},{tmp_path}",
                "orchestratord.limits.workers_per_gpu": "2"}
    with Stack(settings) as own:

        def health():
            return own.request("GET", "/v2/health").json

        def preloads():
            return {one["model"]: one for one in health()["preloads"]}

        first = wait_for("the first preload", lambda: preloads()["demo"]["state"] == "ready" and preloads()["demo"])
        assert "error_code" not in first
        tried = wait_for("a second attempt", lambda: preloads()[f"file:{late}"]["attempts"] >= 2 and preloads()[f"file:{late}"])
        assert tried["error_code"] == "MODEL_NOT_FOUND" or "error_code" not in tried
        told = health()
        assert told["ready"] is False and told["status"] == "degraded" and any("models.preload" in r["human"] for r in told["reasons"])
        pool = own.request("GET", "/v2/pools/pool-1/health").json
        assert pool["live"] and pool["ready"] is False and pool["last_error"]
        assert own.wait_terminal(own.submit(max_tokens=2)["job_id"])["status"] == "completed"  # others are served
        shutil.copy(MODEL_F16, tmp_path / "incoming")
        os.rename(tmp_path / "incoming", late)
        wait_for("the other preload", lambda: health()["ready"])
        assert len([w for w in own.workers() if w["status"] in ("ready", "busy")]) == 2
        assert own.request("GET", "/v2/pools/pool-1/health").json["ready"] is True
        metrics = own.request("GET", "/metrics").body.decode()
        assert 'orchd_preloads_total{component="orchestratord",outcome="success"} 2' in metrics
        assert 'orchd_preloads_total{component="orchestratord",outcome="failure"}' in metrics


# POOL-2033: while one model runs, the one that waits for the device is read into memory; the pool says so, and lets go of it when told.
def test_a_model_that_waits_is_staged(tmp_path):
    with Stack({"devices.cpu_memory_bytes": str(40 << 20), "pool-managerd.staging_bytes_max": str(64 << 20)}) as own:

        def staged():
            return request(own.pool_url, path="/v2/state").json["staged_models"]

        running = own.submit_held(max_tokens=64)
        waiting = own.submit(model="demo-f16", max_tokens=2)["job_id"]
        model = wait_for("the model to be staged", lambda: [m for m in staged() if m["bytes"] == m["bytes_total"]])[0]
        assert model["model_ref"] == f"file:{MODEL_F16}" and model["bytes"] == MODEL_F16.stat().st_size
        metrics = request(own.pool_url, path="/metrics").body.decode()
        assert f"pool_mgr_staged_bytes{{component=\"pool-managerd\",pool_id=\"pool-1\"}} {model['bytes']}" in metrics
        own.gate.open()
        assert own.wait_terminal(running)["status"] == "completed"
        assert own.wait_terminal(waiting)["status"] == "completed"
        gone = request(own.pool_url, "DELETE", "/v2/models/staged", {"model_ref": model["model_ref"]})
        assert gone.status == 200 and staged() == []
        for ref, code in (("file:/nowhere.gguf", "MODEL_NOT_FOUND"), ("demo", "MODEL_NOT_FOUND")):
            assert request(own.pool_url, "POST", "/v2/models/staged", {"model_ref": ref}).code == code
    with Stack({"pool-managerd.staging_bytes_max": "1000"}) as own:
        refused = request(own.pool_url, "POST", "/v2/models/staged", {"model_ref": f"file:{MODEL}"})
        assert refused.code == "CONFLICT" and refused.envelope["details"]["available_bytes"] == 1000
