"""tools/gpu_sass: what it reads out of disassembled kernels, and the kernels of this build against docs/internals/gpu-sass.md."""
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def sass():
    path = str(Path(__file__).resolve().parents[2] / "tools/gpu_sass")
    spec = importlib.util.spec_from_loader("gpu_sass", importlib.machinery.SourceFileLoader("gpu_sass", path))
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_sass"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["gpu_sass"]


# As cuobjdump prints them: run<HalfMatmul<(DType)2, StreamShape>>, with a loop that multiplies around one that loads, and a loop before.
SYMBOL = ("_ZN6llorch6engine7compute4cuda7runtime43_GLOBAL__N__86ed89f0_10_kernels_cu_b7bb6d753runINS2_7kernels10HalfMatmulILNS0_8contract5DTypeE2E"
          "NS6_11StreamShapeEEEEEvNT_4ArgsE")
RESOURCES = f" Function {SYMBOL}:\n  REG:40 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:864\n"
CODE = """LDC R1, c[0x0][0x28]
LDG.E R2, desc[UR6][R4.64]
@P0 BRA 0x0010
STL [R1], R2
@!P0 LDGSTS.E.BYPASS.128 [R41], desc[UR6][R6.64], !P0
HFMA2.MMA R3, -RZ, RZ, 0, 0
LD.E.U16 R8, desc[UR6][R4.64]
@P1 BRA 0x0040
@P1 I2F.U32.RP R42, R40
@P1 MUFU.RCP R42, R42
HMMA.16816.F32 R4, R8, R2, R4
HMMA.16816.F32 R4, R8, R2, R4
@P0 BRA 0x0030
EXIT
BRA 0x00e0""".splitlines()


def dump(code):
    lines = [f"        /*{16 * i:04x}*/    {text} ;    /* 0x00000a00ff017b82 */\n   /* 0x000fe20000000800 */" for i, text in enumerate(code)]
    return f"\tcode for sm_90a\n\t\tFunction : {SYMBOL}\n" + "\n".join(lines) + "\n"


def figures(sass, code):
    (kernel,) = sass.parse(dump(code), RESOURCES).values()
    assert kernel.name == "HalfMatmul<BF16, StreamShape>"
    return sass.Figures.of(kernel)


def test_the_main_loop_is_the_outermost_one_that_multiplies(sass):
    found = figures(sass, CODE)
    assert found.cells() == ["40", "10", "2", "5.00", "0.56", "1x16 1x2", "1", "1"]


def test_without_tensor_cores_it_is_the_inner_loop_that_loads_most(sass):
    found = figures(sass, [text.replace("HMMA.16816.F32", "FFMA") for text in CODE])
    assert found.cells() == ["40", "4", "0", "-", "0.22", "1x16 1x2", "0", "1"]


def test_without_a_loop_it_is_everything(sass):
    found = figures(sass, [text for text in CODE if "BRA" not in text])
    assert (found.instructions, found.steps, found.divisions) == (11, 2, 1)


@pytest.mark.parametrize("cell, value, said", [
    (0, "41", []),  # less than 3 %
    (0, "42", ["k: registers: 40 -> 42"]),
    (1, "90", []),  # there are steps to divide by
    (3, "5.20", ["k: per step: 5.00 -> 5.20"]),
    (3, "4.00", []),
    (3, "-", ["k: per step: 5.00 -> -"]),
    (4, "0.60", []),
    (5, "9x16 1x1", ["k: narrower loads: 1x16 1x2 -> 9x16 1x1"]),
    (6, "2", ["k: divisions: 1 -> 2"]),
    (7, "2", ["k: spills: 1 -> 2"]),
])
def test_what_is_worse_is_said(sass, cell, value, said):
    then = ["40", "10", "2", "5.00", "0.56", "1x16 1x2", "1", "1"]
    now = [*then[:cell], value, *then[cell + 1:]]
    assert sass.worse("k", now, then) == said


def test_without_tensor_steps_bytes_count_and_without_bytes_instructions(sass):
    then = ["40", "10", "0", "-", "0.50", "1x4", "0", "0"]
    assert sass.worse("k", ["40", "20", "0", "-", "0.60", "1x4", "0", "0"], then) == ["k: per byte: 0.50 -> 0.60"]
    then = ["40", "10", "0", "-", "-", "-", "0", "0"]
    assert sass.worse("k", ["40", "12", "0", "-", "-", "-", "0", "0"], then) == ["k: instructions: 10 -> 12"]


def test_the_page_has_a_row_for_every_kernel_that_weighs(sass):
    page = sass.PAGE.read_text(encoding="utf-8")
    assert list(sass.page_rows(page)) == list(sass.WEIGHING)
    assert sass.page_compiler(page).startswith("V")


def test_no_kernel_is_worse_than_its_row(tool, repository):
    built = Path(os.environ.get("LLORCH_BIN_DIR", repository / "build/release/bin")).parent
    done = tool("gpu_sass", "--check", "--objects", built / "src/engine/compute/cuda/kernels.o")
    if "SKIPPED" in done.stdout:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
