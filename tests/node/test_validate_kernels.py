"""The kernels of node/validate.py mean what they should: run instruction by instruction, and taken by NVIDIA's own assembler.

The module is never imported by the product (it is sent to nodes); its text is loaded here as a node's Python would.
"""

import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.gpus import PROGRAM
from tests.support.ptx import Kernel, Launch, Memory, kernels


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate_as_sent", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VALIDATE = loaded()
PTX: str = VALIDATE.ptx()
KERNELS = kernels(PTX)


def kernel(name: str) -> Kernel:
    return KERNELS[f"muster_{name}"]


def expected_word(index: int, mul: int, add: int, flip: int) -> int:
    return (((index % 2**32) * mul + add + (index >> 32)) % 2**32) ^ flip


def walk(memory: Memory, name: str, at: int, words: int, pattern: tuple[int, int, int], out: int) -> None:
    Launch(kernel(name), memory, (2, 1), 32, (at, words, *pattern, out)).run()


@pytest.mark.parametrize("pattern", VALIDATE.PATTERNS)
def test_filling_writes_the_pattern_to_every_word_and_to_none_beside_it(pattern: tuple[int, int, int]) -> None:
    memory, words = Memory(), 203
    at = memory.block(b"\xee" * (4 * words + 4))
    walk(memory, "fill", at, words, pattern, 0)
    found = struct.unpack(f"<{words + 1}I", memory.blocks[at])
    assert found == (*(expected_word(i, *pattern) for i in range(words)), 0xEEEEEEEE)


def test_checking_counts_every_wrong_word_and_names_the_first_and_the_bits() -> None:
    memory, words, pattern = Memory(), 203, VALIDATE.PATTERNS[1]
    at, out = memory.block(bytes(4 * words)), memory.block(struct.pack("<4Q", 0, 0, 2**64 - 1, 0))
    walk(memory, "fill", at, words, pattern, 0)
    for index, bits in ((77, 0x80), (150, 0x1), (202, 0x80000000)):
        (word,) = struct.unpack_from("<I", memory.blocks[at], 4 * index)
        struct.pack_into("<I", memory.blocks[at], 4 * index, word ^ bits)
    walk(memory, "check", at, words, pattern, out)
    assert struct.unpack("<4Q", memory.blocks[out]) == (3, 0x80000081, 77, words)


def test_checking_whole_memory_finds_nothing_and_says_that_it_read_all() -> None:
    memory, words, pattern = Memory(), 64, VALIDATE.PATTERNS[0]
    at, out = memory.block(bytes(4 * words)), memory.block(struct.pack("<4Q", 0, 0, 2**64 - 1, 0))
    walk(memory, "fill", at, words, pattern, 0)
    walk(memory, "check", at, words, pattern, out)
    assert struct.unpack("<4Q", memory.blocks[out]) == (0, 0, 2**64 - 1, words)


@pytest.mark.parametrize(("n", "block"), [(64, (0, 0)), (128, (1, 0)), (128, (0, 1))])
def test_a_block_makes_its_tile_of_the_product_and_nothing_else(n: int, block: tuple[int, int]) -> None:
    memory = Memory()
    left = [[(i * 5 + k * 11 + i * k) % 17 - 8 for k in range(n)] for i in range(n)]
    right = [[(k * 7 + j * 3 + k * j * j) % 13 - 6 for j in range(n)] for k in range(n)]
    a, b = (memory.block(struct.pack(f"<{n * n}f", *[x for row in rows for x in row])) for rows in (left, right))
    c = memory.block(struct.pack(f"<{n * n}f", *[0.5] * (n * n)))
    Launch(kernel("matmul"), memory, (n // 64, n // 64), 256, (c, a, b, n), [block]).run()
    found = struct.unpack(f"<{n * n}f", memory.blocks[c])
    for i in range(n):
        for j in range(n):
            inside = (j // 64, i // 64) == block
            wanted = sum(left[i][k] * right[k][j] for k in range(n)) if inside else 0.5
            assert found[i * n + j] == wanted, (i, j)


def test_every_sum_of_the_product_is_held_exactly_by_a_float32() -> None:
    # |A|, |B| <= 8, so that a sum and each of its parts stays below 64 n; n = 4096 is the default.
    assert 64 * 4096 < 2**24


def test_the_kernels_ask_for_nothing_newer_than_compute_capability_5() -> None:
    assert re.match(r"\.version 5\.0 \.target sm_50 \.address_size 64\n", PTX)
    assert set(KERNELS) == {"muster_fill", "muster_check", "muster_matmul"}


def assemblers() -> list[str]:
    """Every ptxas on this machine: on PATH, or in a Python package that carries one; MUSTER_PTXAS names more, with colons between."""
    named = [path for path in os.environ.get("MUSTER_PTXAS", "").split(":") if path]
    on_path = shutil.which("ptxas")
    packaged = [str(path) for root in sys.path for path in Path(root or ".").glob("nvidia/cu*/bin/ptxas")]
    return named + ([on_path] if on_path else []) + packaged


@pytest.mark.parametrize("architecture", [50, 52, 60, 61, 70, 75, 80, 86, 89, 90, 100, 103, 110, 120, 121])
def test_the_assembler_takes_the_kernels_for_every_architecture_it_knows(architecture: int, tmp_path: Path) -> None:
    source, asked = tmp_path / "kernels.ptx", 0
    source.write_text(PTX, encoding="ascii")
    for ptxas in assemblers():
        known = subprocess.run([ptxas, "--help"], capture_output=True, text=True, check=True).stdout
        if f"'sm_{architecture}'" not in known:
            continue
        words = [ptxas, "-v", "-Werror", "-arch", f"sm_{architecture}", str(source), "-o", os.devnull]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores" in done.stderr
        asked += 1
    if not asked:
        pytest.skip(f"needs a ptxas that knows sm_{architecture} (on PATH, in a package, or named by MUSTER_PTXAS)")
