"""llorch debug bundle: what it holds, and what it must not hold."""

import json
import os
import re
import tarfile

import pytest

from stack import MODEL, Gate, llorch, request, wait_for

PROMPT = "The needle prompt says seventeen violet hedgehogs"
SYSTEM = "Needle system text about an ochre lighthouse"
PROXY_PASSWORD = "needle-proxy-password"
CALLERS_IDS = {"correlation": "needle-correlation-1", "session": "needle-session-1", "task": "needle-task-1"}
UUID = re.compile(r"(?<![A-Za-z0-9_-])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![A-Za-z0-9_-])")


def secret(directory, name):
    path = directory / name
    path.write_text(("KEYID " if name.startswith("s3") else "") + f"needle-secret-of-{name}-0123456789abcdef\n")
    path.chmod(0o600)
    return path


def unpack(path):
    """Name -> text of every file of a bundle."""
    with tarfile.open(path, "r:gz") as archive:
        members = archive.getmembers()
        assert all(m.isfile() and m.mode == 0o600 and m.uid == 0 and not m.name.startswith(("/", "..")) for m in members)
        return {m.name: archive.extractfile(m).read().decode() for m in members}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """The bundle of a stack that has run, refused and failed jobs; with all that must not be in it."""
    box = tmp_path_factory.mktemp("bundle")
    tokens = {name: secret(box, f"{name}-token") for name in ("operator", "tenant", "reader", "hub", "s3")}
    config = box / "config.yaml"
    config.write_text(f"""
orchestratord:
  bind: 127.0.0.1:0
  tenants: [{{id: research, token_file: {tokens['tenant']}}}]
pool-managerd: {{bind: "127.0.0.1:0"}}
auth: {{token_file: {tokens['operator']}, reader_token_files: [{tokens['reader']}]}}
models:
  pull: {{hub_token_file: {tokens['hub']}, s3_key_file: {tokens['s3']}, proxy: "http://me:{PROXY_PASSWORD}@127.0.0.1:9"}}
log: {{level: debug}}
""")
    needles = {name: path.read_text().split()[-1] for name, path in tokens.items()} | CALLERS_IDS | {
        "prompt": PROMPT, "system": SYSTEM, "proxy": PROXY_PASSWORD, "token file": str(tokens["hub"])}
    state = box / "state"
    gate = Gate()
    common = {"state_dir": state, "env": {**gate.env, "HOME": str(box)}}
    named = ["--config", str(config)]
    done = llorch(*named, "up", "--cpu", "--detach", "--model", str(MODEL), **common)
    assert done.returncode == 0, done.stderr
    try:
        bind = json.loads((state / "run/orchestratord.json").read_text())["bind"]
        bearer = {"Authorization": f"Bearer {needles['operator']}"}

        def ask(method, path, body=None, headers=None):
            return request(f"http://{bind}", method, path, body, {**bearer, **(headers or {})})

        body = {"model": MODEL.stem, "prompt": PROMPT, "max_tokens": 24, "seed": 3, "session_id": CALLERS_IDS["session"]}
        def first_answer():
            headers = {"X-Correlation-Id": CALLERS_IDS["correlation"]}
            answer = ask("POST", "/v2/tasks?wait=true", {**body, "task_id": CALLERS_IDS["task"]}, headers)
            return None if answer.status == 503 else answer  # the pool is still reading the model

        first = wait_for("the model to be known", first_answer)
        assert first.status == 200, first.body
        needles["output"] = first.json["text"]
        ask("POST", "/v1/chat/completions", {"model": "no-such-model", "messages": [{"role": "system", "content": SYSTEM}]})
        request(f"http://{bind}", "GET", "/v2/pools", headers={"Authorization": "Bearer needle-wrong-token-0123456789abcdef"})
        needles["wrong token"] = "needle-wrong-token-0123456789abcdef"
        gate.hold()
        waiting = ask("POST", "/v2/tasks", body).json["job_id"]
        needles["job"] = waiting
        wait_for("the job to run", lambda: ask("GET", f"/v2/tasks/{waiting}").json["status"] == "running")
        needles["second job"] = ask("POST", "/v2/tasks", body).json["job_id"]  # waits: the snapshot names it
        file = box / "bundle.tar.gz"
        done = llorch(*named, "--json", "debug", "bundle", "-o", str(file), **common)
        assert done.returncode == 0, done.stderr
        again = llorch(*named, "debug", "bundle", "-o", str(file), **common)
        yield {"files": unpack(file), "path": file, "said": json.loads(done.stdout), "needles": needles, "home": str(box), "again": again}
    finally:
        gate.remove()
        assert llorch(*named, "down", **common).returncode == 0


