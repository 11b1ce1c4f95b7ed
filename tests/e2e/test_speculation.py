"""Tokens computed ahead of their draw: other steps, the same bytes."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import tempfile

from stack import BIN, HANG_S, MODEL, REPO, ResumingClient, Stack, request, wait_for

TALE = "The fox said: I will run and run and run. The goat said: I will run and run and run. The fox said: I will run and run"
AHEAD = {"pool-managerd.worker_speculation": "ngram", "orchestratord.worker_slots": "4"}
REQUESTS = [
    {"prompt": TALE, "temperature": 0},
    {"prompt": TALE, "temperature": 0.7, "seed": 3, "logprobs": True, "top_logprobs": 2},
    {"prompt": TALE, "temperature": 0.9, "seed": 4, "repetition_penalty": 1.1, "stop": ["goat"]},
    {"prompt": TALE, "temperature": 0.8, "seed": 5, "regex": "( and run){1,30}\\."},
    {"prompt": "Once upon a time", "temperature": 1.2, "seed": 6},
]


def metric(url, name):
    text = request(url, path="/metrics").body.decode()
    return int(float(re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.M).group(1)))


def said(client):
    """All that must be the same: token events with their ids, log-probabilities, and how it ended."""
    end = client.terminal().data
    receipt = {k: v for k, v in end["receipt"].items() if k != "speculation"}
    tokens = [(event.id, event.data) for event in client.events if event.name == "token"]
    return tokens, end["stop_reason"], receipt


def run_all(stack):
    jobs = [stack.submit(max_tokens=60, **fields)["job_id"] for fields in REQUESTS]
    return [ResumingClient(stack, job).run() for job in jobs]


def test_answers_are_the_same_with_and_without():
    with Stack() as stack:
        plain = run_all(stack)
        assert all("speculation" not in client.terminal().data["receipt"] for client in plain)
    with Stack(settings=AHEAD) as stack:
        ahead = run_all(stack)
        assert [said(client) for client in ahead] == [said(client) for client in plain]
        assert {client.terminal().data["receipt"]["speculation"] for client in ahead} == {"ngram"}
        counts = [client.terminal().data.get("speculation", {"proposed": 0, "accepted": 0}) for client in ahead]
        assert all(0 <= count["accepted"] <= count["proposed"] for count in counts)
        # The worker's own test jobs count too.
        worker = stack.ready_worker()["uri"]
        assert metric(worker, "worker_speculation_proposed_tokens_total") >= sum(count["proposed"] for count in counts)
        assert metric(worker, "worker_speculation_accepted_tokens_total") >= sum(count["accepted"] for count in counts)


def test_a_stream_survives_a_worker_that_computed_ahead():
    with Stack(settings=AHEAD) as stack:
        whole = said(ResumingClient(stack, stack.submit(max_tokens=60, **REQUESTS[1])["job_id"]).run())
        job = stack.submit(max_tokens=60, **REQUESTS[1])["job_id"]
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        assert said(ResumingClient(stack, job).run()) == whole
        wait_for("the job to be done", lambda: stack.job(job)["status"] == "completed")


def test_choices_of_one_request_are_the_same():
    body = {"model": "demo", "prompt": TALE, "max_tokens": 30, "seed": 5, "n": 3, "temperature": 0.8}
    answers = []
    for settings in ({}, AHEAD):
        with Stack(settings=settings) as stack:
            answer = stack.request("POST", "/v1/completions", body)
            assert answer.status == 200, answer.body
            answers.append([choice["text"] for choice in answer.json["choices"]])
    assert answers[0] == answers[1] and len(set(answers[0])) == 3


PREDICTS = "qwen3_5_predicts"


@contextlib.contextmanager
def predicting_model():
    """The tiny model of tests/golden that has a layer for further tokens."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(REPO / f"tests/golden/families/{PREDICTS}.tar.xz") as archive:
            archive.extract(f"{PREDICTS}/model.gguf", scratch)
        yield pathlib.Path(scratch) / PREDICTS / "model.gguf"


@contextlib.contextmanager
def predicting_stack(speculation):
    with predicting_model() as model:
        settings = {
            "models.aliases.predicts": f"file:{model}",
            "models.allowed_roots": f"{MODEL.parent},{model.parent}",
            "pool-managerd.worker_speculation": speculation,
            "orchestratord.worker_slots": "4",
        }
        stack = Stack(settings=settings)
        del stack.env["LLORCH_STEP_GATE"]  # a worker whose steps are held proposes nothing
        with stack:
            yield stack


def predicted(stack, **fields):
    job = stack.submit(model="predicts", max_tokens=60, **fields)["job_id"]
    return ResumingClient(stack, job)


def test_the_models_own_layer_changes_no_answer_and_foresees_some():
    requests = [{"prompt": TALE, "temperature": 0}, {"prompt": "a", "temperature": 0.6, "seed": 7, "logprobs": True}]
    with predicting_stack("off") as stack:
        plain = [said(predicted(stack, **fields).run()) for fields in requests]
    with predicting_stack("mtp") as stack:
        alone = [predicted(stack, **fields).run() for fields in requests]
        beside = [client.run() for client in [predicted(stack, **fields) for fields in requests * 2]]
        assert [said(client) for client in alone] == plain
        assert [said(client) for client in beside] == plain * 2
        ends = [client.terminal().data for client in alone + beside]
        assert {end["receipt"]["speculation"] for end in ends} == {"mtp"}
        worker = stack.ready_worker()["uri"]

        # What steps take decides whether anything is proposed, so beside others it may need more answers than these.
        def accepted_after_one_more():
            assert said(predicted(stack, **requests[0]).run()) == plain[0]
            return metric(worker, "worker_speculation_accepted_tokens_total")

        accepted = wait_for("the layer to foresee a token", accepted_after_one_more)
        assert accepted <= metric(worker, "worker_speculation_proposed_tokens_total")

        job = predicted(stack, **requests[0])
        os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
        assert said(job.run()) == plain[0]


def test_a_model_without_such_a_layer_runs_without():
    with predicting_stack("mtp") as stack:
        client = ResumingClient(stack, stack.submit(model="demo", prompt=TALE, temperature=0, max_tokens=20)["job_id"]).run()
        assert "speculation" not in client.terminal().data["receipt"]


def test_a_worker_refuses_a_model_without_such_a_layer():
    refused = subprocess.run([BIN / "worker-orcd", "--model", MODEL, "--gpu", "cpu", "--speculation", "mtp"], capture_output=True,
                             text=True, timeout=HANG_S, check=False)
    assert refused.returncode != 0
    assert "layers that predict further tokens are not run of architecture llama" in refused.stderr


def test_a_worker_refuses_a_draft_with_another_vocabulary():
    with predicting_model() as other:
        refused = subprocess.run([BIN / "worker-orcd", "--model", MODEL, "--gpu", "cpu", "--speculation", "draft", "--draft-model", other],
                                 capture_output=True, text=True, timeout=HANG_S, check=False)
    assert refused.returncode != 0
    assert "the draft model has another vocabulary: it differs from token " in refused.stderr
