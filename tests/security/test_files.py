"""Whoever may put files beside models, or name them: what a name can lead to, what a directory can hold, and what a file that is
cut, swapped or endless does to the node."""

import json
import os
import shutil

import pytest

from attacker import JSON, OPERATOR, TENANTS, Listener, bearer, secret, send
from stack import ALIAS, MODEL, MODEL_F16, Stack, wait_for

ALICE = bearer(TENANTS["alice"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Directories that models may come from, one that is watched, and one that is neither."""
    root = tmp_path_factory.mktemp("place")
    for name in ("allowed", "watched", "private", "cache"):
        (root / name).mkdir()
    shutil.copy(MODEL_F16, root / "private/secret.gguf")
    return root


@pytest.fixture(scope="module")
def stack(place, tmp_path_factory):
    directory = tmp_path_factory.mktemp("secrets")
    tenant = secret(directory, "alice", TENANTS["alice"])
    config = directory / "config.yaml"
    config.write_text(f"orchestratord:\n  tenants:\n    - {{id: alice, token_file: {tenant}}}\n")
    config.chmod(0o600)
    settings = {"models.allowed_roots": f"{MODEL.parent},{place / 'allowed'}", "models.watched_directories": str(place / "watched"),
                "models.cache_dir": str(place / "cache"), "orchestratord.heartbeat.interval_ms": "200"}
    with Stack(token=OPERATOR, settings=settings, env={"LLORCH_CONFIG": str(config)}) as running:
        yield running


def submit(stack, model, who=ALICE):
    return send(stack.url, "POST", "/v2/tasks", {"model": model, "prompt": "Once", "max_tokens": 1}, {**who, **JSON})


def serves(stack):
    job = stack.submit(max_tokens=1)["job_id"]
    assert stack.wait_terminal(job)["status"] == "completed"
    assert stack.pool.poll() is None


def test_a_name_leads_to_no_file_outside(stack, place):
    """By itself, by a link, by dots, by another scheme: refused, and nothing says whether there is such a file."""
    (place / "allowed/link.gguf").symlink_to(place / "private/secret.gguf")
    (place / "allowed/way").symlink_to(place / "private")
    for path in (place / "private/secret.gguf", place / "allowed/link.gguf", place / "allowed/way/secret.gguf",
                 place / "allowed/../private/secret.gguf", f"{place}/allowed/./way/../private/secret.gguf"):
        refused = submit(stack, f"file:{path}")
        assert (refused.status, refused.code) == (403, "FORBIDDEN"), (path, refused.body)
        assert refused.envelope["details"]["reason"] == "outside_allowed_roots"
        nothing = submit(stack, f"file:{str(path).replace('secret', 'nothing').replace('link', 'nolink')}")
        assert nothing.code in ("FORBIDDEN", "MODEL_NOT_FOUND")
    there, absent = (submit(stack, f"file:{place}/private/{name}.gguf") for name in ("secret", "absent"))
    assert (there.status, there.code, there.envelope["details"]["reason"]) == (absent.status, absent.code, absent.envelope["details"]["reason"])
    for name in ("file:/etc/passwd", "file:///etc/passwd", "/etc/passwd", "file:relative.gguf", "file:", "../demo", f"file:{place}/allowed",
                 "file:/proc/self/environ", "file:/dev/zero", f"{ALIAS}/../demo-f16", "x" * 10_000, "a\nb", "engine:nobody"):
        assert submit(stack, name).code in ("FORBIDDEN", "MODEL_NOT_FOUND", "INVALID_PARAMS"), name
    serves(stack)


def test_a_tenant_fetches_nothing(stack):
    """What is not here is not here: no job brings a model over the network, no way of it is a tenant's to ask for."""
    with Listener() as server:
        for model in (f"{server.url}/tale.gguf", "hf:org/tale", f"hf:{server.url}", "https://models.example/x.gguf", f"s3:{server.url}/x"):
            refused = submit(stack, model)
            assert refused.status in (400, 403, 404), refused.body
        for method, path, body in [("POST", "/v2/catalog/models", {"model_id": "tale", "source": f"{server.url}/tale.gguf"}),
                                   ("POST", "/v1/catalog/models", {"id": "tale", "source": f"{server.url}/tale.gguf"}),
                                   ("POST", "/api/pull", {"model": "hf.co/org/tale"}), ("DELETE", "/api/delete", {"model": ALIAS}),
                                   ("DELETE", f"/v2/catalog/models/{ALIAS}", None), ("POST", "/v2/catalog/gc", {}),
                                   ("POST", f"/v2/catalog/models/{ALIAS}/state", {"state": "retired"})]:
            refused = send(stack.url, method, path, body, {**ALICE, **JSON})
            assert (refused.status, refused.code) == (403, "FORBIDDEN"), (path, refused.body)
        assert server.requests == []
    serves(stack)


def names(stack):
    return {model["model_id"]: model for model in stack.request("GET", "/v2/catalog/models").json["models"]}


def test_what_lies_in_a_watched_directory(stack, place):
    """Links out of it, pipes, devices, loops, directories, other people's names: none is a model, none takes a name that is
    somebody's, and nobody waits for one."""
    watched = place / "watched"
    (watched / "outside.gguf").symlink_to(place / "private/secret.gguf")
    (watched / "loop.gguf").symlink_to("loop.gguf")
    (watched / "zero.gguf").symlink_to("/dev/zero")
    (watched / "directory.gguf").mkdir()
    os.mkfifo(watched / "pipe.gguf")
    (watched / "a\nb: c.gguf").write_bytes(b"GGUF")
    (watched / ("x" * 240 + ".gguf")).write_bytes(b"GGUF")
    with open(watched / "hole.gguf", "wb") as file:
        file.write(MODEL.read_bytes()[:4])
        file.truncate(1 << 42)
    shutil.copy(MODEL_F16, watched / "incoming")
    os.rename(watched / "incoming", watched / f"{ALIAS}.gguf")  # as the alias of another model
    shutil.copy(MODEL, watched / "incoming")
    os.rename(watched / "incoming", watched / "good.gguf")
    before = names(stack)
    wait_for("the one that is a model to have a name", lambda: "good" in names(stack))
    wait_for("the others to be looked at", lambda: stack.log("pool-managerd").count('"watched_file_refused"') >= 2)
    assert set(names(stack)) - set(before) <= {"good"}
    assert all(model.get("source") != f"file:{watched}/{ALIAS}.gguf" for model in names(stack).values())
    assert "a\nb" not in stack.log("pool-managerd") and str(place / "private") not in json.dumps(names(stack))
    ended = stack.wait_terminal(stack.submit(model="good", max_tokens=1)["job_id"])
    assert ended["status"] == "completed", ended
    alias = stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
    assert alias["model_ref"] == f"file:{MODEL}", "an alias stays what the operator says"
    # What became a link to elsewhere meanwhile is not followed by the name it had.
    os.remove(watched / "good.gguf")
    (watched / "good.gguf").symlink_to(place / "private/secret.gguf")
    wait_for("the name to go or to be refused", lambda: "good" not in names(stack) or submit(stack, "good").status in (403, 404))
    assert submit(stack, "good").status in (403, 404)
    serves(stack)


def test_a_file_that_is_cut_takes_nobody_along(stack, place):
    """While it is described and while a worker has it: a stable refusal, the pool and every other worker live. A negative control of
    the threat: who mapped the file would die of it."""
    model = place / "allowed/cut.gguf"
    shutil.copy(MODEL, model)
    serves(stack)
    bystander = stack.ready_worker()["pid"]
    size = model.stat().st_size
    for kept in (0, 3, 24, size // 1000, size // 2, size - 1):
        os.truncate(model, kept)
        refused = submit(stack, f"file:{model}")
        if refused.status == 202:  # the facts that are known; whoever loads it sees
            ended = stack.wait_terminal(refused.json["job_id"])
            assert ended["status"] == "failed" and ended["error"]["code"] in ("MODEL_INCOMPATIBLE", "MODEL_LOAD_FAILED", "CONFLICT",
                                                                              "WORKER_START_FAILED", "RETRY_EXHAUSTED"), ended
        else:
            assert refused.code in ("MODEL_INCOMPATIBLE", "MODEL_NOT_FOUND", "CONFLICT"), refused.body
    assert stack.pool.poll() is None and bystander in {worker["pid"] for worker in stack.workers()}
    shutil.copy(MODEL, model)
    wait_for("the whole file to be served", lambda: submit(stack, f"file:{model}").status == 202)
    serves(stack)
