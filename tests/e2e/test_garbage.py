"""Garbage in: a stable code and a message with the next step; nothing crashes, nothing is half done."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile

import pytest

from stack import ALIAS, BIN, HANG_S, MODEL, Stack, clean_env, llorch, request, wait_for

GOOD = {"model": ALIAS, "prompt": "Once upon a time", "max_tokens": 4, "seed": 1}


def is_envelope(response):
    error = response.json["error"]
    return error["code"].isupper() and error["message"] and error["correlation_id"] and "retriable" in error


@pytest.mark.parametrize(
    "method, path, body, status, code",
    [
        ("POST", "/v2/tasks", "{", 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "max_tokens": 0}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "temperature": 3}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "priority": "urgent"}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "colour": 1}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", json.dumps(GOOD)[:-1] + ', "max_tokens": 3}', 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "max_tokens": 5000}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "prompt": "word " * 2000}, 400, "INVALID_PARAMS"),
        ("POST", "/v2/tasks", {**GOOD, "model": "nobody-knows-this"}, 404, "MODEL_NOT_FOUND"),
        ("POST", "/v2/tasks", {**GOOD, "model": "file:/etc/passwd"}, 403, "FORBIDDEN"),
        ("POST", "/v2/tasks", {**GOOD, "model": "hf:org/repo"}, 404, "MODEL_NOT_FOUND"),
        ("GET", "/v2/tasks/00000000-0000-4000-8000-000000000000", None, 404, "JOB_NOT_FOUND"),
        ("GET", "/v2/tasks/00000000-0000-4000-8000-000000000000/events", None, 404, "JOB_NOT_FOUND"),
        ("DELETE", "/v2/tasks/00000000-0000-4000-8000-000000000000", None, 404, "JOB_NOT_FOUND"),
        ("GET", "/v2/pools/nobody/health", None, 404, "POOL_NOT_FOUND"),
        ("DELETE", "/v2/pools/nobody", None, 403, "FORBIDDEN"),
        ("GET", "/no/such/path", None, 404, "NOT_FOUND"),
        ("PUT", "/v2/tasks", "{}", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/v2/tasks", "x" * (5 << 20), 413, "PAYLOAD_TOO_LARGE"),
    ],
)
def test_every_code_a_client_can_trigger(stack, method, path, body, status, code):
    """ORCH-3330 HME-032 SYS-5.5.1 ORCH-1011 ORCH-3014 OC-CTRL-2030 OC-CORE-1020 OC-CORE-1021: one request per code."""
    response = stack.request(method, path, body)
    assert (response.status, response.code) == (status, code), response.body
    assert is_envelope(response)


def test_a_context_too_small_says_the_numbers(stack):
    """ORCH-3016: never truncated; the limit and the request's size are in the error."""
    response = stack.request("POST", "/v2/tasks", {**GOOD, "max_tokens": 5000})
    details = response.json["error"]["details"]
    assert details["reason"] == "CONTEXT_TOO_LARGE" and details["context_tokens"] == 512


def test_same_task_id_same_body_is_one_job(stack):
    """The same task_id and body is one job; another body under the same id is refused."""
    body = {**GOOD, "task_id": "my-task-1"}
    first = stack.request("POST", "/v2/tasks", body)
    second = stack.request("POST", "/v2/tasks", body)
    assert first.status == second.status == 202 and first.json["job_id"] == second.json["job_id"]
    assert stack.request("POST", "/v2/tasks", {**body, "max_tokens": 5}).code == "CONFLICT"
    stack.wait_terminal(first.json["job_id"])


def test_a_full_queue_answers_429_with_the_contract():
    """ORCH-2007 OC-CTRL-2011 ORCH-3005 OC-CORE-1002 SYS-8.2.2#full AAPI-15060: Retry-After, X-Backoff-Ms, policy label, retriable."""
    with Stack(settings={"orchestratord.queue.capacity": "2"}) as stack:
        jobs = [stack.submit_held(max_tokens=400)]
        jobs += [stack.submit(max_tokens=2)["job_id"] for _ in range(2)]
        response = stack.request("POST", "/v2/tasks", GOOD)
        assert response.status == 429 and response.code == "QUEUE_FULL"
        assert int(response.headers["retry-after"]) >= 1 and int(response.headers["x-backoff-ms"]) > 0
        error = response.json["error"]
        assert error["policy_label"] == "reject" and error["retriable"] is True and error["retry_after_ms"] > 0
        for job in jobs:
            stack.request("DELETE", f"/v2/tasks/{job}")


