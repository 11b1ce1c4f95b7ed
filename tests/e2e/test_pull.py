"""Models that are fetched while the stack runs, from servers of this machine that do what servers do.

LLORCH_PULL_KILLS is the number of pulls that are killed at a random byte (3; the nightly run has 200).
"""

import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request

import pytest

from embedding_model import DENSE_DIMENSIONS, add_dense, files_of, write_embedding_model
from model_server import COMMIT, Hub, ModelServer, add_package, wheel
from stack import ALIAS, BIN, HANG_S, MODEL, MODEL_F16, Stack, clean_env, wait_for

DATA = MODEL.read_bytes()
DATA_F16 = MODEL_F16.read_bytes()
SHA256 = hashlib.sha256(DATA).hexdigest()
MIB = 1 << 20
KILLS = int(os.environ.get("LLORCH_PULL_KILLS", "3"))


def settings_for(cache, **more):
    return {"models.cache_dir": str(cache), "models.pull.allowed_hosts": "127.0.0.1,localhost", "models.pull.attempts_max": "3",
            **{f"models.pull.{key}": str(value) for key, value in more.items()}}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def server():
    with ModelServer() as one:
        yield one


@pytest.fixture(scope="module")
def stack(cache):
    """Of tests that remove what they pull."""
    with Stack(settings_for(cache)) as running:
        yield running


def ask_for(stack, ref, expect=202, **fields):
    response = stack.request("POST", "/v2/catalog/models", {"model_ref": ref, **fields})
    assert response.status == expect, response.body
    return response.json


def model_of(stack, name):
    response = stack.request("GET", f"/v2/catalog/models/{name}")
    return response.json if response.status == 200 else None


def ended(stack, name):
    """The model once its pull is over, whichever way."""

    def over():
        model = model_of(stack, name)
        assert model, f"{name} is gone"
        return model if "pull" not in model or model["pull"]["state"] in ("failed", "cancelled") else None

    return wait_for(f"the pull of {name}", over)


def pull(stack, ref, name, **fields):
    ask_for(stack, ref, model_id=name, **fields)
    return ended(stack, name)


def come(stack, name):
    return model_of(stack, name)["pull"]["bytes_done"]


def asked_bytes(server, path):
    """That any request named, but those for one byte. A process that was killed may have sent requests that are read after its
    death: they name bytes that its successor asks for as well."""
    ranges = [headers["Range"].removeprefix("bytes=").split("-") for headers in server.asked(path)]
    total = reached = 0
    for begin, end in sorted((int(begin), int(end) + 1) for begin, end in ranges if end != "0"):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def remove(stack, name):
    response = stack.request("DELETE", f"/v2/catalog/models/{name}")
    assert response.status == 200, response.body
    return response.json


def published(cache):
    return sorted(str(p.relative_to(cache)) for p in cache.glob("*/*") if ".partial" not in p.parts)


def partial(cache):
    return list((cache / ".partial").iterdir()) if (cache / ".partial").exists() else []


# SYS-2.1.1, ORCH-3060, AAPI-15032: a name for a model elsewhere, usable as soon as the bytes are here and verified.
def test_a_model_is_pulled_used_and_removed(stack, cache, server):
    server.add("/models/tale.gguf", DATA)
    model = pull(stack, f"{server.url}/models/tale.gguf?download=true", "tale", checksum=f"sha256:{SHA256}")
    assert model["checksum"] == f"sha256:{SHA256}" and model["size_bytes"] == len(DATA)
    assert model["model_ref"] == f"file:{cache}/{SHA256}/tale.gguf" and "?" not in model["source"]
    assert partial(cache) == []

    done = stack.wait_terminal(stack.submit(model="tale", max_tokens=4)["job_id"])
    assert done["status"] == "completed" and done["receipt"]["model_digest"] == f"sha256:{SHA256}"
    assert "tale" in [m["id"] for m in stack.request("GET", "/v1/models").json["data"]]

    assert remove(stack, "tale") == {"removed": ["tale"], "bytes_freed": len(DATA)}
    assert published(cache) == [] and model_of(stack, "tale") is None
    assert stack.submit(model="tale", expect=404)["error"]["code"] == "MODEL_NOT_FOUND"


