#!/usr/bin/env python3
"""Exercises the GPUs of the machine it runs on, and checks what they computed: `python3 validate.py` prints one JSON object a line.

One stand-alone file for python3 >= 3.6 without any package: it is sent to a node as it is, and works through the driver's own library
(libcuda.so.1) by ctypes, with kernels in PTX for compute capability 5.0 upward that the driver compiles. Every test runs in a process of
its own under a deadline: a GPU that hangs is a finding of that test, and never holds up this program. A result is compared as a whole with
one that is known exactly; no figure counts that came from a wrong result, and a rate of 0 is a failure.

It changes nothing that outlives it, judges no figure (floors are the control side's), and asks neither for jobs nor for leases: whoever
starts it does. `pass`, `fail`, `unknown` (could not be tried, said why), `skip` (does not apply here). Exit status: 0 all passed or skipped,
1 something failed, 5 nothing failed and something is unknown, 2 usage.
"""

import argparse
import array
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import uuid
from typing import Any, Callable, Dict, List, Sequence, Tuple

Body = Dict[str, Any]
SCHEMA = "muster.node-validate/1"
PASS, SKIP, UNKNOWN, FAIL = "pass", "skip", "unknown", "fail"
ORDER = (SKIP, PASS, UNKNOWN, FAIL)

HEAD = ".version 5.0 .target sm_50 .address_size 64\n"  # read by every driver since 361, for every GPU since Maxwell

WALK = """
.visible .entry NAME(.param .u64 at, .param .u64 words, .param .u32 mul, .param .u32 add, .param .u32 flip, .param .u64 out)
{
    .reg .pred %p<3>; .reg .b32 %r<16>; .reg .b64 %d<16>;
    ld.param.u64 %d1, [at]; ld.param.u64 %d2, [words]; ld.param.u64 %d9, [out];
    ld.param.u32 %r10, [mul]; ld.param.u32 %r11, [add]; ld.param.u32 %r12, [flip];
    cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d9, %d9;
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mov.u32 %r4, %nctaid.x;
    cvt.u64.u32 %d4, %r3; mad.wide.u32 %d3, %r1, %r2, %d4;      // d3: index of this thread's first word
    mul.wide.u32 %d5, %r4, %r2; mov.u64 %d8, 0;                 // d5: threads of the grid; d8: words seen
STEP:
    setp.ge.u64 %p1, %d3, %d2; @%p1 bra DONE;
    cvt.u32.u64 %r5, %d3; shr.u64 %d6, %d3, 32; cvt.u32.u64 %r6, %d6;
    mad.lo.u32 %r7, %r5, %r10, %r11; add.u32 %r7, %r7, %r6; xor.b32 %r7, %r7, %r12;   // r7: the word that belongs there
    shl.b64 %d7, %d3, 2; add.u64 %d7, %d1, %d7;
BODY
    add.u64 %d3, %d3, %d5; bra STEP;
DONE:
LAST
    ret;
}
"""
# Each thread takes every (threads of the grid)th word. At index i belongs (low(i) * mul + add + high(i)) ^ flip, low and high 32 bits.

CHECK = """
    ld.global.u32 %r8, [%d7]; add.u64 %d8, %d8, 1; xor.b32 %r9, %r8, %r7;
    setp.eq.u32 %p2, %r9, 0; @%p2 bra GOOD;
    red.global.add.u64 [%d9], 1; red.global.or.b32 [%d9+8], %r9; red.global.min.u64 [%d9+16], %d3;
GOOD:
"""
READ = "    red.global.add.u64 [%d9+24], %d8;"
# `out`: wrong words (u64), which bits were ever wrong (u32), the first wrong index (u64); last how many words were read (u64), without which
# a kernel that did not run at all would look like memory without a fault.

TILE, STEP, THREADS = 64, 16, 256
MUL, ONES, NULL = 2654435761, 0xFFFFFFFF, ctypes.c_void_p()

