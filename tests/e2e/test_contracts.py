"""What is promised to programs: the files of contracts/, the configuration, who counts as whom, hints that change nothing, metrics of
every component, words of logs."""

import hashlib
import json
import os
import re
import socket
import subprocess
import urllib.parse
import uuid

import pytest
import yaml

from engine_stack import EngineStack, entry
from fake_engine import FakeEngine, Fault
from metrics_text import parse
from stack import ALIAS, BIN, HANG_S, MODEL, REPO, EventStream, Stack, clean_env, llorch, request, wait_for

OPENAPI = yaml.safe_load((REPO / "contracts/openapi/orchestratord.yaml").read_text())


def test_the_api_version_is_that_of_the_contract(stack):
    """OC-CTRL-2061 ORCH-3093 ORCH-3096: in capabilities and in the version, as info.version of the file says."""
    for path in ("/v2/meta/capabilities", "/v2/meta/version", "/v1/capabilities"):
        assert stack.request("GET", path).json["api_version"] == OPENAPI["info"]["version"], path
    engine = stack.request("GET", "/v2/meta/capabilities").json
    assert engine["features"]["streaming"] is True and engine["limits"]["queue_capacity"] == 100


DATA_PLANE = ["createTaskV2", "streamTaskV2", "cancelTaskV2", "getSessionV2", "deleteSessionV2"]


def test_examples_of_the_contract_are_answered_as_it_says():
    """OC-CTRL-2067: each operation of the data plane has examples; a request of them gets a status and a code that the file has for it, and
    a stream of them has the events, in their order and with their fields, of a real one."""
    operations = {operation["operationId"]: (method, path, operation) for path, methods in OPENAPI["paths"].items()
                  for method, operation in methods.items() if isinstance(operation, dict) and "operationId" in operation}
    for name in DATA_PLANE:
        assert operations[name][2].get("x-examples"), name
    with Stack({"models.aliases.tale": f"file:{MODEL}", "models.allowed_roots": f"{MODEL.parent},/srv/models"}) as stack:
        job = stack.submit(max_tokens=1)["job_id"]
        real = [event for event in stack.read_to_end(job) if event.id]
        sent = 0
        for name, (method, path, operation) in sorted(operations.items()):
            if name not in DATA_PLANE and not path.startswith(("/v2/tasks", "/v2/sessions", "/v2/meta")):
                continue
            for example in operation.get("x-examples", {}).values():
                if isinstance(example, str):
                    told = re.findall(r"^event: (\w+)\nid: (\d+)-[0-9a-f]{16}\ndata: (.*)$", example, re.M)
                    assert [event for event, _, _ in told] == [event.name for event in real]
                    for (_, number, data), event in zip(told, real):
                        assert event.id.startswith(f"{number}-") and json.loads(data).keys() <= event.data.keys(), event
                    continue
                is_request = {"path", "headers", "body"} & example.keys()
                body = example.get("body") if is_request else example
                answer = stack.request(method.upper(), example.get("path", path.format(id=job)), body, example.get("headers", {}))
                responses = operation["responses"]
                assert str(answer.status) in responses or "default" in responses, (name, example, answer.status, answer.body)
                codes = responses.get(str(answer.status), {}).get("x-error-codes")
                assert answer.status < 400 or codes is None or answer.code in codes, (name, answer.body)
                sent += 1
        assert sent >= 10


def test_hints_change_no_answer(stack):
    """ORCH-3101 ORCH-3102 OC-CTRL-2063: kv_hint, output_mode, expected_tokens and placement, known or not: the same bytes and the same
    receipt as without."""
    plain = {"session_id": "hints", "workload": "completion", "model_ref": ALIAS, "engine": "llamacpp", "ctx": 128, "priority": "interactive",
             "max_tokens": 16, "deadline_ms": 600_000, "prompt": "Once upon a time", "seed": 7}
    seen = set()
    for hints in ({}, {"kv_hint": "reuse"}, {"kv_hint": "cold"}, {"output_mode": "json"}, {"output_mode": "edits"}, {"output_mode": "unheard-of"},
                  {"expected_tokens": 3}, {"placement": {"mode": "prefer", "prefer_pools": ["pool-1"]}},
                  {"placement": {"mode": "auto", "avoid_pools": ["pool-9"]}}):
        task = {**plain, "task_id": str(uuid.uuid4()), "session_id": f"hints-{len(seen)}-{uuid.uuid4()}", **hints}
        admitted = stack.request("POST", "/v1/tasks", task)
        assert admitted.status == 202, (hints, admitted.body)
        events = list(EventStream(stack.url, admitted.json["streams"]["sse"]))
        receipt = stack.job(admitted.json["job_id"])["receipt"]
        seen.add(("".join(event.data["t"] for event in events if event.name == "token"), json.dumps(receipt, sort_keys=True)))
    assert len(seen) == 1, seen


