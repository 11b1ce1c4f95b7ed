"""llorch verify: a receipt is checked by running its request again."""

import hashlib
import json

import pytest

from engine_stack import EngineStack, entry
from fake_engine import FakeEngine
from stack import HANG_S, MODEL, MODEL_F16, ResumingClient, Stack, llorch

PROMPT = "Once upon a time there was a king"


@pytest.fixture(scope="module")
def verify(stack, tmp_path_factory):
    """Runs `llorch --json verify` against the stack; answers (exit code, what it said)."""

    def run(receipt, *args, **kwargs):
        done = llorch("--json", "--url", stack.url, "verify", receipt, *args, state_dir=stack.dir, **kwargs)
        return done.returncode, json.loads(done.stdout or done.stderr)

    return run


@pytest.fixture(scope="module")
def job(stack):
    """A completed job: its id, its end event."""
    job_id = stack.submit(prompt=PROMPT, max_tokens=24, temperature=0.8, top_k=40, seed=1001)["job_id"]
    return job_id, ResumingClient(stack, job_id).run().terminal().data


FLAGS = ["--temperature", "0.8", "--top-k", "40"]


def test_a_job_is_verified_by_its_id(stack, verify, job):
    """SYS-2.3.5 OC-TEST-7001: everything to repeat a job is in its receipt, but the prompt and the parameters."""
    code, said = verify(job[0], "--prompt", PROMPT, *FLAGS)
    assert code == 0 and said["verdict"] == "match" and not said["differences"]
    assert said["here"] == said["receipt"] == job[1]["receipt"]
    assert said["job_id"] != job[0] and stack.job(said["job_id"])["tokens_out"] == 24
    assert verify(job[0][:-1], "--prompt", PROMPT, *FLAGS)[0] == 0, "as much of the id as no other begins with"
    plain = llorch("--url", stack.url, "verify", job[0], "--prompt", PROMPT, *FLAGS, state_dir=stack.dir)
    assert plain.returncode == 0 and plain.stdout.startswith(b"match: 24 tokens")


def test_the_receipt_alone_finds_its_model(verify, job, tmp_path):
    """From a file or standard input, as the bare receipt, the end event or the job."""
    path = tmp_path / "receipt.json"
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPT)
    for form in (job[1]["receipt"], job[1]):
        path.write_text(json.dumps(form))
        assert verify(str(path), "--prompt-file", str(prompt), *FLAGS)[0] == 0
        assert verify(str(path), *FLAGS, input=PROMPT.encode())[0] == 0
        assert verify("-", "--prompt", PROMPT, *FLAGS, input=json.dumps(form).encode())[0] == 0


def test_another_request_is_told_from_another_output(verify, job, tmp_path):
    code, said = verify(job[0], "--prompt", PROMPT + "\n", *FLAGS)
    assert code == 2 and said["verdict"] == "inputs_differ" and "line break" in said["explanation"]
    assert [d["field"] for d in said["differences"]] == ["prompt_sha256"] and "job_id" not in said
    code, said = verify(job[0], "--prompt", PROMPT, "--temperature", "0.7", "--top-k", "40")
    assert code == 2 and [d["field"] for d in said["differences"]] == ["parameters_sha256"]
    assert PROMPT not in json.dumps(said)

    forged = tmp_path / "forged.json"

    def with_receipt(**changes):
        forged.write_text(json.dumps({**job[1]["receipt"], **changes}))
        return verify(str(forged), "--model", "demo", "--prompt", PROMPT, *FLAGS)

    code, said = with_receipt(output_sha256=hashlib.sha256(b"x").hexdigest())
    assert code == 1 and said["verdict"] == "output_differs" and said["job_id"]
    code, said = with_receipt(seed=1002)
    assert code == 1 and [d["field"] for d in said["differences"]] == ["output_sha256"]
    code, said = with_receipt(model_digest="sha256:" + "0" * 64)
    assert code == 2 and [d["field"] for d in said["differences"]] == ["model_digest"]
    for field in ("engine_build", "numerics", "sampler", "kv_dtype", "device_class"):
        code, said = with_receipt(**{field: "another"})
        assert code == 4 and said["verdict"] == "not_comparable" and "VERSION_MISMATCH" in said["explanation"]
        assert [d["field"] for d in said["differences"]] == [field] and "job_id" not in said