MATMUL = """
.visible .entry muster_matmul(.param .u64 pc, .param .u64 pa, .param .u64 pb, .param .u32 pn)
{
    .reg .pred %p<2>; .reg .b32 %r<32>; .reg .b64 %d<16>; .reg .f32 %c<16>, %a<4>, %b<4>, %l<4>;
    .shared .align 16 .b8 left[4096]; .shared .align 16 .b8 right[4096];
    ld.param.u64 %d3, [pc]; ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u32 %r9, [pn];
    cvta.to.global.u64 %d1, %d1; cvta.to.global.u64 %d2, %d2; cvta.to.global.u64 %d3, %d3;
    mov.u32 %r0, %tid.x; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y; shl.b32 %r3, %r3, 6; shl.b32 %r4, %r4, 6;
    and.b32 %r1, %r0, 15; shl.b32 %r1, %r1, 2; shr.u32 %r2, %r0, 4; shl.b32 %r2, %r2, 2;   // r1 column, r2 row of its 4 x 4
    shr.u32 %r5, %r0, 2; and.b32 %r6, %r0, 3; shl.b32 %r6, %r6, 2; shr.u32 %r7, %r0, 4;    // brings A[r5][r6..], B[r7][r1..]
    add.u32 %r10, %r4, %r5; mul.wide.u32 %d4, %r10, %r9; cvt.u64.u32 %d5, %r6; add.u64 %d4, %d4, %d5;
    shl.b64 %d4, %d4, 2; add.u64 %d1, %d1, %d4;
    mul.wide.u32 %d4, %r7, %r9; add.u32 %r10, %r3, %r1; cvt.u64.u32 %d5, %r10; add.u64 %d4, %d4, %d5;
    shl.b64 %d4, %d4, 2; add.u64 %d2, %d2, %d4; mul.wide.u32 %d6, %r9, 64;                 // d6: 16 rows of B in bytes
    mov.u32 %r20, left; mov.u32 %r21, right;
    shl.b32 %r11, %r6, 8; shl.b32 %r12, %r5, 2; add.u32 %r22, %r20, %r11; add.u32 %r22, %r22, %r12;   // left[column][row]
    shl.b32 %r11, %r0, 4; add.u32 %r23, %r21, %r11;                                        // right[row][column]
    shl.b32 %r11, %r2, 2; add.u32 %r24, %r20, %r11; shl.b32 %r11, %r1, 2; add.u32 %r25, %r21, %r11;
    shr.u32 %r8, %r9, 4;
CLEAR
STEP:
    ld.global.v4.f32 {%l0, %l1, %l2, %l3}, [%d1]; st.shared.f32 [%r22], %l0; st.shared.f32 [%r22+256], %l1;
    st.shared.f32 [%r22+512], %l2; st.shared.f32 [%r22+768], %l3;
    ld.global.v4.f32 {%l0, %l1, %l2, %l3}, [%d2]; st.shared.v4.f32 [%r23], {%l0, %l1, %l2, %l3}; bar.sync 0;
SUMS
    bar.sync 0; add.u64 %d1, %d1, 64; add.u64 %d2, %d2, %d6; sub.u32 %r8, %r8, 1; setp.ne.u32 %p1, %r8, 0; @%p1 bra STEP;
    add.u32 %r10, %r4, %r2; mul.wide.u32 %d4, %r10, %r9; add.u32 %r10, %r3, %r1; cvt.u64.u32 %d5, %r10;
    add.u64 %d4, %d4, %d5; shl.b64 %d4, %d4, 2; add.u64 %d3, %d3, %d4; mul.wide.u32 %d7, %r9, 4;
    st.global.v4.f32 [%d3], {%c0, %c1, %c2, %c3}; add.u64 %d3, %d3, %d7;
    st.global.v4.f32 [%d3], {%c4, %c5, %c6, %c7}; add.u64 %d3, %d3, %d7;
    st.global.v4.f32 [%d3], {%c8, %c9, %c10, %c11}; add.u64 %d3, %d3, %d7;
    st.global.v4.f32 [%d3], {%c12, %c13, %c14, %c15}; ret;
}
"""
# C = A B, n by n, row by row, float32, n a multiple of 64. A block of 256 threads makes a 64 x 64 tile of C, each thread 4 x 4 of it. In each
# of n/16 steps the block brings 64 x 16 of A (turned, so that a column is read as one vector) and 16 x 64 of B to shared memory.


