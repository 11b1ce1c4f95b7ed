"""Models by name: all bytes of one are read where it lies (verify), and where each is (availability)."""

import json
import pathlib
import shutil

import pytest
from stack import MODEL, Stack, llorch, wait_for


@pytest.fixture(name="stack")
def running_stack(tmp_path):
    shutil.copy(MODEL, tmp_path / "mine.gguf")
    with Stack({"models.aliases.demo": f"file:{MODEL}", "models.allowed_roots": f"{MODEL.parent},{tmp_path}"}) as stack:
        yield stack


def add(stack, file):
    def made():
        response = stack.request("POST", "/v2/catalog/models", {"model_ref": f"file:{file}", "model_id": "mine"})
        return response.json if response.status == 201 else None

    return wait_for("the model to have its name", made)


def verify(stack, version="v2"):
    """How it ended."""
    before = stack.request("GET", "/v2/catalog/models/mine").json.get("verification")
    begun = stack.request("POST", f"/{version}/catalog/models/mine/verify")
    assert begun.status == 202 and begun.json == {"model_id": "mine", "status": "started"}, begun.body

    def ended():
        told = stack.request("GET", "/v2/catalog/models/mine").json["verification"]
        return told if told["outcome"] != "running" and told != before else None

    return wait_for("the verification to end", ended)


def verify_files(stack, name, *options):
    done = llorch(*options, "verify", "--files", name, state_dir=stack.dir)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_command_waits_and_tells(stack, tmp_path):
    file = pathlib.Path(tmp_path / "mine.gguf")
    checksum = add(stack, file)["checksum"]
    code, out, err = verify_files(stack, "mine")
    assert code == 0 and out.startswith("mine: pass\n") and checksum in out, (out, err)
    code, out, _ = verify_files(stack, "mine", "--json")
    assert code == 0 and json.loads(out)["verification"]["found"] == checksum
    with file.open("r+b") as weights:
        weights.seek(-40, 2)
        byte = weights.read(1)[0]
        weights.seek(-1, 1)
        weights.write(bytes([byte ^ 1]))
    code, out, _ = verify_files(stack, "mine")
    assert code == 1 and out.startswith("mine: fail, ") and "\n  found     sha256:" in out, out
    code, out, _ = verify_files(stack, "mine", "--json")
    assert code == 1 and json.loads(out)["verification"]["outcome"] == "fail"
    code, _, err = verify_files(stack, "nobody")
    assert code == 1 and "MODEL_NOT_FOUND" in err, (code, err)
    file.unlink()
    code, out, _ = verify_files(stack, "mine", "--json")
    assert code == 4 and json.loads(out)["verification"]["outcome"] == "none"
    both = llorch("verify", "--files", "mine", "--determinism", "x", state_dir=stack.dir)
    assert both.returncode == 2


# ORCH-1083, ORCH-3061: a model is verified on demand. ORCH-3062, AAPI-15031: its name is shown and removed.
def test_a_model_is_verified_where_it_lies(stack, tmp_path):
    file = pathlib.Path(tmp_path / "mine.gguf")
    checksum = add(stack, file)["checksum"]
    told = verify(stack)
    assert (told["outcome"], told["found"]) == ("pass", checksum)
    assert verify(stack, version="v1")["outcome"] == "pass"

    stack.orchestrator.kill()
    stack.orchestrator.wait()
    stack.start_orchestrator()
    assert stack.request("GET", "/v2/catalog/models/mine").json["verification"]["outcome"] == "pass", "it is kept"

    with file.open("r+b") as weights:  # a byte of the last tensor
        weights.seek(-40, 2)
        byte = weights.read(1)[0]
        weights.seek(-1, 1)
        weights.write(bytes([byte ^ 1]))
    told = verify(stack)
    assert told["outcome"] == "fail" and told["found"].startswith("sha256:") and told["found"] != checksum
    counted = [line for line in stack.request("GET", "/metrics").body.decode().splitlines() if line.startswith("catalog_verifications_total")]
    assert any('reason="checksum"' in line and line.endswith(" 1") for line in counted), counted

    file.unlink()
    told = verify(stack)
    assert told["outcome"] == "none" and told["message"]
    removed = stack.request("DELETE", "/v2/catalog/models/mine")
    assert removed.status == 200 and removed.json["removed"] == ["mine"]


# AAPI-15030, CLOUD-5010, CLOUD-5011: which pools have a model, and how many jobs of it they take at once.
# ORCH-3470: lists carry a tag, and who has that list is told so.
def test_where_models_are(stack, tmp_path):
    add(stack, tmp_path / "mine.gguf")

    def where(name):
        return next(m for m in stack.request("GET", "/v2/catalog/availability").json["models"] if m["model_id"] == name)

    assert where("demo") == {"model_id": "demo", "nodes": [], "total_nodes": 0, "total_capacity": 0}
    stack.wait_terminal(stack.submit(max_tokens=1)["job_id"])
    assert where("demo") == {"model_id": "demo", "nodes": ["pool-1"], "total_nodes": 1, "total_capacity": 1}
    listed = stack.request("GET", "/v2/catalog/models")
    again = stack.request("GET", "/v2/catalog/models", headers={"If-None-Match": listed.headers["etag"]})
    assert (again.status, again.body) == (304, b"") and again.headers["etag"] == listed.headers["etag"]
    assert stack.request("POST", "/v2/catalog/models/mine/state", {"pinned": True}).status == 200
    changed = stack.request("GET", "/v2/catalog/models", headers={"If-None-Match": listed.headers["etag"]})
    assert changed.status == 200 and changed.headers["etag"] != listed.headers["etag"]


def test_what_has_no_checksum_is_refused(stack):
    assert stack.request("POST", "/v2/catalog/models/demo/verify").code == "CONFLICT"
    assert stack.request("POST", "/v2/catalog/models/nobody/verify").code == "MODEL_NOT_FOUND"
    assert stack.request("POST", "/v1/catalog/models/nobody/verify").json["code"] == "MODEL_NOT_FOUND"