def lines_of(text, path, *more):
    path.write_text(text)
    return llorch("--config", str(path), *more, state_dir=path.parent)


def test_unknown_keys_are_refused_by_every_program(tmp_path):
    """OC-CONFIG-6001: with the key's name; a value that is none of a list's, or out of range, too."""
    for text, named in (("orchestratord:\n  queu: {capacity: 3}\n", b"queu"), ("nobody: 1\n", b"nobody"),
                        ("orchestratord:\n  timeout: {default_ms: 5, max_ms: 4}\n", b"default_ms"),
                        ("orchestratord:\n  mode: unheard\n", b"mode"), ("orchestratord:\n  queue: {policy: guess}\n", b"policy")):
        config = tmp_path / "config.yaml"
        config.write_text(text)
        for name in ("orchestratord", "pool-managerd"):
            done = subprocess.run([str(BIN / name), "--state-dir", str(tmp_path), "--bind", "127.0.0.1:0"], capture_output=True, timeout=HANG_S,
                                  env=clean_env(tmp_path, {"LLORCH_CONFIG": str(config)}))
            assert done.returncode == 2 and named in done.stdout + done.stderr, (name, text, done)
        checked = lines_of(text, config, "config", "validate")
        assert checked.returncode == 2 and named in checked.stdout + checked.stderr, text


def with_secrets(values, directory):
    """Files of secrets that an example names, on this machine."""
    if isinstance(values, list):
        return [with_secrets(value, directory) for value in values]
    if not isinstance(values, dict):
        return values
    out = {}
    for key, value in values.items():
        if key.endswith("_file") and isinstance(value, str):
            file = directory / f"secret-{uuid.uuid4()}"
            file.touch(mode=0o600)
            owner = f"{values['pool_id']}:" if key == "credential_file" else ""
            file.write_text(owner + uuid.uuid4().hex * 2)
            out[key] = str(file)
        else:
            out[key] = with_secrets(value, directory)
    return out


def test_the_schema_of_the_configuration_and_its_examples(tmp_path):
    """OC-CONFIG-6010 OC-CONFIG-6002 OC-CONFIG-6031 SYS-11.1.1: the same bytes every time, those of contracts/; it has examples, and every
    example of it and of the guide is a valid file; what a file leaves out has its default.

    SYS-8.4.3#documented: the limits of scaling are in both, with what they mean.

    HME-001 HME-003 ORCH-1141"""
    first, second = (llorch("config", "schema", state_dir=tmp_path).stdout for _ in range(2))
    schema = json.loads(first)
    assert first == second and schema == json.loads((REPO / "contracts/schema/config.json").read_text())
    guide = (REPO / "docs/guide/configuration.md").read_text()
    limits = schema["properties"]["orchestratord"]["properties"]["limits"]["properties"]
    for key in ("workers_per_gpu",):
        assert limits[key]["description"] and re.search(rf"^\| `orchestratord\.limits\.{key}` \|.*\| [A-Z][^|]+\. \|$", guide, re.M), key
    examples = [json.dumps(example) for example in schema["examples"]] + re.findall(r"^```yaml\n(.*?)^```", guide, re.M | re.S)
    assert len(examples) >= 2 and schema["examples"]
    for example in examples:
        values = with_secrets(yaml.safe_load(example), tmp_path)
        done = lines_of(json.dumps(values), tmp_path / "example.yaml", "config", "validate")
        assert done.returncode == 0, (example, done.stdout, done.stderr)
    shown = lines_of("orchestratord: {queue: {capacity: 7}}\n", tmp_path / "some.yaml", "--json", "config", "show")
    assert shown.returncode == 0, shown.stderr
    values = json.loads(shown.stdout)["orchestratord"]
    assert values["queue"]["capacity"] == 7 and values["queue"]["policy"] == "reject"
    assert values["timeout"]["default_ms"] == 300_000 and values["scheduling"]["algorithm"] == "least-loaded"
    assert values["bind"] == "127.0.0.1:8080" and json.loads(shown.stdout)["pool-managerd"]["bind"] == "127.0.0.1:9200"
    assert values["limits"]["workers_per_gpu"] == 1 == values["worker_slots"]


