"""Documents that clients ask to have kept: found by their hash, their caller's alone, gone when deleted, there after a crash."""

import hashlib
import json

from stack import Stack, request

NEEDLE = "a needle that nobody else writes"
DOCUMENT = {"kind": "plan", "content": {"steps": [NEEDLE, "write"]}, "tags": ["demo"], "metadata": {"author": "me"}}


def post(stack, document):
    return stack.request("POST", "/v2/artifacts", document)


# HME-022, OC-CTRL-2065, ORCH-3098: content-addressed, with tags, lineage and times.
def test_an_artefact_is_found_by_the_hash_of_what_it_says():
    with Stack() as stack:
        first = post(stack, DOCUMENT)
        assert first.status == 201, first.body
        artefact = first.json
        said = json.dumps(DOCUMENT, separators=(",", ":")).encode()
        assert artefact["id"] == hashlib.sha256(said).hexdigest() and artefact["digest"] == "sha256:" + artefact["id"]
        again = post(stack, DOCUMENT)
        assert again.status == 200 and again.json == artefact

        child = post(stack, {"kind": "diff", "content": {"was": 1}, "parent": artefact["id"]}).json
        assert child["parent"] == artefact["id"]
        orphan = post(stack, {"kind": "diff", "content": {}, "parent": "0" * 64})
        assert orphan.status == 400 and orphan.json["error"]["details"]["field"] == "parent"

        stack.orchestrator.kill()
        stack.orchestrator.wait()
        stack.start_orchestrator()
        whole = stack.request("GET", f"/v2/artifacts/{artefact['id']}").json
        assert whole == {**artefact, "content": DOCUMENT["content"], "metadata": DOCUMENT["metadata"]}

        for path in stack.dir.rglob("*"):
            assert not path.is_file() or NEEDLE.encode() not in path.read_bytes(), path
        assert stack.request("DELETE", f"/v2/artifacts/{artefact['id']}").status == 204
        assert stack.request("GET", f"/v2/artifacts/{artefact['id']}").status == 404
        assert stack.request("DELETE", f"/v2/artifacts/{artefact['id']}").status == 404


def test_equal_documents_of_two_tenants_are_two(tmp_path):
    config = tmp_path / "config.yaml"
    tokens = {name: name[0] * 40 for name in ("alpha", "beta")}
    for name, token in tokens.items():
        (tmp_path / name).write_text(token)
        (tmp_path / name).chmod(0o600)
    config.write_text("orchestratord:\n  tenants:\n" + "".join(
        f"    - id: {name}\n      token_file: {tmp_path / name}\n" for name in tokens))
    config.chmod(0o600)
    with Stack(env={"LLORCH_CONFIG": str(config)}, token="o" * 40) as stack:
        def ask(name, method, path, body=None):
            return request(stack.url, method, path, body, {"Authorization": f"Bearer {tokens[name]}"})

        (artefact,) = {ask(name, "POST", "/v2/artifacts", DOCUMENT).json["id"] for name in tokens}
        assert ask("alpha", "DELETE", f"/v2/artifacts/{artefact}").status == 204
        assert ask("alpha", "GET", f"/v2/artifacts/{artefact}").status == 404
        assert ask("beta", "GET", f"/v2/artifacts/{artefact}").json["content"] == DOCUMENT["content"]