def test_an_older_receipt_without_parameters_is_still_checked(verify, job, tmp_path):
    older = tmp_path / "older.json"
    receipt = {k: v for k, v in job[1]["receipt"].items() if k != "parameters_sha256"}
    older.write_text(json.dumps(receipt))
    assert verify(str(older), "--prompt", PROMPT, *FLAGS)[0] == 0
    code, said = verify(str(older), "--prompt", PROMPT, "--temperature", "0")
    assert code == 1 and "parameters" in said["explanation"]


def test_what_cannot_be_verified_says_why(stack, verify, job, tmp_path):
    bad = tmp_path / "bad.json"

    def refused(text):
        bad.write_text(text)
        code, said = verify(str(bad), "--prompt", PROMPT)
        assert "\x1b" not in json.dumps(said, ensure_ascii=False)
        return code, said["error"]["code"]

    assert refused("no json") == (2, "INVALID_PARAMS")
    assert refused("[" * 100_000) == (2, "INVALID_PARAMS")
    assert refused(json.dumps({**job[1]["receipt"], "engine_build": "\x1b[31m"})) == (2, "INVALID_PARAMS")
    # A model that nobody serves and nobody named.
    unknown = {k: v for k, v in job[1]["receipt"].items() if k != "parameters_sha256"}
    assert refused(json.dumps({**unknown, "model_digest": "sha256:" + "1" * 64})) == (2, "INVALID_PARAMS")
    assert refused("") == (2, "INVALID_PARAMS")
    assert verify("no/such/file", "--prompt", PROMPT)[0] == 2
    code, said = verify("no-such-job", "--prompt", PROMPT)
    assert code == 1 and said["error"]["code"] == "JOB_NOT_FOUND"
    cancelled = stack.submit_held(max_tokens=400)
    stack.request("POST", f"/v2/tasks/{cancelled}/cancel")
    assert stack.wait_terminal(cancelled)["status"] == "cancelled"
    stack.gate.open()
    code, said = verify(cancelled, "--prompt", "Once upon a time")
    assert code == 2 and "no receipt" in said["error"]["message"]
    done = llorch("--url", "http://127.0.0.1:1", "verify", "some-job", "--prompt", "x", state_dir=tmp_path)
    assert done.returncode == 3


def test_a_model_that_must_be_started_first_is_compared_after_the_run(job, tmp_path):
    """The same receipt against a stack of its own, and against another model's file."""
    receipt = tmp_path / "receipt.json"
    receipt.write_text(json.dumps(job[1]["receipt"]))
    with Stack() as other:
        common = ["--json", "--url", other.url, "verify", str(receipt), "--prompt", PROMPT, *FLAGS]
        done = llorch(*common, "--model", str(MODEL_F16), state_dir=other.dir)
        assert done.returncode == 2 and "model_digest" in done.stdout.decode()
        done = llorch(*common, "--model", "demo", state_dir=other.dir)
        assert done.returncode == 0, done.stdout


