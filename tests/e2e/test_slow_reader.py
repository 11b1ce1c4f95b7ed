"""A standalone worker and a client that stops reading: its job pauses, memory stays where it is, nobody else notices."""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import time
import urllib.parse

from long_model import write_long_model
from stack import BIN, HANG_S, Stack, clean_env, request, wait_for

TOKENS = 3600


@contextlib.contextmanager
def worker(tmp_path):
    model = write_long_model(tmp_path / "long.gguf")
    process = subprocess.Popen(
        [str(BIN / "worker-orcd"), "--model", str(model), "--gpu-device", "cpu", "--slots", "2",
         "--self-test-dir", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_env(tmp_path),
    )
    try:
        yield process.pid, "http://" + json.loads(process.stdout.readline())["bind"]
    finally:
        process.terminate()
        process.wait(HANG_S)


def execute(url, job_id, tokens, receive_buffer=None):
    """A socket with the request sent. Every event has twenty alternatives, so that a stream is megabytes; token 2047 ends."""
    parsed = urllib.parse.urlsplit(url)
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect((parsed.hostname, parsed.port))
    body = json.dumps({"job_id": job_id, "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 1.0, "seed": 3,
                       "logit_bias": {"2047": -100}, "logprobs": True, "top_logprobs": 20})
    client.sendall(f"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return client


def read_to_end(client):
    data = bytearray()
    client.settimeout(HANG_S)
    while not re.search(rb"event: (end|error)\n.*\n\n", data[-4096:], re.S):
        part = client.recv(1 << 20)
        assert part, data[-400:]
        data += part
    client.close()
    tokens = [json.loads(line)["t"] for line in re.findall(rb"event: token\ndata: (.*)\n", bytes(data))]
    return tokens, json.loads(re.findall(rb"event: (?:end|error)\ndata: (.*)\n", bytes(data))[-1])


def anonymous_mb(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def steps(url):
    return float(re.search(r"^worker_steps_total\{[^}]*\} (\S+)$", request(url, path="/metrics").body.decode(), re.M).group(1))


def stopped(url):
    """Whether the engine made no step for a while."""
    before = steps(url)
    time.sleep(0.5)
    return steps(url) == before


def test_a_reader_that_stops_pauses_its_own_job_only_and_gets_every_byte_later(tmp_path):
    """STREAM-20070 M0-W-1310 SSE-1004: flow control of a worker used alone; exactly one terminal event."""
    with worker(tmp_path) as (pid, url):
        before = anonymous_mb(pid)
        stalled = execute(url, "stalled", TOKENS, receive_buffer=4096)
        wait_for("the job to pause", lambda: stopped(url), 60)
        assert anonymous_mb(pid) - before < 40, "what nobody reads is not made"
        tokens, end = read_to_end(execute(url, "neighbour", 20))
        assert len(tokens) == 20 and end["stop_reason"] == "max_tokens"
        assert request(url, path="/health").json["slots_free"] == 1
        late, late_end = read_to_end(stalled)
        assert len(late) == TOKENS
        whole, whole_end = read_to_end(execute(url, "undisturbed", TOKENS))
        assert late == whole
        assert late_end["receipt"]["output_sha256"] == whole_end["receipt"]["output_sha256"]
        assert anonymous_mb(pid) - before < 40


def test_a_stream_is_flushed_by_event_bounded_and_cancelled_from_end_to_end(tmp_path):
    """ADAPT-3101 SSE-1003: a client has each token before the next step is made; a cancel that it sends frees the worker's slot, though it reads
    nothing; of a stream that nobody reads a worker makes a bounded part, and a cancel frees that slot, too."""
    with Stack() as stack:
        job = stack.submit_held(max_tokens=40)
        stream = iter(stack.events(job))
        for i in range(3):
            assert next(event for event in stream if event.name == "token").data["i"] == i
            stack.gate.let_pass(1)
        assert stack.request("DELETE", f"/v2/tasks/{job}").status == 202
        wait_for("a free slot", lambda: request(stack.ready_worker()["uri"], path="/health").json["slots_free"] == 1)
        rest = [event for event in stream if event.id]
        assert (rest[-1].name, rest[-1].data["code"]) == ("error", "CANCELLED")
        assert [event.data["i"] for event in rest if event.name == "token"] in ([], [3]), "the step that was let pass"
    with worker(tmp_path) as (pid, url):
        before, idle = anonymous_mb(pid), steps(url)
        stalled = execute(url, "stalled", TOKENS, receive_buffer=4096)
        wait_for("the job to pause", lambda: steps(url) > idle and stopped(url))
        assert anonymous_mb(pid) - before < 40 and request(url, path="/health").json["slots_free"] == 1
        assert request(url, "POST", "/cancel", {"job_id": "stalled"}).status == 202
        wait_for("a free slot", lambda: request(url, path="/health").json["slots_free"] == 2)
        tokens, end = read_to_end(stalled)
        assert end["code"] == "CANCELLED" and 0 < len(tokens) < TOKENS
