"""What tests of pulls share: a cache, a server, a stack that pulls from it, and what they ask of it."""

import hashlib

import pytest

from model_server import ModelServer
from stack import MODEL, MODEL_F16, Stack, wait_for

DATA = MODEL.read_bytes()
DATA_F16 = MODEL_F16.read_bytes()
SHA256 = hashlib.sha256(DATA).hexdigest()
MIB = 1 << 20


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