def test_a_full_queue_may_drop_the_oldest_batch_job():
    """ORCH-3904 ORCH-3005 SCHED-11023: policy drop-lru: the oldest batch job makes room, and is told so."""
    settings = {"orchestratord.queue.capacity": "3", "orchestratord.queue.policy": "drop-lru"}
    with Stack(settings=settings) as stack:
        stack.submit_held(max_tokens=400)
        waiting = [stack.submit(max_tokens=2, priority=priority)["job_id"] for priority in ("interactive", "batch", "batch")]
        newest = stack.submit(max_tokens=2)["job_id"]
        dropped = stack.wait_terminal(waiting[1])
        assert dropped["status"] == "failed" and dropped["error"]["code"] == "QUEUE_FULL_DROP_LRU", dropped
        assert {stack.job(job)["status"] for job in (waiting[0], waiting[2], newest)} == {"queued"}
        stack.gate.open()
        for job in (waiting[0], waiting[2], newest):
            assert stack.wait_terminal(job)["status"] == "completed"


def mutate(rng, body):
    """A structured mutation: right shape most of the time, wrong somewhere."""
    strange = [None, True, -1, 0, 1, 2**31, 2**63, 2**64, 1e308, -0.0, "", "a", "é" * 50, "\ud7ff", [], {}, [[]], {"a": [1]}, "x" * 3000]
    out = dict(body)
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(4)
        if kind == 0 and out:
            out[rng.choice(list(out))] = rng.choice(strange)
        elif kind == 1 and out:
            out.pop(rng.choice(list(out)))
        elif kind == 2:
            out[rng.choice(["top_k", "top_p", "min_p", "stop", "seed", "session_id", "deadline_ms", "zzz", "timeout_ms", "logit_bias", "mirostat", "dry_sequence_breakers"])] = rng.choice(strange)
        else:
            text = json.dumps(out)
            at = rng.randrange(len(text))
            return (text[:at] + chr(rng.randrange(1, 256)) + text[at + rng.randrange(3):]).encode("utf-8", "surrogatepass")
    return json.dumps(out).encode()