def test_it_holds_what_a_maintainer_needs(bundle):
    files = bundle["files"]
    manifest = json.loads(files["manifest.json"])
    assert manifest["missing"] == []
    assert {f["name"] for f in manifest["files"]} == files.keys() - {"manifest.json"} and set(bundle["said"]["parts"]) == files.keys()
    assert all(len(files[f["name"]].encode()) == f["bytes"] for f in manifest["files"])
    assert re.fullmatch(r"\d+\.\d+\.\d+\+[0-9a-f]{12}", manifest["llorch"])
    assert json.loads(files["machine.json"])["memory_bytes"] > 0
    assert {"ok"} <= json.loads(files["doctor.json"])["checks"][0].keys()
    assert json.loads(files["configuration.json"])["log"]["level"] == "debug"
    assert json.loads(files["orchestratord/health.json"]) and json.loads(files["orchestratord/version.json"])["version"]
    pool = json.loads(files["orchestratord/pools.json"])["pools"][0]
    assert pool["gpus"][0]["gpu_id"] == "cpu" and pool["workers"]
    assert json.loads(files["orchestratord/snapshot.json"])["jobs"][0]["job_id"].startswith("job-")
    assert "orchd_jobs_live" in files["orchestratord/metrics.txt"] and "pool_mgr_workers_total" in files["pool-managerd/metrics.txt"]
    assert "worker_slots" in files["pool-managerd/worker-1-metrics.txt"]
    logs = [name for name in files if name.startswith("logs/")]
    assert {"logs/orchestratord.log", "logs/pool-managerd.log"} <= set(logs) and any(n.startswith("logs/worker-") for n in logs)


def test_it_holds_no_prompt_output_secret_or_id(bundle):
    for name, text in bundle["files"].items():
        for what, needle in bundle["needles"].items():
            assert needle not in text, f"{what} in {name}"
        assert "needle" not in text.lower(), f"{name}: {re.search('(?i).{40}needle.{40}', text)}"
        assert bundle["home"] not in text, name
        assert not UUID.search(text), f"{name}: {UUID.search(text)}"
        for word in ("hedgehog", "lighthouse"):
            assert word not in text, name


def test_one_job_has_one_pseudonym_in_all_files(bundle):
    def events(name):
        return [json.loads(line) for line in bundle["files"][name].splitlines() if line.startswith('{"v"')]

    ended = next(e for e in events("logs/orchestratord.log") if e["event"] == "stream.ended")
    worker = next(name for name in bundle["files"] if name.startswith("logs/worker-"))
    run = next(e for e in events(worker) if e["event"] == "execute_end" and e.get("job_id") == ended["job_id"])
    assert run["correlation_id"] == ended["correlation_id"] and re.fullmatch(r"correlation-\d+", run["correlation_id"])
    assert re.fullmatch(r"job-\d+", ended["job_id"]) and re.fullmatch(r"session-\d+", ended["session_id"])


def test_nothing_is_written_over_and_the_file_is_private(bundle):
    assert bundle["again"].returncode == 2 and b"--output" in bundle["again"].stderr
    assert bundle["path"].stat().st_mode & 0o777 == 0o600


def test_without_a_stack_the_rest_is_written(tmp_path):
    done = llorch("--url", "http://127.0.0.1:1", "debug", "bundle", state_dir=tmp_path / "state", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("llorch-debug-*Z.tar.gz")
    files = unpack(file)
    missing = {part["name"]: part["reason"] for part in json.loads(files["manifest.json"])["missing"]}
    assert {"orchestratord", "pool-managerd", "logs"} == missing.keys() and "UNREACHABLE" in missing["orchestratord"]
    assert {"machine.json", "configuration.json", "doctor.json"} <= files.keys()
    assert os.path.basename(file).encode() in done.stdout


def test_a_broken_configuration_is_a_finding(tmp_path):
    (tmp_path / "config.yaml").write_text("orchestratord: {quue: 1}\n")
    done = llorch("--config", str(tmp_path / "config.yaml"), "debug", "bundle", "-o", str(tmp_path / "b.tar.gz"), state_dir=tmp_path / "state")
    assert done.returncode == 0, done.stderr
    missing = {part["name"]: part["reason"] for part in json.loads(unpack(tmp_path / "b.tar.gz")["manifest.json"])["missing"]}
    assert "quue" in missing["configuration.json"]
