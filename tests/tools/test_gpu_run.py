"""tools/gpu_run on the emulated device and without any, from a directory as tools/gpu_kit packs it."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

STAGES = ("correct", "probe", "speed", "profile", "sanitize")
PROGRAMS = ("test/gpu_test", "bench/gpu_bench", "bench/gpu_decode", "bin/llorch")


@pytest.fixture
def kit(repository, tmp_path):
    build = Path(os.environ.get("LLORCH_BIN_DIR", repository / "build/release/bin")).parent
    missing = [name for name in (*PROGRAMS, "golden/families") if not (build / name).exists()]
    if missing:
        pytest.skip(f"not built: {', '.join(missing)}")
    directory = tmp_path / "kit"
    (directory / "bin").mkdir(parents=True)
    for name in PROGRAMS:
        (directory / "bin" / Path(name).name).symlink_to(build / name)
    # Asks the driver where there is nvcc to build it; without, it says what it says on a machine that has none.
    probe = build / "bench/gpu_probe"
    if probe.exists():
        (directory / "bin/gpu_probe").symlink_to(probe)
    else:
        (directory / "bin/gpu_probe").write_text("#!/bin/sh\necho nothing probed: no device\nexit 4\n", encoding="utf-8")
        (directory / "bin/gpu_probe").chmod(0o755)
    (directory / "fixtures").symlink_to(build / "golden")
    shutil.copy(repository / "tools/gpu_run", directory / "gpu_run")
    return directory


def gpu_run(kit, *arguments, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([kit / "gpu_run", *arguments], cwd=kit.parent, env=environment, capture_output=True, text=True, check=False)


def results(kit, stage):
    return [json.loads(line) for line in (kit.parent / "out" / f"{stage}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_stage_says_that_there_is_no_device(kit):
    for stage in (*STAGES, "all"):
        done = gpu_run(kit, stage, "out", CUDA_VISIBLE_DEVICES="", LLORCH_GPU="")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "gpu_run: no device" in done.stdout


def test_an_unknown_stage_is_refused(kit):
    done = gpu_run(kit, "everything")
    assert done.returncode == 2 and "correct|probe|speed|profile|sanitize|all" in done.stdout


def test_the_stages_run_whole_on_the_emulated_device(kit):
    done = gpu_run(kit, "all", "out", LLORCH_GPU="emulated")
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {row["step"]: row["outcome"] for stage in STAGES for row in results(kit, stage) if "step" in row}
    assert set(outcomes.values()) == {"ok", "skipped"}, outcomes
    assert {step for step, outcome in outcomes.items() if outcome == "ok"} == {
        "smoke", "families_0", "families_1", "kernels", "synth_tiny", "decode_tiny"}
    measured = {row["name"] for row in results(kit, "speed") if "name" in row}
    assert measured == {"device", "matmul", "attention", "load", "draw", "load_model", "prefill", "decode"}
    summary = (kit.parent / "out/summary.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split(" (")[0] for line in summary] == [f"{stage}: holds" for stage in STAGES]
    table = (kit.parent / "out/table.txt").read_text(encoding="utf-8")
    assert all(row["step"] in table for stage in STAGES for row in results(kit, stage) if "step" in row)


def test_the_table_sets_a_product_beside_the_read_limit_and_torch(kit):
    rows = [
        {"stage": "speed", "step": "kernels", "outcome": "ok", "seconds": 7, "note": "exit 0, kernels.log"},
        {"stage": "speed", "name": "draw", "rows_are": "flat", "rows": 64, "us": 12.5},
        {"stage": "speed", "name": "matmul", "type": "Q8_0", "shape": "up", "rows": 8, "us": 25.0, "narrow_us": 2.5, "GB_s": 2400.0,
         "of_read_limit": 0.8, "TFLOP_s": 37.5},
        {"stage": "speed", "name": "torch_matmul", "type": "BF16", "shape": "up", "rows": 8, "us": 50},
        {"stage": "speed", "name": "decode", "model": "/tmp/x/8b-Q4_K.gguf", "batch": 8, "context": 1024, "graphs": True, "us": 900.5,
         "device_us": 880.0, "tokens_s": 8884.0, "of_read_limit": None},
    ]
    out = kit.parent / "out"
    out.mkdir()
    (out / "speed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert gpu_run(kit, "probe", "out", LLORCH_GPU="emulated").returncode == 0
    lines = [" ".join(line.split()) for line in (out / "table.txt").read_text(encoding="utf-8").splitlines()]
    assert "speed kernels ok 7 s exit 0, kernels.log" in lines
    assert "draw rows_are:flat rows:64 us:12.5" in [line.replace(": ", ":") for line in lines]
    assert "Q8_0 up 8 25.0 2.5 2400.0 0.8 37.5 50 2.00" in lines
    assert "8b-Q4_K.gguf 8 1024 true 900.5 880.0 8884.0 null" in lines


def test_what_failed_is_named_with_what_to_try(kit):
    # A device test that finds something wrong, and one of speed that cannot even begin.
    for name, text in (("gpu_test", "echo a wrong bit; exit 1"), ("gpu_bench", "exit 1")):
        (kit / "bin" / name).unlink()
        (kit / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (kit / "bin" / name).chmod(0o755)
    done = gpu_run(kit, "correct", "out", LLORCH_GPU="emulated")
    assert done.returncode == 1
    outcomes = {row["step"]: row["outcome"] for row in results(kit, "correct")}
    assert [outcomes[step] for step in ("smoke", "smoke_one_launch_at_a_time", "smoke_without_overlap", "families_1")] == ["failed"] * 4
    summary = (kit.parent / "out/summary.txt").read_text(encoding="utf-8")
    assert "correct: FAILED: smoke" in summary and "Next: " in summary
    assert "a wrong bit" in (kit.parent / "out/smoke.log").read_text(encoding="utf-8")
    assert gpu_run(kit, "speed", "out", LLORCH_GPU="emulated").returncode == 1
    assert {row["step"]: row["outcome"] for row in results(kit, "speed") if "step" in row}["decode_tiny"] == "ok"