def determinism(tmp_path, *args, env=None):
    done = llorch("--json", "verify", "--determinism", str(MODEL), "--quick", "--seeds", "6", *args, state_dir=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_two_processes_have_one_hash_per_request(tmp_path):
    """OC-TEST-7001 SYS-2.3.4 SYS-10.4.1: fresh processes, other threads, another instruction set; each leaves its proof."""
    first = determinism(tmp_path, "--threads", "1", env={"LLORCH_ISA": "avx2"})
    proofs = tmp_path / "proofs"
    second = determinism(tmp_path, env={"LLORCH_PROOF_DIR": str(proofs), "LLORCH_RUN_ID": "second"})
    assert first["passed"] and len(first["requests"]) == 6 and first["requests"] == second["requests"]
    assert all(cell.get("mismatches", 0) == 0 for cell in first["cells"])
    (own,) = (tmp_path / ".proof_bundle/determinism").iterdir()
    for bundle in (own, proofs / "determinism/second"):
        assert {p.name for p in bundle.iterdir()} == {"seeds.ndjson", "metadata.json", "transcript.ndjson", "timings.json", "README.md"}
        seeds = [json.loads(line) for line in (bundle / "seeds.ndjson").read_text().splitlines()]
        assert seeds == first["requests"]
    table = llorch("verify", "--determinism", str(MODEL), "--quick", "--seeds", "2", state_dir=tmp_path)
    assert table.returncode == 0 and b"deterministic: 2 requests" in table.stdout


def test_the_corpus_is_the_same_one_for_ever(tmp_path):
    """OC-TEST-7003: all of it: at least 64 seeds from 1001 up, each of the length that it always had; new ones come at the end."""
    done = llorch("--json", "verify", "--determinism", str(MODEL), "--quick", state_dir=tmp_path, timeout_s=20 * HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    requests = said["requests"]
    assert len(requests) >= 64 and [request["seed"] for request in requests] == list(range(1001, 1001 + len(requests)))
    shapes = [[request["seed"], request["prompt_tokens"], request["tokens"]] for request in requests[:64]]
    assert hashlib.sha256(json.dumps(shapes).encode()).hexdigest() == "57fbdc4f1ee576eb8892fccc1769532ebc7b7382ff259a93d4bbeb0f5f3b220e"
    assert said["passed"] and {cell["requests"] for cell in said["cells"] if cell["cell"] in ("alone", "batch 32")} == {len(requests)}


def test_settings_that_decide_bits_reach_the_engine_and_are_named(tmp_path):
    """OC-TEST-7002: a worker of ours has one slot and the cache that the configuration names, and every receipt names it; the same
    setting gives the same output again. An engine of another system gets the seed, and its cache of prompts is off."""
    for kv_dtype in ("f16", "f32"):
        with Stack({"orchestratord.kv_dtype": kv_dtype}) as stack:
            jobs = [stack.wait_terminal(stack.submit(prompt=PROMPT, max_tokens=8, seed=1001)["job_id"]) for _ in range(2)]
            worker = stack.ready_worker()
            with open(f"/proc/{worker['pid']}/cmdline") as command:
                arguments = command.read().split("\0")
            assert arguments[arguments.index("--slots") + 1] == "1" and arguments[arguments.index("--kv-dtype") + 1] == kv_dtype
            assert (worker["slots_total"], worker["kv_dtype"]) == (1, kv_dtype)
            assert [job["receipt"]["kv_dtype"] for job in jobs] == [kv_dtype] * 2
            assert jobs[0]["receipt"] == jobs[1]["receipt"]
    said = determinism(tmp_path, "--kv-dtype", "f32")
    assert said["passed"] and said["subject"]["kv_dtype"] == "f32"
    with FakeEngine("llamacpp") as engine, EngineStack([entry(engine)]) as stack:
        assert stack.wait_terminal(stack.submit(model="tale", max_tokens=4, seed=1001)["job_id"])["status"] == "completed"
        sent = next(body for body in engine.submissions() if body.get("seed") == 1001)
        assert sent["cache_prompt"] is False


def test_verify_says_how_it_is_used(tmp_path):
    for args in ([], ["job", "--quick"], ["job", "--determinism", str(MODEL)], ["--determinism"],
                 ["--determinism", str(MODEL), "--device", "gpu"]):
        assert llorch("verify", *args, state_dir=tmp_path, input=b"").returncode == 2, args
    done = llorch("verify", "--determinism", str(tmp_path / "no.gguf"), state_dir=tmp_path)
    assert done.returncode == 1 and b"no.gguf" in done.stderr
