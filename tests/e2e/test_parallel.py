"""One model on several devices: CPU devices stand for GPUs, in the worker and in the tools."""

import json
import re
import subprocess
from pathlib import Path

from stack import BIN, HANG_S, clean_env, request

MODEL = Path(__file__).resolve().parents[2] / "models/demo/fairytale-5m-f16.gguf"
TOKENS = "1,17,400,33,250,9,77,301"


def trace(tmp_path, *arguments):
    return subprocess.run(
        [str(BIN / "llorch"), "model", "trace", str(MODEL), "--tokens", TOKENS, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=clean_env(tmp_path),
    )


def test_two_devices_agree_with_one_to_rounding_and_with_themselves_to_the_bit(tmp_path):
    """SYS-2.3.1 SYS-6.3.3"""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    assert trace(tmp_path, "--out", one).returncode == 0
    done = trace(tmp_path, "--device", "cpu,cpu", "--out", two, "--against", one, "--tolerance", "0.01")
    assert done.returncode == 0 and "all equal" in done.stdout, done.stdout + done.stderr
    assert json.loads(two.read_text().splitlines()[0])["numerics"] == "cpu-2/tp2"
    for options in (["--chunk", "3"], ["--chunk", "1", "--threads", "4"]):
        done = trace(tmp_path, "--device", "cpu,cpu", "--against", two, *options)
        assert "all equal" in done.stdout, done.stdout + done.stderr


def test_what_cannot_be_shared_out_is_refused_with_the_numbers(tmp_path):
    """Refused before a weight is read, with what does not divide."""
    done = trace(tmp_path, "--device", "cpu,cpu,cpu", "--out", tmp_path / "no.jsonl")
    assert done.returncode != 0
    assert "8 attention heads cannot be shared out evenly over 3 devices" in done.stderr
    for names in ("0,0", "cpu,0", "0,"):
        assert trace(tmp_path, "--device", names, "--out", tmp_path / "no.jsonl").returncode == 2


def test_a_worker_on_two_devices_says_so_and_repeats_itself(tmp_path):
    """SYS-6.3.3 SYS-2.3.1"""
    outcomes = set()
    for run in range(2):
        worker = subprocess.Popen(
            [str(BIN / "worker-orcd"), "--model", str(MODEL), "--gpu-device", "cpu,cpu", "--self-test-dir", str(tmp_path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_env(tmp_path),
        )
        try:
            url = "http://" + json.loads(worker.stdout.readline())["bind"]
            assert request(url, path="/health").json["numerics"] == "cpu-2/tp2"
            job = {"job_id": f"job-{run}", "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0.8, "seed": 5}
            body = request(url, "POST", "/execute", job).body.decode()
            tokens = [json.loads(line)["t"] for line in re.findall(r"event: token\ndata: (.*)\n", body)]
            assert len(tokens) == 16 or "event: end" in body, body
            outcomes.add(tuple(tokens))
        finally:
            worker.terminate()
            log = worker.communicate(timeout=HANG_S)[1].decode()
        assert log.count('"model_load_device"') == 2, log
    assert len(outcomes) == 1