def own_address():
    """One of this machine's addresses that is not loopback, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            address = probe.getsockname()[0]
        except OSError:
            return None
    return None if address.startswith("127.") else address


def test_loopback_may_do_without_a_token_where_that_is_said(tmp_path):
    """HME-004 AUTH-1004 OC-CONFIG-6033 AUTH-1008: who comes from elsewhere needs it all the same; the log says localhost or the token's
    fingerprint, never the token.

    OC-CONFIG-6030#bind OC-CONFIG-6030#token OC-CONFIG-6030#optional: a key each."""
    token = "t" * 40
    with Stack({"auth.optional_on_loopback": "true"}, token=token) as stack:
        stack.orchestrator.terminate()
        stack.orchestrator.wait()
        stack.bind = "0.0.0.0:0"
        stack.start_orchestrator()
        port = stack.bind.rpartition(":")[2]
        stack.bind = f"127.0.0.1:{port}"
        assert stack.request("GET", "/v2/tasks", headers={}).status == 200
        assert stack.request("GET", "/v2/tasks", headers={"Authorization": "Bearer " + "x" * 40}).code == "BAD_TOKEN"
        assert stack.request("GET", "/v2/tasks").status == 200
        if address := own_address():
            for headers, status in (({}, 401), ({"Authorization": "Bearer " + "x" * 40}, 401), ({"Authorization": f"Bearer {token}"}, 200)):
                assert request(f"http://{address}:{port}", path="/v2/tasks", headers=headers).status == status, headers
        fingerprint = hashlib.sha256(token.encode()).hexdigest()[:6]

        def identities():
            return {json.loads(line).get("identity") for line in stack.log("orchestratord").splitlines() if '"auth_success"' in line}

        wait_for("both to be logged", lambda: {"localhost", f"token:{fingerprint}"} <= identities())
        assert token not in stack.log("orchestratord") and "x" * 40 not in stack.log("orchestratord")


def counters(url, name, **labels):
    family = parse(request(url, path="/metrics").body.decode())[name]
    return sum(value for have, value in family.series if labels.items() <= have.items())


def test_every_component_counts_what_it_does():
    """SYS-8.2.2#metrics: orchestratord, the pool, a worker and an engine's adapter; what ran is what they count."""
    with FakeEngine("openai") as engine, EngineStack([entry(engine)]) as stack:
        for model in (ALIAS, "tale"):
            assert stack.wait_terminal(stack.submit(model=model, max_tokens=1)["job_id"])["status"] == "completed"
        own = next(w["uri"] for w in stack.workers() if not w["model_ref"].startswith("engine:"))
        adapter = stack.adapter()["uri"]
        watched = {"jobs": (stack.url, "orchd_tasks_finished_total", {"status": "completed"}), "tokens": (stack.url, "tokens_out_total", {}),
                   "sent": (stack.url, "orchd_tasks_dispatched_total", {"outcome": "success"}),
                   "worker": (own, "worker_tokens_generated_total", {}), "worker jobs": (own, "worker_requests_total", {}),
                   "adapter": (adapter, "worker_tokens_generated_total", {}), "adapter jobs": (adapter, "worker_requests_total", {})}

        def now():
            return {name: counters(url, metric, **labels) for name, (url, metric, labels) in watched.items()}

        before = now()
        for model, tokens in ((ALIAS, 5), (ALIAS, 6), ("tale", 7)):
            assert stack.wait_terminal(stack.submit(model=model, max_tokens=tokens, seed=tokens)["job_id"])["tokens_out"] == tokens
        added = {name: value - before[name] for name, value in now().items()}
        assert added == {"jobs": 3, "tokens": 18, "sent": 3, "worker": 11, "worker jobs": 2, "adapter": 7, "adapter jobs": 1}
        assert counters(stack.pool_url, "pool_mgr_worker_starts_total", outcome="success") == 2


