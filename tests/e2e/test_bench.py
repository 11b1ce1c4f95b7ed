"""llorch bench: figures of a model without daemons. What they are is not checked, only that they are there."""

import json
import os
import pty
import signal
import subprocess
import threading

import pytest

from stack import BIN, HANG_S, MODEL, clean_env, llorch

LITTLE = ["--prompt", "40", "--generate", "3", "--batch", "3,1"]
SMALL = [*LITTLE, "--runs", "2"]


def check_figures(figures):
    for figure in figures:
        assert 0 < figure["tokens_per_s_min"] <= figure["tokens_per_s"] <= figure["tokens_per_s_max"]
        assert figure["share_of_limit"] > 0 and figure["runs"] > 0
        assert figure["limit"] == ("memory_read" if figure["phase"] == "decode" else "multiply_adds")
        assert figure.get("step_bytes", 1) > 0
        assert len(figure["samples"]) == figure["runs"]
        for sample in figure["samples"]:
            assert figure["tokens_per_s_min"] <= sample["tokens_per_s"] <= figure["tokens_per_s_max"]
            assert sample["share_of_limit"] > 0 and 0 < sample["core_share"] <= 1


def test_every_figure_is_there(tmp_path):
    """ORCH-3932: each with its phase, how many sequences it ran at once, and what limits it."""
    done = llorch("--json", "bench", *SMALL, "--context", "0,100", str(MODEL), state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_figures(report["figures"])
    shapes = [(f["phase"], f["context"], f["batch"], f["tokens"], f["runs"]) for f in report["figures"]]
    assert shapes == [
        (phase, context, batch, tokens, 2)
        for context in (0, 100)
        for phase, batch, tokens in (("prefill", 1, 40), ("decode", 1, 3), ("decode", 3, 3))
    ]
    machine = report["machine"]
    assert machine["implementation"] in ("avx2", "avxvnni", "avx512", "amx") and machine["threads"] == machine["processors"] > 0
    assert machine["read_bytes_per_s"] > 0 and machine["multiply_adds_per_s"] > 0
    assert isinstance(machine["quiet"], bool) and machine["load_average"] >= 0
    assert report["model"]["weight_type"] == "Q8_0" and report["model"]["weights_bytes"] > 0
    assert report["interrupted"] is False and report["build"] and not list(tmp_path.iterdir())


def test_people_get_a_table_and_the_instruction_set_that_ran(tmp_path):
    env = {"LLORCH_ISA": "avx2"}
    done = llorch("bench", str(MODEL), *SMALL, "--context", "0", "--threads", "1", state_dir=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [["prefill", "0", "1"], ["decode", "0", "1"], ["decode", "0", "3"]]
    assert MODEL.name in lines[3] and lines[4].startswith("1 of ") and "avx2" in lines[4] and "GB/s" in lines[4]
    assert done.stderr == b"", "a bar is for terminals"


def test_a_model_by_its_configured_name(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"models:\n  aliases:\n    tale: file:{MODEL}\n    far: hf:org/far\n    lost: file:/nowhere.gguf\n")
    named = llorch("--config", str(config), "--json", "bench", "tale", *SMALL, "--context", "0", state_dir=tmp_path)
    assert named.returncode == 0, named.stderr
    assert json.loads(named.stdout)["model"]["file"] == MODEL.name
    for name, why in (("far", b"hf:org/far"), ("lost", b"/nowhere.gguf"), ("other", b"models.aliases")):
        refused = llorch("--config", str(config), "bench", name, state_dir=tmp_path)
        assert refused.returncode == 1 and b"MODEL_NOT_FOUND" in refused.stderr and why in refused.stderr


def test_contexts_without_room(tmp_path):
    """The demo's context is 512: the default of 4096 is left out and said, what was asked for is refused."""
    done = llorch("--json", "bench", str(MODEL), *SMALL, state_dir=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["contexts_left_out"] == [4096]
    for options, why in (([*SMALL, "--context", "500"], b"--context is at most 472"), (["--prompt", "513"], b"--prompt")):
        refused = llorch("bench", str(MODEL), *options, state_dir=tmp_path)
        assert refused.returncode == 2 and why in refused.stderr


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no model at all"])
def test_what_is_no_model_is_refused(tmp_path, content):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(content)
    done = llorch("--json", "bench", str(broken), state_dir=tmp_path)
    assert done.returncode in (1, 2, 4) and json.loads(done.stderr)["error"]["message"] and not done.stdout


@pytest.mark.parametrize("options", [
    ["--batch", "0"], ["--batch", "1,x"], ["--batch", ""], ["--context", ","], ["--runs", "0"], ["--context", "-1"], ["--prompt", "0"],
])
def test_wrong_usage(tmp_path, options):
    assert llorch("bench", str(MODEL), *options, state_dir=tmp_path).returncode == 2


@pytest.mark.parametrize("json_wanted", [True, False])
def test_ctrl_c_shows_what_there_is(tmp_path, json_wanted):
    """The bar on a terminal says when the first figure is there."""
    terminal, inner = pty.openpty()
    command = [str(BIN / "llorch"), *(["--json"] if json_wanted else []), "bench", str(MODEL), *LITTLE, "--runs", "10000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=inner, env=clean_env(tmp_path))
    os.close(inner)
    seen = b""
    while b"decode 3 behind 0" not in seen:
        seen += os.read(terminal, 65536)
    process.send_signal(signal.SIGINT)
    drainer = threading.Thread(target=drain, args=(terminal,), daemon=True)
    drainer.start()
    out, _ = process.communicate(timeout=HANG_S)
    drainer.join()
    os.close(terminal)
    assert process.returncode == 130
    if json_wanted:
        report = json.loads(out)
        assert report["interrupted"] is True and len(report["figures"]) >= 2
        check_figures(report["figures"])
    else:
        assert out.startswith(b"prefill") and b"interrupted" in out


def drain(terminal):
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the other end is closed
