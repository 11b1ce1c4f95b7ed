"""Outputs drawn under random JSON schemas, checked by Debian's python3-jsonschema.

The test tool grammar_walk draws by nothing but the masks; constrained_generate runs models with random weights through the
engine and the sampler. An output that was cut is judged by a way to go on that is found over single bytes.
"""
import json
import os
import random
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("jsonschema", reason="python3-jsonschema is not installed (tools/install_deps)")
from schemas import Generator, check  # noqa: E402: after the skip

SEED = int(os.environ.get("LLORCH_TEST_SEED", "20261121"))
SCHEMAS = 1000
GENERATED = int(os.environ.get("LLORCH_GENERATED_SCHEMAS", "48"))  # the nightly run says 1000
ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("LLORCH_BIN_DIR", ROOT / "build/release/bin")).parent
WALK = BUILD / "test" / "grammar_walk"
GENERATE = BUILD / "test" / "constrained_generate"

def run_tool(command, requests):
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests)
    return answers


class Tally:
    def __init__(self):
        self.ended = self.cut = self.refused = 0

    def judge(self, schema, answer):
        if "error" in answer:
            # Conditions drawn at random may exclude each other; nothing else may be refused.
            assert "no output at all" in answer["error"], (schema, answer)
            self.refused += 1
            return
        output, completed = bytes.fromhex(answer["output"]), bytes.fromhex(answer["completed"])
        assert completed.startswith(output)
        assert not answer["ended"] or completed == output
        check(schema, completed.decode("utf-8"))
        self.ended += answer["ended"]
        self.cut += not answer["ended"]


@pytest.mark.skipif(not WALK.exists(), reason=f"{WALK} is not built")
def test_outputs_of_random_schemas_validate():
    print(f"seed {SEED}")
    requests = [{"schema": Generator(f"{SEED}-{i}").schema(), "seed": SEED + i} for i in range(SCHEMAS)]
    tally = Tally()
    for request, answer in zip(requests, run_tool([WALK], requests)):
        tally.judge(request["schema"], answer)
    print(f"{tally.ended} ended, {tally.refused} refused, {tally.cut} cut")
    assert tally.ended > SCHEMAS * 8 // 10
    assert tally.refused < SCHEMAS // 10


# Every mixer and feed-forward there is, as small as their rules allow.
SHAPES = {
    "llama": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--ffn", "96"],
    "qwen3moe": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--experts", "4", "--experts-used", "2", "--expert-ffn", "32"],
    "gemma3": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--ffn", "96", "--window", "16"],
    "gpt-oss": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--experts", "4", "--experts-used", "2", "--expert-ffn", "64"],
    "deepseek2": ["--width", "64", "--heads", "4", "--experts", "4", "--experts-used", "2", "--expert-ffn", "32"],
    "mamba2": ["--width", "64"],
    "granitehybrid": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--attention-period", "2"],
    "lfm2": ["--width", "64", "--heads", "4", "--kv-heads", "2", "--ffn", "96", "--attention-period", "2"],
}
DEMO = ROOT / "models/demo/fairytale-5m-f16.gguf"


def random_model(rng, directory):
    """A model's file and the file of its tokenizer. One in nine is a trained one."""
    architecture = rng.choice([*SHAPES, None])
    if architecture is None:
        return DEMO, DEMO
    path = directory / f"{architecture}-{rng.getrandbits(32)}.gguf"
    command = [BUILD / "bin" / "llorch", "model", "synth", path, "--arch", architecture, *SHAPES[architecture], "--layers", "2",
               "--vocab", "2048", "--context", "512", "--type", rng.choice(["F32", "F16", "Q8_0"]), "--seed", str(rng.getrandbits(32))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return path, DEMO


def random_request(rng, schema):
    request = {"job_id": "job", "prompt": rng.choice(["{", "Once upon a time", "Answer in JSON.\n", "\u00fc 42"]),
               "json_schema": schema, "max_tokens": rng.choice([5, 20, 80, 300]), "seed": rng.getrandbits(63),
               "temperature": rng.choice([0, 0.4, 0.8, 1, 1.5])}
    if request["temperature"] > 0:
        request.update(rng.choice([{}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.05, "repetition_penalty": 1.1}, {"typical_p": 0.9},
                                   {"mirostat": 2}, {"frequency_penalty": 0.5, "dry_multiplier": 0.8}]))
    # Random weights seldom close a string: a bias, as a request may have one, makes more outputs end.
    return {"request": request, "closing_bias": rng.choice([0, 2, 4, 6])}


@pytest.mark.skipif(not GENERATE.exists(), reason=f"{GENERATE} is not built")
def test_what_models_write_under_random_schemas_validates(tmp_path):
    """A few schemas each under many models: ended outputs validate, cut ones are the beginning of one that does."""
    print(f"seed {SEED}, {GENERATED} schemas")
    rng = random.Random(SEED)
    tally, models, per_model = Tally(), 0, 8
    for first in range(0, GENERATED, per_model):
        schemas = [Generator(f"{SEED}-generated-{i}").schema() for i in range(first, min(first + per_model, GENERATED))]
        model, tokenizer = random_model(rng, tmp_path)
        answers = run_tool([GENERATE, model, tokenizer], [random_request(rng, schema) for schema in schemas])
        for schema, answer in zip(schemas, answers):
            tally.judge(schema, answer)
        models += 1
        if model != DEMO:
            model.unlink()
    print(f"{models} models: {tally.ended} ended, {tally.refused} refused, {tally.cut} cut")
    assert tally.ended > GENERATED // 5
    assert tally.cut > GENERATED // 10


@pytest.mark.skipif(not WALK.exists(), reason=f"{WALK} is not built")
@pytest.mark.parametrize("schema, pointer, word", [
    ({"type": "array", "contains": {"type": "null"}}, "/contains", "contains"),
    ({"properties": {"a": {"not": {}}}}, "/properties/a/not", "not"),
    ({"type": "array", "uniqueItems": True}, "/uniqueItems", "uniqueItems"),
    ({"type": "string", "nullable": 1}, "/nullable", "true or false"),
    ({"$ref": "https://example.com/x"}, "/$ref", "references"),
    ({"type": "string", "pattern": "(?=a)"}, "/pattern", "look-around"),
])
def test_what_is_not_supported_is_named(schema, pointer, word):
    (answer,) = run_tool([WALK], [{"schema": schema, "seed": 1}])
    assert pointer in answer["error"] and word in answer["error"]