def test_ten_thousand_mutated_bodies_never_crash_anything(stack):
    """Every answer is a 202 or an error envelope; the daemon lives and serves."""
    seed = int(os.environ.get("LLORCH_TEST_SEED", "3"))
    rng = random.Random(seed)
    print("seed", seed)
    # The model is unknown, so that what happens to be well-formed is refused instead of run.
    base = {**GOOD, "model": "nobody-knows-this"}
    host, port = stack.bind.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=HANG_S)
    for _ in range(10_000):
        connection.request("POST", "/v2/tasks", body=mutate(rng, base), headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status in (202, 400, 404, 413, 429, 503), (response.status, answer)
        assert response.status == 202 or answer["error"]["code"]
    connection.close()
    assert stack.orchestrator.poll() is None
    assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"


def broken_models(directory):
    good = MODEL.read_bytes()
    cases = {
        "truncated": good[: len(good) // 2],
        "wrong-magic": b"GGML" + good[4:],
        "version-9": good[:4] + struct.pack("<I", 9) + good[8:],
        "empty": b"",
        "huge-count": good[:8] + struct.pack("<Q", 2**60) + good[16:],
    }
    # The first tensor's offset, moved far past the end: name, rank, dims, type, offset.
    at = good.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8 + 4
    cases["tensor-past-the-end"] = good[:at] + struct.pack("<Q", 2**40) + good[at + 8 :]
    for name, data in cases.items():
        (directory / f"{name}.gguf").write_bytes(data)
    return sorted(cases)


def test_broken_model_files_are_named_and_refused(tmp_path):
    """M0-W-1200 M0-W-1210#header M0-W-1211: the CLI, the pool and the queue all say what is wrong with the file."""
    names = broken_models(tmp_path)
    for name in names:
        done = llorch("--json", "model", "show", str(tmp_path / f"{name}.gguf"), state_dir=tmp_path)
        assert done.returncode == 1, (name, done)
        error = json.loads(done.stderr)["error"]
        assert error["code"] in ("CORRUPT_FILE", "UNSUPPORTED_FORMAT_VERSION"), (name, error)
    with Stack(settings={"models.allowed_roots": f"{MODEL.parent},{tmp_path}"}) as stack:
        for name in names:
            response = stack.request("POST", "/v2/tasks", {**GOOD, "model": f"file:{tmp_path}/{name}.gguf"})
            assert response.status >= 400 and is_envelope(response), (name, response.body)
        assert stack.wait_terminal(stack.submit(max_tokens=2)["job_id"])["status"] == "completed"


def test_an_architecture_that_nobody_knows_is_named_and_refused(tmp_path):
    """M0-W-1215: at once, and no other one is taken for it."""
    file = tmp_path / "m.gguf"
    good = MODEL.read_bytes()
    key = b"general.architecture"
    value = good.index(key) + len(key) + 4 + 8  # behind the value's type and length
    file.write_bytes(good[:value] + b"abcde" + good[value + 5:])
    error = json.loads(llorch("--json", "model", "show", str(file), state_dir=tmp_path).stderr)["error"]
    assert error["code"] == "UNKNOWN_ARCHITECTURE" and "abcde" in error["message"], error
    with Stack(settings={"models.allowed_roots": f"{MODEL.parent},{tmp_path}"}) as stack:
        def refused():
            answer = stack.request("POST", "/v2/tasks", {**GOOD, "model": f"file:{file}"})
            return answer.code != "POOL_UNREADY" and answer

        answer = wait_for("the pool to have read it", refused)
        assert (answer.status, answer.code) == (409, "MODEL_INCOMPATIBLE") and "abcde" in answer.json["error"]["message"], answer.body
        assert stack.workers() == []


def with_text(data, key, new_key, text):
    """The GGUF file with another pair of key and text in the place of one of the same length; the text is filled up with blanks."""
    at = data.index(struct.pack("<Q", len(key)) + key)
    (old,) = struct.unpack_from("<Q", data, at + 8 + len(key) + 4)
    end = at + 8 + len(key) + 4 + 8 + old
    filled = text.ljust(len(key) + old - len(new_key))
    return data[:at] + struct.pack("<Q", len(new_key)) + new_key + struct.pack("<IQ", 8, len(filled)) + filled + data[end:]


def with_number(data, name, skip, number):
    at = data.index(name) + len(name) + skip
    return data[:at] + struct.pack("<I", number) + data[at + 4:]


def test_what_a_model_is_decides_whether_it_may_run(tmp_path):
    """CMATCH-8001: architecture, quantization, context and vocabulary are read from the file.

    CMATCH-8031: rotary positions, heads of attention and types of weights that this build does not have, and more context than the model
    has, are refused before anything is started, with what is wanted and what there is."""
    good = MODEL.read_bytes()
    refused = {
        "positions": (with_text(good, b"general.description", b"llama.rope.scaling.type", b"strange"),
                      ("llama.rope.scaling.type = strange", "none, linear, yarn or longrope")),
        "attention": (with_number(good, b"llama.attention.head_count_kv", 4, 3), ("head_count_kv = 3", "head_count = 8")),
        "weights": (with_number(good, b"token_embd.weight", 4 + 2 * 8, 37), ("unknown type 37", "it reads F32, F16, Q4_0")),
    }
    for name, (data, _) in refused.items():
        (tmp_path / f"{name}.gguf").write_bytes(data)
    with Stack(settings={"models.allowed_roots": f"{MODEL.parent},{tmp_path}"}) as stack:
        def describe(file):
            return request(stack.pool_url, path=f"/v2/models/describe?ref=file:{file}")

        facts = describe(MODEL).json
        assert [facts[key] for key in ("architecture", "quant_kind", "context_length", "vocab_size")] == ["llama", "Q8_0", 512, 2048]
        for name, (_, parts) in refused.items():
            answer = describe(tmp_path / f"{name}.gguf")
            assert (answer.status, answer.code) == (409, "MODEL_INCOMPATIBLE"), answer.body
            assert all(part in answer.json["error"]["message"] for part in parts), answer.body
        details = stack.request("POST", "/v2/tasks", {**GOOD, "max_tokens": 600}).json["error"]["details"]
        assert (details["max_tokens"], details["context_tokens"]) == (600, 512), details
        assert stack.workers() == []


def test_every_class_of_errors_says_what_to_do_next(tmp_path):
    """ORCH-3331: who is refused for what was asked, who may try again and whose job is lost; in the API, in a stream and on the command line."""
    with Stack(settings={"orchestratord.queue.capacity": "1"}) as stack:
        def message(body, code):
            answer = stack.request("POST", "/v2/tasks", {**GOOD, **body})
            assert answer.code == code, answer.body
            return answer.json["error"]["message"]

        assert "must be between 0 and 2" in message({"temperature": 3}, "INVALID_PARAMS")
        assert "the fields are: model, " in message({"colour": 1}, "INVALID_PARAMS")
        assert "Shorten the prompt or lower max_tokens" in message({"max_tokens": 5000}, "INVALID_PARAMS")
        assert "add its directory to models.allowed_roots" in message({"model": "file:/etc/passwd"}, "FORBIDDEN")
        unknown = message({"model": "nobody-knows-this"}, "MODEL_NOT_FOUND")
        assert "`llorch ls`" in unknown and "`llorch pull NAME`" in unknown
        running = stack.submit_held(max_tokens=400)
        waiting = stack.submit(max_tokens=2)["job_id"]
        assert re.search(r"Try again in \d+ ms, or raise orchestratord\.queue\.capacity", message({}, "QUEUE_FULL"))
        for job in (waiting, running):
            stack.request("DELETE", f"/v2/tasks/{job}")
            stack.wait_terminal(job)
        late = stack.submit(max_tokens=400, timeout_ms=300)["job_id"]
        error = stack.read_to_end(late)[-1].data
        assert error["retriable"] is False and "Ask for more with timeout_ms" in error["message"], error
        run = llorch("run", "nobody-knows-this", "Once", state_dir=stack.dir)
        assert run.returncode != 0 and "llorch pull" in run.stderr.decode(), run
    down = llorch("ls", state_dir=tmp_path)
    assert down.returncode == 3 and "llorch up" in down.stderr.decode(), down


def test_a_model_that_does_not_fit_is_refused_with_the_numbers():
    """M0-W-1210#fits SYS-2.2.1 SYS-6.2.3 ORCH-1121: nothing is started; required and available bytes are in the error."""
    with Stack(settings={"devices.cpu_memory_bytes": str(4 << 20), "pool-managerd.vram_headroom_bytes": "0"}) as stack:
        response = stack.request("POST", "/v2/tasks", GOOD)
        error = response.json["error"] if response.status >= 400 else stack.wait_terminal(response.json["job_id"])["error"]
        assert error["code"] in ("POOL_UNAVAILABLE", "INSUFFICIENT_VRAM")
        assert "required_bytes" in error["details"] and stack.workers() == []


def test_a_port_in_use_is_said(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        for name in ("orchestratord", "pool-managerd"):
            done = subprocess.run([str(BIN / name), "--state-dir", str(tmp_path / name), "--bind", bind] +
                                  (["--cpu"] if name == "pool-managerd" else []), capture_output=True, timeout=HANG_S,
                                  env=clean_env(tmp_path))
            assert done.returncode != 0 and b"PORT_IN_USE" in done.stderr


def test_non_loopback_needs_a_token(tmp_path):
    """AUTH-1002 SYS-9.1.1 HME-002 OC-CONFIG-6032: every daemon refuses, from the first day."""
    commands = {
        "orchestratord": ["--state-dir", str(tmp_path), "--bind", "0.0.0.0:0"],
        "pool-managerd": ["--state-dir", str(tmp_path), "--bind", "0.0.0.0:0", "--cpu"],
        "worker-orcd": ["--model", str(MODEL), "--gpu-device", "cpu", "--bind", "0.0.0.0", "--self-test-dir", str(tmp_path)],
    }
    for name, args in commands.items():
        done = subprocess.run([str(BIN / name), *args], capture_output=True, timeout=HANG_S, env=clean_env(tmp_path))
        assert done.returncode != 0, name
        assert b"NON_LOOPBACK_WITHOUT_TOKEN" in done.stderr, (name, done.stderr[-500:])


def test_a_token_is_needed_when_one_is_set():
    """AUTH-1001 AUTH-1003 SEC-AUTH-3001 SYS-5.2.1#authenticated MISSING_TOKEN BAD_TOKEN: also between the daemons."""
    token = "t" * 40
    with Stack(token=token) as stack:
        assert stack.request("GET", "/v2/pools", headers={}).code == "MISSING_TOKEN"
        pool = {"pool_id": "stranger", "endpoint": "http://127.0.0.1:9", "gpus": [], "workers": []}
        assert stack.request("POST", "/v2/pools/register", pool, headers={}).code == "MISSING_TOKEN"
        assert stack.request("GET", "/v2/pools", headers={"Authorization": "Bearer " + "x" * 40}).code == "BAD_TOKEN"
        assert stack.wait_terminal(stack.submit(max_tokens=4)["job_id"])["status"] == "completed"
        for log in stack.dir.rglob("*.log"):
            assert token not in log.read_text(errors="replace")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")


@needs_root
def test_a_full_disk_gives_503_and_never_a_false_202():
    """SYS-6.1.3: STORE_UNAVAILABLE while the disk is full; everything accepted before ends; service returns with space."""
    directory = tempfile.mkdtemp(prefix="llorch-full-")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", directory]).returncode != 0:
        os.rmdir(directory)
        pytest.skip("cannot mount a small file system here")
    stack = Stack(state_dir=directory)
    try:
        stack.start()
        accepted = [stack.submit(max_tokens=2)["job_id"]]
        stack.wait_terminal(accepted[0])
        filler = pathlib.Path(directory) / "filler"
        with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while f.write(b"\0" * 4096) == 4096:
                pass
        refused = 0
        for _ in range(40):
            response = stack.request("POST", "/v2/tasks", {**GOOD, "prompt": "p" * 300})
            if response.status == 202:
                accepted.append(response.json["job_id"])
            else:
                assert (response.status, response.code) == (503, "STORE_UNAVAILABLE"), response.body
                assert is_envelope(response)
                refused += 1
        assert refused > 0
        filler.unlink()
        wait_for("service with space", lambda: stack.request("POST", "/v2/tasks", GOOD).status == 202, every_s=0.2)
        for job in accepted:
            assert stack.wait_terminal(job)["status"] == "completed"
    finally:
        stack.stop()
        subprocess.run(["umount", "-l", directory])
        shutil.rmtree(directory, ignore_errors=True)


@needs_root
def test_a_read_only_state_directory_is_said():
    """A directory that cannot be written: a clear refusal at the start, for each daemon."""
    directory = tempfile.mkdtemp(prefix="llorch-ro-")
    os.chmod(directory, 0o555)
    try:
        for name in ("orchestratord", "pool-managerd"):
            done = subprocess.run(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(BIN / name), "--state-dir", f"{directory}/state",
                 "--bind", "127.0.0.1:0"] + (["--cpu"] if name == "pool-managerd" else []), capture_output=True, timeout=HANG_S,
                env=clean_env(directory),
            )
            if b"Permission denied" in done.stderr and b"setpriv" in done.stderr:
                pytest.skip("the binaries cannot be run by another user here")
            assert done.returncode != 0, name
            assert b"IO_ERROR" in done.stderr or b"STORE_UNAVAILABLE" in done.stderr, (name, done.stderr[-500:])
    finally:
        os.rmdir(directory)


def test_raw_garbage_on_the_socket(stack):
    rng = random.Random(5)
    host, port = stack.bind.split(":")
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=HANG_S) as connection:
            connection.sendall(rng.randbytes(rng.randrange(1, 400)))
    assert stack.request("GET", "/v2/health").status == 200
