"""Same request, same bytes: threads, instruction sets, chunking, restarts."""

import hashlib
import itertools
import json
import os
import signal
import struct
import subprocess

import pytest

from stack import BIN, HANG_S, MODEL, ResumingClient, Stack, llorch, wait_for

PROMPT = "Once upon a time there was a king who had three daughters"


def has_avx512():
    with open("/proc/cpuinfo") as info:
        return "avx512bw" in info.read()


ISAS = ["avx2"] + (["avx512"] if has_avx512() else [])


def test_logits_have_the_same_bits_however_they_are_computed(tmp_path):
    """OC-CORE-1030 SYS-2.3.1: f32 logits under every thread count, instruction set and chunk length: one hash."""
    if len(ISAS) == 1:
        print("no AVX-512 here: the avx512 half of this test did not run")
    ids = json.loads(llorch("--json", "model", "tokenize", str(MODEL), PROMPT * 3, state_dir=tmp_path).stdout)["tokens"]
    hashes = set()
    runs = 0
    for isa, threads, chunk in itertools.product(ISAS, (1, 2), (1, 7, len(ids))):
        for _ in range(5 if chunk == 7 else 4):
            out = tmp_path / f"logits-{runs}.f32"
            done = llorch(
                "model", "logits", str(MODEL), "--tokens", ",".join(map(str, ids)), "--out", str(out), "--chunk", str(chunk),
                "--threads", str(threads), state_dir=tmp_path, env={"LLORCH_ISA": isa},
            )
            assert done.returncode == 0, done.stderr
            data = out.read_bytes()
            assert len(data) == 4 * 2048 * len(ids)
            hashes.add(hashlib.sha256(data).hexdigest())
            runs += 1
    assert len(hashes) == 1, f"{len(hashes)} different results in {runs} runs"
    assert any(struct.unpack("<4f", data[:16]))


def test_token_ids_are_the_same_over_fifty_runs_and_five_restarts():
    """OC-TEST-7001 ORCH-3045: 50 runs of one request through the stack, over worker restarts, threads and instruction sets."""
    outputs = set()
    runs = 0
    for isa, threads in itertools.product(ISAS, ("1", "2")):
        with Stack(settings={"pool-managerd.worker_threads": threads}, env={"LLORCH_ISA": isa}) as stack:
            for _ in range(5):
                for _ in range(5):
                    job = stack.submit(prompt=PROMPT, max_tokens=24, temperature=0.8, seed=42)["job_id"]
                    client = ResumingClient(stack, job).run()
                    outputs.add((client.terminal().data["receipt"]["output_sha256"], tuple(client.tokens())))
                    runs += 1
                os.kill(stack.ready_worker()["pid"], signal.SIGKILL)
                wait_for("the worker to be gone", lambda: not stack.workers())
    assert runs >= 50 and len(outputs) == 1


def test_different_seeds_differ(stack):
    texts = set()
    for seed in range(4):
        job = stack.submit(prompt=PROMPT, max_tokens=24, temperature=1.0, seed=seed)["job_id"]
        texts.add(ResumingClient(stack, job).run().text())
    assert len(texts) == 4


def test_a_batch_of_slots_never_changes_an_answer():
    """OC-CORE-1033: alone and among neighbours, the same events."""
    with Stack(settings={"orchestratord.worker_slots": "4"}) as stack:
        alone = ResumingClient(stack, stack.submit(prompt=PROMPT, max_tokens=24)["job_id"]).run()
        jobs = [stack.submit(prompt=PROMPT if n == 2 else f"A fox number {n}", max_tokens=24, seed=7)["job_id"] for n in range(8)]
        together = ResumingClient(stack, jobs[2]).run()
        assert together.tokens() == alone.tokens()
        for job in jobs:
            stack.wait_terminal(job)


def test_the_self_test_refuses_other_bits(tmp_path):
    """ORCH-3049#decode: a worker whose logits differ from the recorded ones does not become ready."""

    def start():
        return subprocess.Popen(
            [str(BIN / "worker-orcd"), "--model", str(MODEL), "--gpu-device", "cpu", "--self-test-dir", str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )

    worker = start()
    assert b"listening" in worker.stdout.readline()
    worker.terminate()
    assert worker.wait(HANG_S) == 0
    (record,) = tmp_path.glob("*.sha256")
    record.write_text("0" * 64 + "\n")
    worker = start()
    assert worker.wait(HANG_S) == 1
    assert b"SELF_TEST_FAILED" in worker.stderr.read()