def test_workers_of_both_kinds_listen_at_the_ports_that_are_named():
    """pool-managerd.worker_ports: worker-orcd and an engine's adapter serve jobs on the sockets that their pool made for them."""
    first = 20_000 + os.getpid() % 8_000
    settings = {"pool-managerd.worker_ports": f"{first}-{first + 49}"}
    with FakeEngine("openai") as engine, EngineStack([entry(engine)], settings=settings) as stack:
        for model in (ALIAS, "tale"):
            assert stack.wait_terminal(stack.submit(model=model, max_tokens=1)["job_id"])["status"] == "completed"
        ports = {urllib.parse.urlsplit(worker["uri"]).port for worker in stack.workers()}
        assert len(ports) == 2 and all(first <= port < first + 50 for port in ports), ports


def test_what_a_worker_says_went_wrong_reaches_the_client():
    """OC-CTRL-2029 OC-CTRL-2034 ORCH-3407 ORCH-3408 ORCH-3409 SCHED-11091 ORCH-1122: with its own code and details, in the stream and in the job."""
    with FakeEngine("vllm") as engine, EngineStack([entry(engine)], settings={"orchestratord.retry.enabled": "false"}) as stack:
        stack.wait_terminal(stack.submit(model="tale", max_tokens=1)["job_id"])
        for fault, code, details in ((Fault("status", status=422), "INVALID_PARAMS", {"upstream_status": 422}),
                                     (Fault("status", status=404), "MODEL_NOT_FOUND", {"upstream_status": 404})):
            engine.script.append(fault)
            job = stack.submit(model="tale", max_tokens=4)["job_id"]
            last = stack.read_to_end(job)[-1]
            assert last.name == "error" and last.data["code"] == code and last.data["retriable"] is False, last
            assert details.items() <= last.data["details"].items() and last.data["message"]
            told = stack.job(job)["error"]
            assert told["code"] == code and details.items() <= told["details"].items()


def test_the_words_of_logs_are_sentences(stack):
    """ORCH-3312: what a person reads begins with a capital, ends with a full stop and has no ids in it: those have fields."""
    stack.wait_terminal(stack.submit(max_tokens=2, session_id="words")["job_id"])
    stack.request("POST", "/v2/tasks", {"model": "nobody", "prompt": "x", "max_tokens": 1})
    texts = [stack.log("orchestratord"), stack.log("pool-managerd"), *(path.read_text() for path in stack.dir.rglob("worker-*.log"))]
    said = {}
    for text in texts:
        for line in text.splitlines():
            if line.startswith("{") and "human" in (entry_ := json.loads(line)):
                said.setdefault(entry_["event"], set()).add(entry_["human"])
    assert len(said) > 15
    for event, humans in said.items():
        for human in humans:
            assert re.fullmatch(r"[A-Za-z_][^{}=\n]*[.!?)]", human) and " " in human, (event, human)
            assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}|worker-[0-9a-f]|sha256:", human), (event, human)
            assert len(human) <= 160, (event, human)


def test_secrets_in_what_others_name_are_not_written_down(tmp_path):
    """NARR-3008 NARR-3001: a file, a model, a header that has a key in it: the log has its place and not the key."""
    keys = ["api_key=sk-0123456789abcdef0123", "password=correct-horse-battery", "token=deadbeefdeadbeef0123"]
    watched = tmp_path / "watched"
    watched.mkdir()
    for key in keys:
        (watched / f"{key}.gguf").write_bytes(b"GGUF, but no model")
    with Stack({"models.watched_directories": str(watched), "models.cache_dir": str(tmp_path / "cache")}) as stack:
        wait_for("them to be refused", lambda: stack.log("pool-managerd").count('"watched_file_refused"') >= len(keys))
        log = stack.log("pool-managerd")
        assert log.count("[REDACTED]") >= len(keys)
        for key in keys:
            assert key.partition("=")[2] not in log, key
