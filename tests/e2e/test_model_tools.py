"""llorch model ...: the tools that need no daemon, as a user types them."""
import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LLORCH = Path(os.environ["LLORCH_BIN_DIR"]) / "llorch"
MODEL = ROOT / "models/demo/fairytale-5m-q8_0.gguf"
TOKENS = "1,17,400,33,250,9,77,301"


def llorch(*arguments, status=0):
    done = subprocess.run([LLORCH, "model", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr + done.stdout
    return done


def trace(*arguments, status=0):
    return llorch("trace", MODEL, "--tokens", TOKENS, *arguments, status=status)


def test_plan_names_every_instruction():
    text = llorch("plan", MODEL).stdout
    plan = json.loads(llorch("--json", "plan", MODEL).stdout)
    assert plan["text"] == text and plan["plan_hash"] in text
    assert text.count("multihead_attention") == text.count("swiglu") > 0
    assert llorch("plan", MODEL, "--mode", "decode").stdout.count("rmsnorm") == text.count("rmsnorm")
    assert "no vision plan" in llorch("plan", MODEL, "--mode", "vision", status=2).stderr


def test_a_trace_is_the_same_however_the_run_is_cut(tmp_path):
    recorded = tmp_path / "whole.jsonl"
    trace("--out", recorded)
    rows = recorded.read_text().splitlines()
    assert len(rows) > 1 and (len(rows) - 1) % len(TOKENS.split(",")) == 0
    assert not any("17" == str(row.get("token")) for row in map(json.loads, rows)), "a trace holds no tokens"
    for options in (["--chunk", "3"], ["--chunk", "1", "--threads", "2"]):
        assert "all equal" in trace("--against", recorded, *options).stdout
    assert json.loads(trace("--against", recorded, "--json").stdout)["equal"] is True


@pytest.mark.parametrize("command,flag", [("logits", "--out"), ("trace", "--out"), ("trace", "--dump")])
def test_files_are_replaced_only_where_that_is_said(tmp_path, command, flag):
    out, beside, recorded = tmp_path / "out", tmp_path / "out.partial", tmp_path / "recorded"
    arguments = [command, MODEL, "--tokens", TOKENS, flag, out]
    code = 0
    if flag == "--dump":
        trace("--out", recorded)
        arguments += ["--against", recorded, "--kv-dtype", "f32"]
        code = 1
    for file in (out, beside):
        file.write_text("mine")
    assert "--force" in llorch(*arguments, status=1).stderr
    assert out.read_text() == "mine"
    assert "is a directory" in llorch(*arguments[:5], tmp_path, *arguments[6:], "--force", status=1).stderr
    llorch(*arguments, "--force", status=code)
    assert out.read_bytes() != b"mine"
    assert beside.read_text() == "mine", "it is no file of this run"
    assert {path.name for path in tmp_path.iterdir()} - {"recorded"} == {"out", "out.partial"}


@pytest.mark.parametrize("command", ["logits", "trace"])
def test_a_file_that_appears_while_its_content_is_made_stays(tmp_path, command):
    out, tokens = tmp_path / "out", tmp_path / "tokens"
    os.mkfifo(tokens)
    running = subprocess.Popen([LLORCH, "model", command, MODEL, "--tokens", f"@{tokens}", "--out", out], stderr=subprocess.PIPE, text=True)
    with tokens.open("w") as fifo:  # from here on the name has been looked at
        out.write_text("somebody's")
        fifo.write(TOKENS)
    error = running.communicate()[1]
    assert running.returncode == 1 and "appeared" in error, error
    assert out.read_text() == "somebody's"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "tokens"}


def test_a_trace_stops_where_runs_part(tmp_path):
    recorded, dump = tmp_path / "f16.jsonl", tmp_path / "row.f32"
    trace("--out", recorded)
    out = trace("--against", recorded, "--kv-dtype", "f32", "--dump", dump, status=1).stdout
    assert "first difference: instruction 2 (multihead_attention)" in out
    width = json.loads(recorded.read_text().splitlines()[3])["width"]
    assert dump.stat().st_size == 4 * width
    assert "all equal" in trace("--against", recorded, "--kv-dtype", "f32", "--tolerance", "0.05").stdout


@pytest.mark.parametrize("content,why", [("", "no header"), ("{}", "no header of a trace"), ("nonsense", "no JSON object"),
                                         ('{"trace": 2}', "no header of a trace")])
def test_a_broken_trace_is_refused(tmp_path, content, why):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(content)
    assert why in trace("--against", broken, status=2).stderr


def test_a_trace_of_other_tokens_is_refused(tmp_path):
    recorded = tmp_path / "other.jsonl"
    llorch("trace", MODEL, "--tokens", "1,2,3", "--out", recorded)
    assert "tokens_sha256 is not that of this run" in trace("--against", recorded, status=2).stderr
    assert "say --out to record" in trace(status=2).stderr


def test_a_device_that_is_not_there_is_named_and_nothing_takes_its_place(tmp_path):
    done = llorch("logits", MODEL, "--tokens", TOKENS, "--device", "cuda:99", "--out", tmp_path / "x.bin", status=4)
    assert "GPU_UNAVAILABLE" in done.stderr and not (tmp_path / "x.bin").exists()
    assert "names no device" in llorch("logits", MODEL, "--tokens", TOKENS, "--device", "gpu", status=2).stderr


def test_more_rows_than_can_be_counted_are_refused(tmp_path):
    """A tensor of 2^32 rows that nothing uses, in a file of holes."""
    model, out = tmp_path / "model.gguf", tmp_path / "out.gguf"
    llorch("synth", model, "--arch", "llama", "--type", "F32", "--layers", "1", "--width", "64", "--vocab", "300")
    data = model.read_bytes()
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    first = data.index(struct.pack("<Q", 17) + b"token_embd.weight")
    name = b"blk." + b"0" * 31 + b".attn_rot_embd.weight"  # makes three times 32 bytes of its entry, so that the rest stays aligned
    entry = struct.pack("<Q", len(name)) + name + struct.pack("<IQQIQ", 2, 1, 1 << 32, 1, 1 << 20)  # F16
    model.write_bytes(data[:8] + struct.pack("<QQ", tensors + 1, keys) + data[24:first] + entry + data[first:])
    os.truncate(model, len(data) + len(entry) + (1 << 20) + (2 << 32))
    assert "FORMAT_CANNOT_EXPRESS" in llorch("quantize", model, out, "--type", "F32", status=1).stderr
    assert list(tmp_path.iterdir()) == [model]