def ptx() -> str:
    """All kernels as one PTX module."""
    fill = WALK.replace("NAME", "muster_fill").replace("BODY", "    st.global.u32 [%d7], %r7;").replace("LAST", "")
    check = WALK.replace("NAME", "muster_check").replace("BODY", CHECK).replace("LAST", READ)
    sums = []
    for k in range(STEP):
        for name, register in (("a", "%r24"), ("b", "%r25")):
            four = ", ".join(f"%{name}{i}" for i in range(4))
            sums.append(f"    ld.shared.v4.f32 {{{four}}}, [{register}+{256 * k}];")
        sums += [f"    fma.rn.f32 %c{i}, %a{i // 4}, %b{i % 4}, %c{i};" for i in range(16)]
    clear = "\n".join(f"    mov.f32 %c{i}, 0f00000000;" for i in range(16))
    return HEAD + fill + check + MATMUL.replace("CLEAR", clear).replace("SUMS", "\n".join(sums))


ERRORS = {
    1: "invalid value", 2: "out of memory", 46: "the device is busy or held exclusively by another process", 100: "no CUDA device",
    201: "invalid context", 209: "no kernel image for this GPU", 214: "uncorrectable ECC error", 218: "the kernels could not be compiled",
    220: "uncorrectable NVLink error", 221: "the driver's PTX compiler is missing (libnvidia-ptxjitcompiler.so.1)",
    700: "illegal address", 702: "the kernel timed out", 719: "a kernel failed",
    802: "the system is not ready: on an NVSwitch machine nvidia-fabricmanager has not finished, or does not run",
    803: "the driver's library and the loaded kernel module do not belong together", 999: "unknown error; often nvidia_uvm is not loaded",
}  # fmt: skip
NOT_TRIED, NOT_READY, NO_MEMORY = (2, 46, 209, 221), 802, 2
"""Codes that say that a test could not be tried here and now; that the system is not ready yet; that there is no memory left."""


class Finding(Exception):
    """Ends a test with a verdict that is not `pass`; `code` is the driver's when a call of it did not succeed."""

    def __init__(self, verdict: str, why: str, code: int = 0) -> None:
        super().__init__(why)
        self.verdict, self.why, self.code = verdict, why, code


class Cuda:
    """The driver's library; newer ones may have a call under its second name alone. Raises Finding for a call that does not return 0."""

    def __init__(self, ready_wait_s: float) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Finding(UNKNOWN, f"libcuda.so.1 cannot be loaded: {error}")
        until = time.monotonic() + ready_wait_s
        while True:
            try:
                return self("cuInit", ctypes.c_uint(0))
            except Finding as error:
                if error.code != NOT_READY or time.monotonic() >= until:
                    raise
            time.sleep(min(1.0, ready_wait_s))

    def __call__(self, name: str, *arguments: Any) -> None:
        code = int((getattr(self._lib, name, None) or getattr(self._lib, f"{name}_v2"))(*arguments))
        if code:
            words = f"{name} returns {code} ({ERRORS.get(code, 'see cuda.h')})"
            raise Finding(UNKNOWN if code in NOT_TRIED else FAIL, words, code)

    def number(self, name: str, *arguments: Any) -> int:
        """What a call gives back through its first argument, an int."""
        value = ctypes.c_int()
        self(name, ctypes.byref(value), *arguments)
        return value.value


