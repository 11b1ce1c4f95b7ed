"""The machine code of the quantized products: their loops keep every vector in a register. A spill there, or a cleared array, costs a
third of the speed and no test of results sees it."""
import os
import re
import subprocess
from pathlib import Path

import pytest

TYPES = {3: "Q8_0", 4: "Q4_0", 9: "Q2_K", 10: "Q3_K", 11: "Q4_K", 12: "Q5_K", 13: "Q6_K"}  # engine/plan/dtype.h
# The tiles that each instruction set has, with their template arguments: rows, and for slabs weight groups (kPackedTileRows, kSlabTileRows,
# kSlabTileGroups).
TILES = {
    "avx2": [("packed_tile", (rows,)) for rows in range(1, 5)] + [("slab_tile", (rows, 1)) for rows in range(1, 5)],
    "avxvnni": [("packed_tile", (rows,)) for rows in (1, 2)] + [("slab_tile", (rows, 1)) for rows in range(1, 5)],
    "avx512": [("packed_tile", (rows,)) for rows in range(1, 9)] + [("slab_tile", (rows, groups)) for rows in range(1, 8) for groups in (1, 2)],
}

SYMBOL = re.compile(r"^[0-9a-f]+ <(?:void )?[\w:]*::\(anonymous namespace\)::(\w+)<.*?QuantWeights<\([\w:]*DType\)(\d+)>((?:, \d+)*) ?>\(.*>:$")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(.*?)\s*$")
JUMP = re.compile(r"^j\w+\s+([0-9a-f]+)\b")
STACK_VECTOR = re.compile(r"(?=.*%[xyz]mm\d)(?=.*\(%r[sb]p)")


def functions(text):
    """{(function, type, further template arguments): [(address, instruction)]} of objdump's text."""
    found, code = {}, None
    for line in text.splitlines():
        if line.endswith(">:"):
            match = SYMBOL.match(line)
            code = found.setdefault((match[1], int(match[2]), tuple(map(int, match[3].split(",")[1:]))), []) if match else None
        elif code is not None and (match := INSTRUCTION.match(line)):
            code.append((int(match[1], 16), match[2]))
    return found


def reaches(code, begin, end):
    """Whether what runs at `begin` may come to `end`: a rare case that stands behind the function's end jumps back into no loop."""
    places = {address: at for at, (address, _) in enumerate(code)}
    seen, left = set(), [begin]
    while left:
        address = left.pop()
        if address == end:
            return True
        if address in seen or address not in places:
            continue
        seen.add(address)
        text = code[places[address]][1]
        if match := JUMP.match(text):
            left.append(int(match[1], 16))
        if not text.startswith(("jmp", "ret")) and places[address] + 1 < len(code):
            left.append(code[places[address] + 1][0])
    return False


def in_loops(code):
    """The instructions between a jump back and where it goes, if that comes round to it again."""
    jumps = [(int(match[1], 16), address) for address, text in code if (match := JUMP.match(text))]
    loops = [(begin, end) for begin, end in jumps if begin <= end and reaches(code, begin, end)]
    return [text for address, text in code if any(begin <= address <= end for begin, end in loops)]


def faults(code):
    return [text for text in in_loops(code) if STACK_VECTOR.match(text) or text.startswith("rep stos")]


def allowed(isa, name, arguments):
    """Sixteen registers do not hold the sums of three rows and more for both halves of a packed group: each goes to the stack and comes
    back once a block, which costs less than to unpack the block again."""
    return 4 * arguments[0] if isa != "avx512" and name == "packed_tile" and arguments[0] > 2 else 0


LOOP = """0000000000000010 <void a::(anonymous namespace)::slab_tile<a::(anonymous namespace)::QuantWeights<(b::DType)11>, 4, 1>(a::Args const&)>:
  10:\tvmovaps %ymm0,0x8(%rsp)
  14:\tvpaddd %ymm0,%ymm1,%ymm1
  18:\t{}
  1c:\tjne    14 <void a::slab_tile+0x4>
  20:\tvmovaps 0x8(%rsp),%ymm0
"""


@pytest.mark.parametrize("instruction, wrong", [
    ("vmovaps %zmm7,0x48(%rsp)", True),
    ("vpaddw -0x40(%rbp),%ymm2,%ymm2", True),
    ("vfmadd213ps 0x8(%rsp,%rax,8),%ymm0,%ymm2", True),
    ("rep stos %rax,%es:(%rdi)", True),
    ("mov    0x18(%rsp),%rax", False),
    ("vpdpbusd %zmm1,%zmm2,%zmm3", False),
    ("vmovdqu64 0x40(%rsi),%zmm2", False),
])
def test_a_vector_on_the_stack_of_a_loop_is_seen(instruction, wrong):
    ((key, code),) = functions(LOOP.format(instruction)).items()
    assert key == ("slab_tile", 11, (4, 1))
    assert faults(code) == ([instruction] if wrong else [])


def test_a_jump_back_without_condition_closes_a_loop_that_comes_round_to_it():
    spill = "vmovaps %zmm7,0x48(%rsp)"
    (code,) = functions(LOOP.format(spill).replace("jne", "jmp")).values()
    assert faults(code) == [spill]
    (code,) = functions(LOOP.format("ret").replace("jne", "jmp")).values()
    assert in_loops(code) == []


def objects(repository, isa):
    build = Path(os.environ.get("LLORCH_BIN_DIR", repository / "build/release/bin")).parent
    cache = build / "CMakeCache.txt"
    if not cache.is_file() or not re.search(r"^CMAKE_BUILD_TYPE:\w+=Release$", cache.read_text(), re.MULTILINE):
        pytest.skip("not a release build")
    if re.search(r"^LLORCH_SANITIZE:\w+=.+$", cache.read_text(), re.MULTILINE):
        pytest.skip("a build with sanitizers")
    found = sorted((build / f"src/engine/compute/CMakeFiles/llorch_engine_kernels_{isa}.dir").rglob("*.o"))
    if not found:
        pytest.skip("the kernels are not built")
    return found


def test_tiles_multiply_for_amx_and_vectors_combine_in_registers(repository):
    """Had vectors the products too, nothing but speed would tell."""
    combines, code = {}, None
    for path in objects(repository, "amx"):
        done = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
        assert "tdpbsud" in done.stdout and "vpdpbusd" not in done.stdout
        for line in done.stdout.splitlines():
            if line.endswith(">:"):
                code = combines.setdefault(line.split(" ", 1)[1], []) if "::combine<" in line else None
            elif code is not None and (match := INSTRUCTION.match(line)):
                code.append((int(match[1], 16), match[2]))
    assert len(combines) >= 8 * len(TYPES)  # up to four rows, one group and two
    assert all(in_loops(code) for code in combines.values())
    assert {name: bad for name, code in combines.items() if (bad := faults(code))} == {}


@pytest.mark.parametrize("isa", TILES)
def test_loops_of_quantized_products_stay_in_registers(repository, isa):
    found = {}
    for path in objects(repository, isa):
        done = subprocess.run(["objdump", "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
        found |= functions(done.stdout)
    wanted = {(name, dtype, arguments) for name, arguments in TILES[isa] + [("unpack_slab", ())] for dtype in TYPES}
    assert wanted - found.keys() == set()
    assert all(in_loops(found[key]) for key in wanted)
    wrong = {f"{name}{arguments} of {TYPES[dtype]}": bad for name, dtype, arguments in wanted if len(bad := faults(found[name, dtype, arguments])) > allowed(isa, name, arguments)}
    assert wrong == {}