# ORCH-3037#kept: names and what stands behind them survive both daemons.
def test_names_survive_restarts(tmp_path, server):
    server.add("/tale.gguf", DATA)
    with Stack(settings_for(tmp_path / "cache")) as own:
        before = pull(own, f"{server.url}/tale.gguf", "tale")
        own.stop_daemons()
        own.start()
        assert model_of(own, "tale") == before
        assert own.wait_terminal(own.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"


# SYS-2.1.2#revision, SYS-2.1.2#hf: a revision becomes a commit and a file; a token goes to the hub alone; a list of files has pages.
def test_the_hub(tmp_path, server):
    token = tmp_path / "token"
    token.write_text("hf_secret\n")
    token.chmod(0o600)
    files = {"README.md": b"words", "tale-Q4_0.gguf": DATA_F16, "tale-Q8_0.gguf": DATA, "mmproj-f16.gguf": b"x" * 100,
             "other.bin": b"y"}
    with ModelServer() as storage, Stack(settings_for(tmp_path / "cache", hub_url=server.url, hub_token_file=token)) as own:
        Hub(server, storage, "org/tales-GGUF", files)
        model = pull(own, "hf:org/tales-GGUF:q8_0", "tale")
        assert model["checksum"] == f"sha256:{SHA256}"
        kept = json.loads((own.dir / "models.json").read_text())["models"][0]
        assert kept["pinned_source"] == f"hf:org/tales-GGUF@{COMMIT}::file=tale-Q8_0.gguf"
        assert all(h["Authorization"] == "Bearer hf_secret" for _, h in server.requests)
        assert storage.requests and all("Authorization" not in h for _, h in storage.requests)
        assert "hf_secret" not in own.log("pool-managerd") and "signature=once" not in own.log("pool-managerd")

        assert ended(own, ask_for(own, "hf:org/tales-GGUF@main::file=tale-Q4_0.gguf")["model_id"])["size_bytes"] == len(DATA_F16)
        failed = pull(own, "hf:org/tales-GGUF:q3_k", "none")["pull"]
        assert failed["error_code"] == "MODEL_NOT_FOUND" and "tale-Q8_0.gguf" in failed["error_message"]

        # A file that changed under its commit is not the one that the list named.
        storage.add("/blobs/tale-Q8_0.gguf", DATA[:-1] + b"!")
        assert remove(own, "tale")["bytes_freed"] == len(DATA)
        assert pull(own, f"hf:org/tales-GGUF@{COMMIT}:q8_0", "tale")["pull"]["error_code"] == "UNTRUSTED_ARTIFACT"


# SYS-2.1.2#hf: of a repository that is a directory comes all that the engine reads, also below it: how an embedding is pooled and
# the layer behind that; equal files are fetched as what they are, and nothing else comes.
def test_a_repository_with_subdirectories(tmp_path, server):
    directory = tmp_path / "models/embed"
    write_embedding_model(directory)
    add_dense(directory)
    here = files_of(directory)
    more = {"README.md": b"words", "modules.json": b"[]", "onnx/model.safetensors": b"x", "2_Dense/README.md": b"y",
            "special_tokens_map.json": b"{}", "generation_config.json": b"{}", "additional_chat_templates/tools.jinja": b"{{ messages }}"}
    (directory / "additional_chat_templates").mkdir()
    for name in ("special_tokens_map.json", "generation_config.json", "additional_chat_templates/tools.jinja"):
        here[name] = more[name]
        (directory / name).write_bytes(more[name])
    settings = settings_for(tmp_path / "cache", hub_url=server.url)
    settings |= {"models.aliases.local": f"file:{directory}", "models.allowed_roots": f"{MODEL.parent},{directory.parent}"}
    with ModelServer() as storage, Stack(settings) as own:
        Hub(server, storage, "org/embed", {**here, **more})
        model = pull(own, "hf:org/embed", "embed")
        assert files_of(pathlib.Path(model["model_ref"].removeprefix("file:"))) == here, model
        assert model["size_bytes"] == sum(map(len, here.values()))

        def vector(name):
            body = {"model": name, "input": ["There was a fox."]}
            answer = wait_for("the model to be known", lambda: (a := own.request("POST", "/v1/embeddings", body)).status != 503 and a)
            assert answer.status == 200, answer.body
            return answer.json["data"][0]["embedding"]

        assert len(vector("embed")) == DENSE_DIMENSIONS and vector("embed") == vector("local")
        assert remove(own, "embed")["bytes_freed"] == model["size_bytes"] and published(tmp_path / "cache") == []


# ORCH-3097: bytes that are not those that were asked for become no model, and leave nothing behind.
def test_another_checksum(stack, cache, server):
    server.add("/tale.gguf", DATA)
    model = pull(stack, f"{server.url}/tale.gguf", "tale", checksum="sha256:" + "0" * 64)
    assert model["pull"]["error_code"] == "UNTRUSTED_ARTIFACT" and model["model_ref"] == ""
    assert published(cache) == [] and partial(cache) == []
    failed = 'catalog_verifications_total{engine="llama-orch",reason="checksum",result="fail"}'
    assert failed in stack.request("GET", "/metrics").body.decode()
    assert "tale" not in [m["model_id"] for m in stack.request("GET", "/v2/catalog/models").json["models"]]


# ORCH-3037#signature: the signature that stands beside a file is kept with the model and named; a missing one is warned of.
def test_signatures(stack, cache, server):
    server.add("/plain.gguf", DATA)
    assert pull(stack, f"{server.url}/plain.gguf", "plain")["signature"] == ""
    assert '"signature_missing"' in stack.log("pool-managerd")
    remove(stack, "plain")
    words = b"untrusted comment: signature\nRUQ=\n"
    server.add("/tale.gguf", DATA)
    server.add("/tale.gguf.minisig", words)
    model = pull(stack, f"{server.url}/tale.gguf", "tale")
    assert model["signature"] == "tale.gguf.minisig" and model["checksum"] == f"sha256:{SHA256}"
    assert (cache / SHA256 / "tale.gguf.minisig").read_bytes() == words
    assert stack.wait_terminal(stack.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"
    assert remove(stack, "tale")["bytes_freed"] == len(DATA) + len(words)
    assert published(cache) == []


# ORCH-3705: what is no model is refused before anybody can name it.
def test_what_is_no_model(stack, cache, server):
    server.add("/tale.gguf", b"GGUF" + bytes(4 * MIB))
    assert pull(stack, f"{server.url}/tale.gguf", "tale")["pull"]["error_code"] == "MODEL_INCOMPATIBLE"
    assert published(cache) == [] and partial(cache) == []


# ORCH-3435: killed at any byte, the pool goes on where it was and registers the model once, whole.
def test_kills(tmp_path, server):
    item = server.add("/tale.gguf", DATA_F16)
    cache = tmp_path / "cache"
    with Stack(settings_for(cache, connections=2)) as own:
        item.hold_after = 0
        ask_for(own, f"{server.url}/tale.gguf", model_id="tale")
        done = 0
        for kill in range(2):
            item.hold_after = server.bytes_sent + 4 * MIB + 4321 * kill
            item.go_on.set()
            item.go_on = threading.Event()
            wanted = done + MIB
            done = wait_for("bytes to come", lambda: come(own, "tale") >= wanted and come(own, "tale"))
            assert model_of(own, "tale")["model_ref"] == "" and published(cache) == []
            own.pool.send_signal(signal.SIGKILL)
            own.pool.wait(HANG_S)
            server.requests.clear()
            own.start_pool()
            wait_for("the pool to ask again", lambda: len(server.asked("/tale.gguf")) > 2)
        item.hold_after = None
        item.go_on.set()
        model = ended(own, "tale")
        assert model["checksum"] == "sha256:" + hashlib.sha256(DATA_F16).hexdigest()
        # Only what had come of the two chunks under way is fetched again.
        assert asked_bytes(server, "/tale.gguf") <= len(DATA_F16) - (done - 2 * MIB)
        assert own.wait_terminal(own.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"


# ORCH-3435: wherever a pull is killed, nothing half is published, and the next process ends with the same bytes.
def test_kills_anywhere(tmp_path, server):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    item = server.add("/tale.gguf", DATA)
    cache = tmp_path / "cache"
    with Stack(settings_for(cache)) as own:
        for _ in range(KILLS):
            item.go_on = threading.Event()
            item.hold_after = server.bytes_sent + rng.randrange(len(DATA))
            ask_for(own, f"{server.url}/tale.gguf", model_id="tale")
            wait_for("bytes to come", lambda: server.bytes_sent >= item.hold_after)
            own.pool.send_signal(signal.SIGKILL)
            own.pool.wait(HANG_S)
            assert all((cache / name).read_bytes() == DATA for name in published(cache))
            item.hold_after = None
            item.go_on.set()
            own.start_pool()
            assert ended(own, "tale")["checksum"] == f"sha256:{SHA256}"
            assert partial(cache) == [] and remove(own, "tale")["bytes_freed"] == len(DATA)


# ORCH-3091#said: an orchestrator that dies meanwhile goes on with the pull; who asks for the model is told to wait.
def test_the_orchestrator_dies(tmp_path, server):
    item = server.add("/tale.gguf", DATA)
    item.hold_after = MIB
    with Stack(settings_for(tmp_path / "cache")) as own:
        ask_for(own, f"{server.url}/tale.gguf", model_id="tale")
        wait_for("bytes to come", lambda: server.bytes_sent >= MIB)
        refused = own.request("POST", "/v2/tasks", {"model": "tale", "prompt": "Once", "max_tokens": 2})
        assert refused.status == 503 and refused.code == "POOL_UNREADY"
        own.orchestrator.send_signal(signal.SIGKILL)
        own.orchestrator.wait(HANG_S)
        own.start_orchestrator()
        item.go_on.set()
        assert ended(own, "tale")["size_bytes"] == len(DATA)


# ORCH-3435: ten ask for one model at once; it is fetched once, and all get it.
def test_ten_ask_at_once(stack, cache, server):
    item = server.add("/tale.gguf", DATA)
    server.add("/mirror/tale.gguf", DATA)
    item.hold_after = 2 * MIB
    checksum = f"sha256:{SHA256}"
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask_for(stack, f"{server.url}/tale.gguf", model_id="tale", checksum=checksum)))
               for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 10
    # The same bytes under another name and from elsewhere wait for those that are under way.
    ask_for(stack, f"{server.url}/mirror/tale.gguf", model_id="copy", checksum=checksum)
    item.go_on.set()
    assert ended(stack, "tale")["checksum"] == checksum and ended(stack, "copy")["checksum"] == checksum
    assert server.bytes_sent <= len(DATA) + 2  # and a byte of each probe
    assert remove(stack, "tale")["bytes_freed"] == 0  # the other name has the file
    assert remove(stack, "copy")["bytes_freed"] == len(DATA)
    assert published(cache) == []


# Two names wait for one pull: whoever removes one of them ends nothing for the other.
def test_one_name_less(stack, server):
    item = server.add("/tale.gguf", DATA)
    item.hold_after = MIB
    for name in ("tale", "copy"):
        ask_for(stack, f"{server.url}/tale.gguf", model_id=name)
        wait_for("the pool to say how far it is", lambda name=name: come(stack, name) > 0)
    assert remove(stack, "copy")["bytes_freed"] == 0
    item.go_on.set()
    assert ended(stack, "tale")["checksum"] == f"sha256:{SHA256}"
    assert remove(stack, "tale")["bytes_freed"] == len(DATA)


def test_servers_that_are_busy(stack, server):
    item = server.add("/tale.gguf", DATA)
    item.failures = [(503, {}), (429, {"Retry-After": "0"})]
    assert pull(stack, f"{server.url}/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
    remove(stack, "tale")
    item.failures = [(503, {"Retry-After": "0"})] * 3
    failed = pull(stack, f"{server.url}/tale.gguf", "tale")["pull"]
    assert failed["error_code"] == "UNREACHABLE" and "503" in failed["error_message"]


def test_servers_without_ranges_or_sense(stack, cache, server):
    item = server.add("/tale.gguf", DATA)
    item.takes_ranges = False
    assert pull(stack, f"{server.url}/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
    remove(stack, "tale")
    server.redirects["/loop"] = "/loop"
    failed = pull(stack, f"{server.url}/loop", "tale")["pull"]
    assert failed["error_code"] == "MODEL_NOT_FOUND" and "redirect" in failed["error_message"]
    server.redirects["/out"] = "file:///etc/passwd"
    assert pull(stack, f"{server.url}/out", "tale")["pull"]["state"] == "failed"
    assert published(cache) == []


# A file that changes between two requests is not put together from both.
def test_a_file_that_changes(stack, cache, server):
    item = server.add("/tale.gguf", DATA_F16)
    item.hold_after = MIB
    ask_for(stack, f"{server.url}/tale.gguf", model_id="tale")
    wait_for("bytes to come", lambda: server.bytes_sent >= MIB)
    server.add("/tale.gguf", DATA + bytes(len(DATA_F16) - len(DATA)))
    item.go_on.set()
    model = ended(stack, "tale")
    # Requests that were under way may have been all of it: then it is the old file, whole.
    assert model.get("checksum") == "sha256:" + hashlib.sha256(DATA_F16).hexdigest() or \
        model["pull"]["error_code"] in ("CONFLICT", "MODEL_INCOMPATIBLE")
    if "checksum" in model:
        remove(stack, "tale")


def test_a_server_that_dawdles(tmp_path, server):
    item = server.add("/tale.gguf", DATA)
    item.bytes_per_write, item.pause_s = 1, 0.5
    with Stack(settings_for(tmp_path / "cache", stall_timeout_ms=1000, attempts_max=2)) as own:
        failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
        assert failed["error_code"] == "TIMEOUT", failed


# ORCH-3080 ORCH-3206: what may leave this machine is the operator's to say, and one switch ends all of it.
def test_the_policy(tmp_path, server):
    server.add("/tale.gguf", DATA)
    with Stack({**settings_for(tmp_path / "cache"), "models.pull.policy": "off"}) as own:
        failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
        assert failed["error_code"] == "FORBIDDEN" and "policy" in failed["error_message"]
    with Stack({"models.cache_dir": str(tmp_path / "cache")}) as own:  # no host is named
        for url in (f"{server.url}/tale.gguf", f"https://{server.host}/tale.gguf", "https://169.254.169.254/latest/meta-data"):
            failed = pull(own, url, "tale")["pull"]
            assert failed["error_code"] == "FORBIDDEN", failed
    assert server.requests == []


def test_certificates(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    with ModelServer(certificate=(cert, key)) as server:
        server.add("/tale.gguf", DATA)
        with Stack(settings_for(tmp_path / "cache")) as own:
            failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
            assert failed["error_code"] == "UNREACHABLE" and "ca_file" in failed["error_message"]
        with Stack(settings_for(tmp_path / "cache", ca_file=cert)) as own:
            assert pull(own, f"{server.url}/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"


# OC-CONFIG-6026: a model inside of a package, by reference, into its directory: the index's checksum is of the wheel, ours of the model.
def test_packages(tmp_path, server):
    add_package(server, "some-tale", "1.2", wheel("some_tale/tale.Q8_0.gguf", DATA))
    add_package(server, "bad-tale", "1", wheel("../../../evil.gguf", DATA))
    add_package(server, "no-tale", "1", wheel("words.txt", DATA))
    cache = tmp_path / "cache"
    with Stack(settings_for(cache, pypi_url=f"{server.url}/simple")) as own:
        assert pull(own, "pypi:Some_Tale@1.2", "tale", checksum=f"sha256:{SHA256}")["checksum"] == f"sha256:{SHA256}"
        assert published(cache) == [f"{SHA256}/tale.Q8_0.gguf"]
        remove(own, "tale")
        # No name of a server leads out of the cache.
        assert pull(own, "pypi:bad-tale", "tale")["model_ref"] == f"file:{cache}/{SHA256}/evil.gguf"
        assert pull(own, "pypi:no-tale", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"


def test_packages_that_lie(tmp_path, server):
    bomb = bytearray(wheel("bomb.gguf", bytes(64 * MIB)))
    at = bomb.rindex(b"PK\x01\x02", 0, bomb.rindex(b"PK\x05\x06"))
    bomb[at + 24 : at + 28] = (1000).to_bytes(4, "little")  # says that it is small
    add_package(server, "bomb", "1", bytes(bomb))
    with Stack(settings_for(tmp_path / "cache", pypi_url=f"{server.url}/simple")) as own:
        assert pull(own, "pypi:bomb", "bomb")["pull"]["error_code"] == "CORRUPT_FILE"
        assert published(tmp_path / "cache") == [] and partial(tmp_path / "cache") == []


# Registries that speak the OCI protocol: a token that anybody gets, a manifest, a layer by its digest.
def test_registries(stack, cache, server):
    blob, manifest = f"/v2/library/tale/blobs/sha256:{SHA256}", "/v2/library/tale/manifests/5m"
    server.add(blob, DATA)
    for path in (blob, manifest):
        server.locked[path] = f'Bearer realm="{server.url}/token",service="models",scope="repository:library/tale:pull"'
    server.add_json("/token?service=models&scope=repository%3Alibrary%2Ftale%3Apull", {"token": "anybody"})
    server.add_json(manifest, {"schemaVersion": 2, "layers": [
        {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:" + "1" * 64, "size": 1},
        {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{SHA256}", "size": len(DATA)}]})
    model = pull(stack, f"oci://{server.host}/library/tale:5m", "tale")
    assert model["checksum"] == f"sha256:{SHA256}"
    assert published(cache) == [f"{SHA256}/tale.gguf"]
    remove(stack, "tale")
    server.locked[manifest] = 'Basic realm="models"'
    assert pull(stack, f"oci://{server.host}/library/tale:5m", "tale")["pull"]["error_code"] == "FORBIDDEN"


# The same with the registry that others run.
def test_a_real_registry(tmp_path):
    program = shutil.which("docker-registry")
    if not program:
        pytest.skip("docker-registry is not installed")
    port = free_port()
    host = f"127.0.0.1:{port}"
    config = tmp_path / "config.yml"
    config.write_text(json.dumps({"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
                                  "http": {"addr": host}}))

    def send(method, url, data=b"", content_type="application/octet-stream"):
        wanted = urllib.request.Request(url, data, {"Content-Type": content_type}, method=method)
        with urllib.request.urlopen(wanted, timeout=HANG_S) as response:
            return response.headers

    def push(data):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        upload = send("POST", f"http://{host}/v2/org/tale/blobs/uploads/")["Location"]
        send("PUT", f"{upload}{'&' if '?' in upload else '?'}digest={digest}", data)
        return digest

    with subprocess.Popen([program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as registry:
        try:
            wait_for("the registry", lambda: listens(port))
            kind = "application/vnd.oci.image.manifest.v1+json"
            layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": push(DATA), "size": len(DATA)}]
            manifest = {"schemaVersion": 2, "mediaType": kind, "layers": layers,
                        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": push(b"{}"), "size": 2}}
            pinned = send("PUT", f"http://{host}/v2/org/tale/manifests/5m", json.dumps(manifest).encode(), kind)["Docker-Content-Digest"]
            with Stack(settings_for(tmp_path / "cache")) as own:
                assert pull(own, f"oci:{host}/org/tale:5m", "tale")["checksum"] == f"sha256:{SHA256}"
                kept = json.loads((own.dir / "models.json").read_text())["models"][0]
                assert kept["pinned_source"] == f"oci:{host}/org/tale@{pinned}"
                assert pull(own, f"oci:{host}/org/tale@{pinned}", "same")["checksum"] == f"sha256:{SHA256}"
                assert pull(own, f"oci:{host}/org/tale:none", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"
        finally:
            registry.terminate()


def test_s3_requests_are_signed(tmp_path, server):
    keys = tmp_path / "keys"
    keys.write_text("AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    keys.chmod(0o600)
    server.add("/bucket/models/tale.gguf", DATA)
    with Stack(settings_for(tmp_path / "cache", s3_url=server.url, s3_key_file=keys)) as own:
        assert pull(own, "s3://bucket/models/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
        for path, headers in server.requests:
            assert path.rpartition("&X-Amz-Signature=")[2] == s3_signature(path, headers["Host"])
        assert "X-Amz" not in own.log("pool-managerd")


# The same with a server that others wrote: `pip install 'moto[server]'` brings one.
def test_a_real_s3_server(tmp_path):
    program = os.environ.get("LLORCH_MOTO_SERVER") or shutil.which("moto_server")
    if not program:
        pytest.skip("moto_server is not installed (LLORCH_MOTO_SERVER names it)")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    keys = tmp_path / "keys"
    keys.write_text("AKIDEXAMPLE wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    keys.chmod(0o600)
    with subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as s3:
        try:
            wait_for("the S3 server", lambda: listens(port))
            put(f"{url}/bucket")
            put(f"{url}/bucket/models/tale.gguf", DATA)
            with Stack(settings_for(tmp_path / "cache", s3_url=url, s3_key_file=keys)) as own:
                assert pull(own, "s3://bucket/models/tale.gguf", "tale")["checksum"] == f"sha256:{SHA256}"
                kept = json.loads((own.dir / "models.json").read_text())["models"][0]
                assert kept["pinned_source"] == "s3://bucket/models/tale.gguf"
                assert pull(own, "s3://bucket/models/none.gguf", "none")["pull"]["error_code"] == "MODEL_NOT_FOUND"
        finally:
            s3.terminate()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def put(url, data=b""):
    wanted = urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"}, method="PUT")
    with urllib.request.urlopen(wanted, timeout=HANG_S):
        pass


def s3_signature(path, host):
    """AWS Signature Version 4 of a request whose signature is in its query."""
    location, _, query = path.partition("?")
    signed = query.partition("&X-Amz-Signature=")[0]
    fields = dict(part.split("=") for part in signed.split("&"))
    stamp = fields["X-Amz-Date"]
    scope = f"{stamp[:8]}/us-east-1/s3/aws4_request"
    assert fields["X-Amz-Credential"] == "AKIDEXAMPLE%2F" + scope.replace("/", "%2F")
    canonical = f"GET\n{location}\n{signed}\nhost:{host}\n\nhost\nUNSIGNED-PAYLOAD"
    key = b"AWS4wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    for part in (stamp[:8], "us-east-1", "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return hmac.digest(key, text.encode(), "sha256").hex()


# ORCH-3031#states, ORCH-3031#metric, ORCH-3031#unload, ORCH-3072, ORCH-1081: there are two states; a retired model takes no jobs and its workers leave, which the metrics
# show; garbage collection leaves what is pinned, loaded or young.
def test_states_and_collection(stack, cache, server):
    server.add("/a.gguf", DATA)
    server.add("/b.gguf", DATA_F16)
    pull(stack, f"{server.url}/a.gguf", "a")
    pull(stack, f"{server.url}/b.gguf", "b")

    def state(name, **fields):
        assert stack.request("POST", f"/v2/catalog/models/{name}/state", fields).status == 200

    def workers():
        return [w for w in stack.workers() if w["model_digest"] == f"sha256:{SHA256}"]

    def metrics():
        return stack.request("GET", "/metrics").body.decode()

    assert stack.request("POST", "/v2/catalog/models/a/state", {"lifecycle_state": "Sleeping"}).status == 400
    stack.wait_terminal(stack.submit(model="a", max_tokens=2)["job_id"])
    assert workers() and 'model_state{model_id="a",state="Active"} 1' in metrics()
    state("a", lifecycle_state="Retired")
    assert 'model_state{model_id="a",state="Retired"} 1' in metrics() and 'model_state{model_id="a",state="Active"}' not in metrics()
    wait_for("its workers to leave", lambda: not workers())
    assert stack.submit(model="a", expect=409)["error"]["code"] == "MODEL_DEPRECATED"
    state("a", lifecycle_state="Active", pinned=True)

    def collect(**fields):
        response = stack.request("POST", "/v2/catalog/gc", fields)
        assert response.status == 200, response.body
        return response.json["removed"]

    assert collect(unused_ms=86_400_000) == []
    assert collect(unused_ms=0) == ["b"]
    assert published(cache) == [f"{SHA256}/a.gguf"]
    state("a", pinned=False)
    stack.wait_terminal(stack.submit(model="a", max_tokens=2)["job_id"])
    assert collect(bytes_max=0) == []  # a worker has it loaded
    remove(stack, "a")


# The Ollama API's way to the same: lines that say how far it is, and a removal.
def test_a_model_is_pulled_and_removed_by_the_ollama_api(tmp_path, stack, cache, server):
    def lines_of(response):
        assert response.status == 200 and response.headers["content-type"] == "application/x-ndjson", response.body
        return [json.loads(line) for line in response.body.decode().splitlines()]

    item = server.add("/tale.gguf", DATA)
    item.bytes_per_write, item.pause_s = len(DATA) // 8, 0.2  # slow enough to be seen
    lines = lines_of(stack.request("POST", "/api/pull", {"model": f"{server.url}/tale.gguf"}))
    coming = [line for line in lines if line["status"] == "pulling"]
    assert coming and coming[-1]["total"] == len(DATA) and [line["completed"] for line in coming] == sorted(line["completed"] for line in coming)
    assert lines[-1]["status"] == "success" and lines[-1]["llorch"]["checksum"] == f"sha256:{SHA256}"
    name = lines[-1]["llorch"]["model_id"]
    assert stack.wait_terminal(stack.submit(model=name, max_tokens=2)["job_id"])["status"] == "completed"
    item.pause_s = 0
    again = stack.request("POST", "/api/pull", {"name": f"{server.url}/tale.gguf", "stream": False})
    assert again.json["status"] == "success" and again.headers["content-type"] == "application/json"
    assert stack.request("POST", "/api/pull", {"model": f"{ALIAS}:latest"}).json["status"] == "success", "it is configured"
    assert stack.request("DELETE", "/api/delete", {"model": f"{name}:latest"}).json == {"removed": [name], "bytes_freed": len(DATA)}
    assert published(cache) == [] and stack.request("DELETE", "/api/delete", {"model": name}).status == 404
    assert stack.request("DELETE", "/api/delete", {"model": ALIAS}).code == "CONFLICT"
    server.add("/broken.gguf", b"no model at all" * 100)
    refused = stack.request("POST", "/api/pull", {"model": f"{server.url}/broken.gguf", "stream": False})
    assert refused.status >= 400 and refused.code in ("CORRUPT_FILE", "MODEL_INCOMPATIBLE"), refused.body
    told = stack.request("POST", "/api/pull", {"model": f"{server.url}/none.gguf"})
    assert told.code == "MODEL_NOT_FOUND" if told.status != 200 else lines_of(told)[-1]["llorch"]["code"] == "MODEL_NOT_FOUND"
    assert stack.request("POST", "/api/pull", {"model": "nobody-knows-this"}).status == 404
    assert stack.request("POST", "/api/pull", {"model": "x", "insecure": True}).status == 400


# A file of this machine gets a name, and keeps its bytes: another file at its place is refused.
def test_a_name_for_a_file(tmp_path, stack):
    root = pathlib.Path(stack.settings["models.cache_dir"]) / "mine"
    root.mkdir()
    file = root / "mine.gguf"
    shutil.copy(MODEL, file)
    made = ask_for(stack, f"file:{file}", expect=201, model_id="mine")
    assert made["checksum"] == f"sha256:{SHA256}"
    assert ask_for(stack, f"file:{file}", model_id="mine")["checksum"] == f"sha256:{SHA256}"
    assert ask_for(stack, "https://example.org/x.gguf", expect=409, model_id="mine")["error"]["code"] == "CONFLICT"
    assert ask_for(stack, "https://example.org/x.gguf", expect=409, model_id="demo")["error"]["code"] == "CONFLICT"
    assert ask_for(stack, f"file:{tmp_path}/x.gguf", expect=403, model_id="x")["error"]["code"] == "FORBIDDEN"
    shutil.copy(MODEL_F16, root / "new")
    os.replace(root / "new", file)

    def refused():  # what is known of a file is a few seconds old
        return stack.request("POST", "/v2/tasks", {"model": "mine", "prompt": "Once", "max_tokens": 1}).status == 400

    wait_for("the change to be noticed", refused, every_s=0.2)
    assert remove(stack, "mine")["bytes_freed"] == 0 and file.exists()


def test_disk_that_is_full(tmp_path, server):
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", small], check=False).returncode != 0:
        pytest.skip("only root mounts a small file system")
    try:
        server.add("/tale.gguf", bytes(100 * MIB))
        with Stack(settings_for(small)) as own:
            failed = pull(own, f"{server.url}/tale.gguf", "tale")["pull"]
            assert failed["error_code"] == "INSUFFICIENT_DISK" and server.bytes_sent <= 1
            # What others take while the stack runs counts as well; with room the same pull succeeds.
            server.add("/small.gguf", DATA)
            (small / "filler").write_bytes(bytes(79 * MIB - len(DATA) // 2))
            assert pull(own, f"{server.url}/small.gguf", "small")["pull"]["error_code"] == "INSUFFICIENT_DISK"
            assert published(small) == []
            (small / "filler").unlink()
            assert pull(own, f"{server.url}/small.gguf", "small")["checksum"] == f"sha256:{SHA256}"
    finally:
        subprocess.run(["umount", small], check=False)


# A pull takes little memory, however large the model is.
def test_memory(tmp_path, server):
    server.add("/large.gguf", b"GGUF" + bytes(200 * MIB))
    with Stack(settings_for(tmp_path / "cache", connections=8)) as own:
        before = peak_bytes(own.pool.pid)
        pull(own, f"{server.url}/large.gguf", "large")
        assert peak_bytes(own.pool.pid) - before <= 64 * MIB


def peak_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


# ORCH-3091#fetched: `run` fetches what is missing if it is told to, and says how to otherwise.
def test_the_command_line(tmp_path, server):
    server.add("/tale.gguf", DATA)
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"models": [
        {"model_id": "tale:5m", "source": f"{server.url}/tale.gguf", "checksum": f"sha256:{SHA256}", "size_bytes": len(DATA),
         "licence": "CC0-1.0", "about": "A small teller of tales."},
        {"model_id": "tale:huge", "source": f"{server.url}/huge.gguf", "size_bytes": 10**15, "licence": "CC0-1.0"}]}))
    add_package(server, "some-tale", "1", wheel("tale.gguf", DATA))
    settings = settings_for(tmp_path / "cache", pypi_url=f"{server.url}/simple")
    with Stack({**settings, "models.known_models": str(known)}) as own:

        def llorch(*args):
            return subprocess.run([str(BIN / "llorch"), "--url", own.url, "--state-dir", str(own.dir), *args],
                                  capture_output=True, text=True, timeout=HANG_S, stdin=subprocess.DEVNULL,
                                  env=clean_env(own.dir))

        found = llorch("search", "tale")
        assert "tale:5m" in found.stdout and "yes" in found.stdout
        assert [m["fits"] for m in json.loads(llorch("--json", "search", "tale:huge").stdout)["models"]] == [False]
        refused = llorch("run", "tale:5m", "Once upon a time", "--max-tokens", "4")
        assert refused.returncode == 1 and "llorch pull tale:5m" in refused.stderr
        told = llorch("run", "--pull", "tale:5m", "Once upon a time", "--max-tokens", "4")
        assert told.returncode == 0 and told.stdout.strip(), told.stderr
        assert "tale:5m" in llorch("ls").stdout and SHA256 in llorch("show", "tale:5m").stdout
        again = llorch("--json", "pull", "tale:5m")
        assert again.returncode == 0 and json.loads(again.stdout)["checksum"] == f"sha256:{SHA256}"
        assert llorch("retire", "tale:5m").returncode == 0
        assert llorch("run", "tale:5m", "Once").returncode == 1
        assert llorch("activate", "tale:5m").returncode == 0 and llorch("pin", "tale:5m").returncode == 0
        assert "0 B freed" in llorch("gc", "--max-gib", "0").stdout
        assert "removed" in llorch("rm", "tale:5m").stdout
        assert llorch("pull", "nobody-knows-this").returncode == 1
        assert llorch("run", "--pull", "pypi:some-tale", "Once", "--max-tokens", "1").returncode == 0
        assert llorch("run", "pypi:some-tale", "Once", "--max-tokens", "1").returncode == 0  # it is here: nobody is asked