class Gpu:
    """One GPU with its primary context, current in this thread (`use`). Its memory goes with the process."""

    def __init__(self, cuda: Cuda, index: int) -> None:
        self.cuda = cuda
        self.device = ctypes.c_int(cuda.number("cuDeviceGet", ctypes.c_int(index)))
        self.context, self._module = ctypes.c_void_p(), ctypes.c_void_p()
        cuda("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.use()

    def use(self) -> None:
        self.cuda("cuCtxSetCurrent", self.context)

    def free(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        at = ctypes.c_uint64()
        self.cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
        return at

    def set(self, at: ctypes.c_uint64, byte: int, size: int) -> None:
        self.cuda("cuMemsetD8_v2", at, ctypes.c_ubyte(byte), ctypes.c_size_t(size))

    def bring(self, at: ctypes.c_uint64, data: bytes) -> None:
        self.cuda("cuMemcpyHtoD_v2", at, ctypes.c_char_p(data), ctypes.c_size_t(len(data)))

    def fetch(self, at: ctypes.c_uint64, size: int) -> bytes:
        data = ctypes.create_string_buffer(size)
        self.cuda("cuMemcpyDtoH_v2", data, at, ctypes.c_size_t(size))
        return data.raw

    def launch(self, name: bytes, grid: Tuple[int, int], *arguments: Any) -> None:
        if not self._module.value:
            self.cuda("cuModuleLoadData", ctypes.byref(self._module), ctypes.c_char_p(ptx().encode("ascii")))
        function = ctypes.c_void_p()
        self.cuda("cuModuleGetFunction", ctypes.byref(function), self._module, ctypes.c_char_p(name))
        given = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(each) for each in arguments])
        sizes = [ctypes.c_uint(each) for each in (grid[0], grid[1], 1, THREADS, 1, 1, 0)]
        self.cuda("cuLaunchKernel", function, *sizes, NULL, given, NULL)

    def timed(self, times: int, work: Callable[..., object], *arguments: Any, stream: Any = NULL) -> float:
        """Seconds of GPU time that `times` calls of `work(*arguments)` take together. Raises Finding for a clock that stands still."""
        events, took = [ctypes.c_void_p(), ctypes.c_void_p()], ctypes.c_float()
        for event in events:
            self.cuda("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        self.cuda("cuEventRecord", events[0], stream)
        for _ in range(times):
            work(*arguments)
        self.cuda("cuEventRecord", events[1], stream)
        self.cuda("cuEventSynchronize", events[1])
        self.cuda("cuEventElapsedTime", ctypes.byref(took), *events)
        if not 0 < took.value < float("inf"):
            raise Finding(FAIL, f"the GPU measures {took.value} ms for its work")
        return took.value / 1e3

    def fill(self, at: ctypes.c_uint64, size: int, pattern: int) -> float:
        return self._walk(b"muster_fill", at, size, pattern, ctypes.c_uint64())

    def check(self, at: ctypes.c_uint64, size: int, pattern: int, what: str) -> float:
        """Seconds it took. Raises Finding unless every word that `fill` wrote is there, and was read."""
        out = self.allocate(32)
        self.bring(out, struct.pack("<4Q", 0, 0, 2**64 - 1, 0))
        took = self._walk(b"muster_check", at, size, pattern, out)
        wrong, bits, first, read = struct.unpack("<4Q", self.fetch(out, 32))
        self.cuda("cuMemFree_v2", out)
        words = f"{what}: {wrong} of {size // 4} words are wrong, the first at byte {4 * first}, bits {bits:#010x}"
        if wrong or read != size // 4:
            raise Finding(FAIL, words if wrong else f"{what}: the GPU read {read} of {size // 4} words")
        return took

    def _walk(self, kernel: bytes, at: ctypes.c_uint64, size: int, pattern: int, out: ctypes.c_uint64) -> float:
        how = [ctypes.c_uint32(each) for each in PATTERNS[pattern]]
        return self.timed(1, self.launch, kernel, (4096, 1), at, ctypes.c_uint64(size // 4), *how, out)


PATTERNS = ((MUL, 1, 0), (MUL, 1, ONES), (0, 0x55555555, 0), (0, 0xAAAAAAAA, 0), (0, 0, 0), (0, ONES, 0))
"""(mul, add, flip) of `WALK`. The first names every word by its place (a line of the address that sticks shows), the second turns every
bit of it, the others hold each bit at both values beside equal and unlike neighbours."""


def matmul(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """Products of two matrices of small whole numbers, which float32 holds exactly whatever the order of its sums, compared as a whole.

    A repeats a 16 x 16 table along its rows and columns, B another: so does C, with a table made here. |sum| <= 64 n, below 2**24 for every
    n that fits a GPU. Done for `--load-s` seconds of GPU time, and compared every half second.
    """
    gpu, n = Gpu(cuda, device), given.matmul_n
    left, right = [[[(7 * i + 5 * k + k * k * f) % 17 - 8 for k in range(16)] for i in range(16)] for f in (1, 3)]
    made = [[n // 16 * sum(left[i][k] * right[k][j] for k in range(16)) for j in range(16)] for i in range(16)]
    rows = [[array.array("f", row).tobytes() * (n // 16) for row in table] for table in (left, right, made)]
    size = 4 * n * n
    c, a, b = (gpu.allocate(size) for _ in range(3))
    gpu.bring(a, b"".join(rows[0]) * (n // 16))
    gpu.bring(b, b"".join(rows[1]) * (n // 16))

    def multiply(times: int, when: str) -> float:
        gpu.set(c, 0xFF, size)  # not a number, wherever a kernel that does not run leaves it
        took = gpu.timed(times, gpu.launch, b"muster_matmul", (n // TILE, n // TILE), c, a, b, ctypes.c_uint32(n))
        got = gpu.fetch(c, size)
        for i in range(n):
            row = got[4 * n * i : 4 * n * (i + 1)]
            if row != rows[2][i % 16]:
                exact_or_raise(row, rows[2][i % 16], f"{when}, row {i}")

        return took

    multiply(1, "the first product")  # which waits for the driver's compiler
    once, spent, done = multiply(1, "the second product"), 0.0, 0
    times = max(1, min(1000, int(min(0.5, given.load_s) / once)))
    while spent < given.load_s:
        done += times
        spent += multiply(times, f"product {done} under load")
    return {"matmul_tflops": 2.0 * n * n * n * done / spent / 1e12}


def exact_or_raise(got: bytes, wanted: bytes, what: str) -> None:
    """Raises Finding, with the first number that differs, unless both hold the same float32s."""
    pairs = zip(struct.iter_unpack("<f", got), struct.iter_unpack("<f", wanted))
    wrong = [(j, x, y) for j, ((x,), (y,)) in enumerate(pairs) if x != y]
    if wrong:
        first = "number {} is {}, should be {}".format(*wrong[0])
        raise Finding(FAIL, f"{what}: {len(wrong)} of {len(got) // 4} numbers are wrong, {first}")


def memory(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """Pattern after pattern written over a share of the free memory and read back, until all were or `--sweep-s` is over."""
    gpu = Gpu(cuda, device)
    wanted = int(gpu.free() * given.memory_share)
    chunk = max(1 << 20, min(1 << 30, wanted // 4)) & ~0xFFF
    chunks: List[ctypes.c_uint64] = []
    try:
        while (len(chunks) + 1) * chunk <= wanted:
            chunks.append(gpu.allocate(chunk))
    except Finding as error:
        if error.code != NO_MEMORY:
            raise
    covered = len(chunks) * chunk
    if covered < wanted // 2:
        raise Finding(UNKNOWN, f"only {covered >> 20} of {wanted >> 20} MiB could be had")
    gpu.fill(chunks[0], 4096, 0)  # which waits for the driver's compiler
    began, spent = time.monotonic(), 0.0
    for pattern in range(len(PATTERNS)):
        spent += sum([gpu.fill(at, chunk, pattern) for at in chunks])
        spent += sum([gpu.check(at, chunk, pattern, f"memory, pattern {pattern}") for at in chunks])
        if time.monotonic() - began > given.sweep_s and pattern:
            break
    rate = 2.0 * covered * (pattern + 1) / spent / 1e9
    return {"memory_mib": covered >> 20, "memory_patterns": pattern + 1, "memory_gbps": rate}


def copies(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """Pinned memory to the GPU, from one place there to another, and back: the same bytes, every word checked on the GPU as well."""
    gpu, size = Gpu(cuda, device), given.copy_mib << 20
    pinned, back = ctypes.c_void_p(), ctypes.c_void_p()
    for each in (pinned, back):
        cuda("cuMemAllocHost_v2", ctypes.byref(each), ctypes.c_size_t(size))
    data = os.urandom(size)
    ctypes.memmove(pinned, data, size)
    one, two = gpu.allocate(size), gpu.allocate(size)
    count = ctypes.c_size_t(size)

    def rate(name: str, *arguments: Any) -> float:
        return float(given.copies * size / gpu.timed(given.copies, cuda, name, *arguments) / 1e9)

    figures = {"h2d_gbps": rate("cuMemcpyHtoDAsync_v2", one, pinned, count, NULL)}
    figures["d2d_gbps"] = 2 * rate("cuMemcpyDtoDAsync_v2", two, one, count, NULL)  # each byte is read and written
    figures["d2h_gbps"] = rate("cuMemcpyDtoHAsync_v2", back, two, count, NULL)
    if ctypes.string_at(back, size) != data:
        raise Finding(FAIL, "what went to the GPU, across it and back came back changed")
    gpu.fill(one, size, 0)
    gpu.set(two, 0, size)
    cuda("cuMemcpyDtoDAsync_v2", two, one, count, NULL)
    gpu.check(two, size, 0, "copy on the GPU")
    return figures


def peers(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """From this GPU to every other: every word is there, written by this one and read by the other. The rate is the slowest one's."""
    others = [other for other in range(cuda.number("cuDeviceGetCount")) if other != device]
    if not others:
        raise Finding(SKIP, "one GPU has no peer")
    size, rates, direct = given.copy_mib << 20, [], 0
    source = Gpu(cuda, device)
    here = source.allocate(size)
    source.fill(here, size, 0)
    for other in others:
        say({"doing": f"copying to GPU {other}"})
        target = Gpu(cuda, other)
        there = target.allocate(size)
        target.set(there, 0, size)
        cuda("cuCtxSynchronize")
        source.use()
        if cuda.number("cuDeviceCanAccessPeer", source.device, target.device):
            direct += 1
            cuda("cuCtxEnablePeerAccess", target.context, ctypes.c_uint(0))
        ends = (there, target.context, here, source.context, ctypes.c_size_t(size), NULL)
        rates.append(given.copies * size / source.timed(given.copies, cuda, "cuMemcpyPeerAsync", *ends) / 1e9)
        target.use()
        target.check(there, size, 0, f"copy to GPU {other}")
        cuda("cuMemFree_v2", there)
    return {"peer_gbps": min(rates), "peers_direct": direct}


def devices(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """Which GPUs answer, and what they are."""
    version, gpus = cuda.number("cuDriverGetVersion"), []
    for index in range(cuda.number("cuDeviceGetCount")):
        say({"doing": f"opening GPU {index}"})
        gpu, name, raw = Gpu(cuda, index), ctypes.create_string_buffer(96), (ctypes.c_ubyte * 16)()
        cuda("cuDeviceGetName", name, ctypes.c_int(len(name)), gpu.device)
        cuda("cuDeviceGetUuid", raw, gpu.device)
        major, minor = (cuda.number("cuDeviceGetAttribute", ctypes.c_int(which), gpu.device) for which in (75, 76))
        words = {"name": name.value.decode("utf-8", "replace"), "uuid": f"GPU-{uuid.UUID(bytes=bytes(raw))}"}
        gpus.append(dict(words, cc=f"{major}.{minor}", free_mib=gpu.free() >> 20))
    if not gpus:
        raise Finding(FAIL, "the driver counts no GPU")
    return {"cuda": f"{version // 1000}.{version % 1000 // 10}", "gpus": gpus}


def allreduce(cuda: Cuda, device: int, given: argparse.Namespace) -> Body:
    """NCCL's sum over all GPUs, rank r giving (r + 1) times known whole numbers: every rank must hold every sum exactly.

    The rate is the bus bandwidth as nccl-tests count it: bytes / time * 2 (n - 1) / n.
    """
    count = cuda.number("cuDeviceGetCount")
    if count < 2:
        raise Finding(SKIP, "one GPU has nobody to sum with")
    try:
        nccl = ctypes.CDLL(given.nccl or "libnccl.so.2")
    except OSError as error:
        raise Finding(UNKNOWN if given.nccl else SKIP, f"no libnccl: {error}")
    say({"doing": "bringing numbers to every GPU"})
    known = array.array("f", (i % 1009 for i in range(1 << 18)))
    size = given.copy_mib << 20
    ranks = [rank_of(Gpu(cuda, index), size, [x * (index + 1) for x in known]) for index in range(count)]
    comms, elements = (ctypes.c_void_p * count)(), ctypes.c_size_t(size // 4)
    float32, total = ctypes.c_int(7), ctypes.c_int(0)

    def call(name: str, *arguments: Any) -> None:
        code = int(getattr(nccl, name)(*arguments))
        if code:
            raise Finding(FAIL, f"{name} returns {code}")

    def reduce() -> None:
        call("ncclGroupStart")
        for comm, (gpu, ours, sums, stream) in zip(comms, ranks):
            gpu.use()
            call("ncclAllReduce", ours, sums, elements, float32, total, ctypes.c_void_p(comm), stream)
        call("ncclGroupEnd")
        ranks[0][0].use()

    say({"doing": "starting NCCL"})
    call("ncclCommInitAll", comms, ctypes.c_int(count), (ctypes.c_int * count)(*range(count)))
    say({"doing": f"all-reduce over {count} GPUs"})
    first, _, _, lane = ranks[0]
    first.use()
    first.timed(1, reduce, stream=lane)
    took = first.timed(given.copies, reduce, stream=lane) / given.copies
    wanted = array.array("f", (x * (count * (count + 1) // 2) for x in known)).tobytes()
    for rank, (gpu, _, sums, stream) in enumerate(ranks):
        gpu.use()
        cuda("cuStreamSynchronize", stream)
        got = gpu.fetch(sums, size)
        for at in range(0, size, len(wanted)):
            exact_or_raise(got[at : at + len(wanted)], wanted, f"sum on rank {rank}")
    return {"allreduce_gbps": size / took * 2 * (count - 1) / count / 1e9}


def rank_of(gpu: Gpu, size: int, numbers: Sequence[float]) -> Tuple[Gpu, Any, Any, Any]:
    """A GPU, the numbers repeated over `size` bytes of it, room for the sums, and a stream."""
    ours, sums, stream = gpu.allocate(size), gpu.allocate(size), ctypes.c_void_p()
    gpu.bring(ours, array.array("f", numbers).tobytes() * (size // 4 // len(numbers)))
    gpu.set(sums, 0xFF, size)
    gpu.cuda("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
    gpu.cuda("cuCtxSynchronize")
    return gpu, ours, sums, stream


TESTS = {each.__name__: each for each in (devices, matmul, memory, copies, peers, allreduce)}
EACH_GPU, ONE_BY_ONE, JOINT = ("matmul", "memory", "copies", "peers"), ("copies", "peers"), ("peers", "allreduce")
"""Tests that run on every GPU: at the same time, but for those whose figures the neighbours would spoil. JOINT ones need all GPUs alive."""


def say(body: Body) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(body, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def be_child(given: argparse.Namespace) -> int:
    """One test on one GPU, told to the parent over standard output. Ends at once: a library's own goodbye can hang on a broken GPU."""
    try:
        say({"verdict": PASS, "figures": TESTS[given.child](Cuda(given.ready_wait_s), given.device, given)})
    except Finding as finding:
        say({"verdict": finding.verdict, "why": finding.why})
    except (OSError, MemoryError, AttributeError) as error:
        say({"verdict": UNKNOWN, "why": f"{type(error).__name__}: {error}"})
    os._exit(0)


class Child:
    """A test that runs. `told` is its last line that was a result."""

    def __init__(self, test: str, device: int, options: Sequence[str]) -> None:
        words = [sys.executable, "-B", os.path.abspath(__file__), *options, "--child", test, "--device", str(device)]
        environment = dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_CACHE_DISABLE="1")  # as nvidia-smi counts
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        self.device, self.doing, self._rest = device, "starting", b""
        self.told: Body = {}
        pipes: Dict[str, int] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(words, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload]
        assert self._process.stdout is not None
        self.output = self._process.stdout.fileno()

    def read(self) -> bytes:
        """Take what it says; empty when it has ended."""
        data = os.read(self.output, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in (line for line in lines if line.startswith(b"{")):
            body = json.loads(line.decode("utf-8"))
            self.doing = body.get("doing", self.doing)
            self.told = body if "verdict" in body else self.told
        return data

    def end(self, limit_s: float) -> Body:
        """Its result; of one that has not given any within `limit_s`, that it hangs. Never waits for long: one in the kernel's hands stays."""
        hangs = not self.told and limit_s >= 0
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
            how = f"ends with {self._process.wait(2)}"
        except subprocess.TimeoutExpired:
            how, hangs = "cannot be killed", True
        why = f"hangs ({how}): no result within {limit_s:g} s" if hangs else f"{how} without a result"
        return self.told or {"verdict": FAIL, "why": f"{why}; it was {self.doing}", "hangs": hangs}


def supervise(test: str, devices: Sequence[int], options: Sequence[str], limit_s: float) -> Dict[int, Body]:
    """The test on these GPUs at the same time: a result for each, within `limit_s` and a few seconds whatever happens."""
    running = [Child(test, device, options) for device in devices]
    talking = {child.output: child for child in running}
    until = time.monotonic() + limit_s
    while talking and time.monotonic() < until:
        for output in select.select(list(talking), [], [], max(0, until - time.monotonic()))[0]:
            if not talking[output].read() or talking[output].told:
                del talking[output]
    return {child.device: child.end(limit_s if child.output in talking else -1) for child in running}


def report(test: str, results: Dict[int, Body], took_s: float) -> Body:
    """The results of all GPUs as one line: the worst verdict, why, and each figure as a list in the order of the GPUs."""
    verdict = max((each["verdict"] for each in results.values()), key=ORDER.index)
    worst = [(i, each["why"]) for i, each in sorted(results.items()) if each["verdict"] == verdict and each.get("why")]
    whys = [f"GPU {i}: {why[:200]}" for i, why in worst]
    if test not in EACH_GPU or verdict == SKIP:
        whys = [why for _, why in worst[:1]]
    more = [f"and {len(whys) - 3} more"] if len(whys) > 3 else []
    measured = [each.get("figures") or {} for _, each in sorted(results.items())]
    figures = measured[0] if test == "devices" else {}
    for name in sorted({name for each in measured for name in each} - set(figures)):
        figures[name] = [float(f"{each[name]:.4g}") if name in each else None for each in measured]
    body = {"test": test, "verdict": verdict, "why": "; ".join(whys[:3] + more)[:700], "took_s": round(took_s, 1)}
    body["figures"] = figures
    say(body)
    return body


def run_all(given: argparse.Namespace, options: Sequence[str]) -> int:
    """Every test, each told as soon as it is over; at last a line `end` with the worst verdict."""
    gpus, verdicts, began = [0], [], time.monotonic()
    hung: List[int] = []
    say({"schema": SCHEMA, "python": sys.version.split()[0], "tests": given.tests})
    for test in ["devices"] + [name for name in TESTS if name in given.tests and name != "devices"]:
        at, results = time.monotonic(), {}
        for batch in [[gpu] for gpu in gpus] if test in ONE_BY_ONE else [gpus if test in EACH_GPU else gpus[:1]]:
            allowed = given.deadline_s + (given.ready_wait_s if test == "devices" else 0)
            left = given.limit_s - (time.monotonic() - began)
            live = [gpu for gpu in batch if left > 0 and not (hung and test in JOINT) and gpu not in hung]
            why = "not tried: " + (f"GPU {hung[0]} hangs" if left > 0 and hung else "the time for all tests is over")
            results.update({gpu: {"verdict": UNKNOWN, "why": why} for gpu in batch})
            results.update(supervise(test, live, options, min(allowed, left)))
        hung += [gpu for gpu, result in sorted(results.items()) if result.get("hangs")]
        line = report(test, results, time.monotonic() - at)
        verdicts.append(line["verdict"])
        gpus = list(range(len(line["figures"].get("gpus", [])))) if test == "devices" else gpus
        if verdicts[0] != PASS:
            break
    verdict = max(verdicts, key=ORDER.index)
    say({"test": "end", "verdict": verdict, "took_s": round(time.monotonic() - began, 1)})
    os._exit({FAIL: 1, UNKNOWN: 5}.get(verdict, 0))  # without waiting for a child that cannot be killed


NUMBERS = (
    ("--deadline-s", 120.0, "how long one test may take before it counts as hanging"),
    ("--limit-s", 780.0, "how long all tests may take together; what does not begin in it is unknown"),
    ("--ready-wait-s", 180.0, "how long a system that is not ready (802) is waited for"),
    ("--load-s", 3.0, "seconds of GPU time under matrix products"), ("--matmul-n", 4096, "rows of the matrices, a multiple of 64"),
    ("--sweep-s", 20.0, "after how long the memory sweep begins no further pattern"), ("--memory-share", 0.9, "of what is free"),
    ("--copy-mib", 64, "size of each copy"), ("--copies", 16, "how many copies make a rate"),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="Exercise the GPUs of this machine and check what they computed.")
    add = parser.add_argument
    add("--tests", default=",".join(TESTS), help="which, separated by commas (all)")
    add("--nccl", help="the libnccl.so.2 to use; without it the loader's own, if any")
    add("--ptx", action="store_true", help="print the kernels and end")
    for name, value, text in NUMBERS:
        add(name, type=type(value), default=value, help=f"{text} ({value})")
    add("--child", choices=list(TESTS), help=argparse.SUPPRESS)
    add("--device", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.tests = given.tests.split(",")
    strange = [name for name in given.tests if name not in TESTS]
    if strange or given.matmul_n % TILE or given.matmul_n <= 0 or not 0 < given.memory_share <= 1:
        parser.error(f"no test {strange[0]}" if strange else "--matmul-n: a multiple of 64; --memory-share: to 1")
    if given.ptx:
        sys.stdout.write(ptx())
        return 0
    return be_child(given) if given.child else run_all(given, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
