"""Runs PTX, thread by thread: the instructions that node/validate.py uses, and no others. For tests of what its kernels mean.

Blocks run one after another, the threads of a block in turn from barrier to barrier. Floats are Python's, so a test sticks to numbers that
float32 holds exactly. An instruction it does not know is an error, never ignored.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Value = int | float
_OPERAND = re.compile(r"\{[^}]*\}|\[[^]]*\]|[^,\s][^,]*")
_WIDTH = {"u64": 8, "b64": 8, "u32": 4, "b32": 4, "f32": 4}
_FORM = {"u64": "<Q", "b64": "<Q", "u32": "<I", "b32": "<I", "f32": "<f"}


@dataclass(frozen=True)
class Instruction:
    """`guard` is the predicate under which it runs."""

    guard: str
    words: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """The parameters by name, with their widths; the shared arrays with their offsets; the instructions and where the labels are."""

    parameters: Mapping[str, int]
    shared: Mapping[str, int]
    instructions: Sequence[Instruction]
    labels: Mapping[str, int]


def kernels(text: str) -> Mapping[str, Kernel]:
    """The kernels of a module, by name."""
    text = re.sub(r"//[^\n]*", "", text)
    found = {}
    for name, parameters, body in re.findall(r"\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*?\n)\}\n", text, re.DOTALL):
        widths = {word.split()[-1]: _WIDTH[word.split()[-2].lstrip(".")] for word in parameters.split(",")}
        found[name] = _kernel(widths, body)
    return found


def _kernel(parameters: Mapping[str, int], body: str) -> Kernel:
    shared: dict[str, int] = {}
    labels: dict[str, int] = {}
    instructions: list[Instruction] = []
    offset = 0
    for statement in re.sub(r"^(\w+):", r"\1: ;", body, flags=re.MULTILINE).split(";"):
        words = statement.strip()
        array = re.fullmatch(r"\.shared \.align 16 \.b8 (\w+)\[(\d+)\]", words)
        if array:
            shared[array[1]] = offset
            offset += int(array[2])
        elif words.endswith(":"):
            labels[words[:-1]] = len(instructions)
        elif words and not words.startswith(".reg"):
            guard, _, rest = words.rpartition("@")[2].partition(" ") if words.startswith("@") else ("", "", words)
            name, _, operands = rest.strip().partition(" ")
            instructions.append(
                Instruction(guard, tuple(name.split(".")), tuple(o.strip() for o in _OPERAND.findall(operands)))
            )
    return Kernel(parameters, shared, instructions, labels)


@dataclass
class Memory:
    """Global memory: blocks at addresses that are far apart, so that what goes beside one is an error."""

    blocks: dict[int, bytearray] = field(default_factory=dict)

    def block(self, data: bytes) -> int:
        at = (len(self.blocks) + 1) << 40
        self.blocks[at] = bytearray(data)
        return at

    def place(self, address: int, size: int) -> tuple[bytearray, int]:
        base = address >> 40 << 40
        data = self.blocks[base]
        assert 0 <= address - base <= len(data) - size, f"address {address:#x} is beside its block"
        return data, address - base


@dataclass
class Launch:
    """One run of a kernel. `only` are the blocks (x, y) to run; by default all of the grid."""

    kernel: Kernel
    memory: Memory
    grid: tuple[int, int]
    threads: int
    arguments: Sequence[Value]
    only: Sequence[tuple[int, int]] | None = None

    def run(self) -> None:
        blocks = self.only or [(x, y) for y in range(self.grid[1]) for x in range(self.grid[0])]
        for block in blocks:
            shared = bytearray(65536)
            running = [_Thread(self, block, tid, shared).run() for tid in range(self.threads)]
            while running:
                running = [thread for thread in running if next(thread, None) is not None]


class _Thread:
    def __init__(self, launch: Launch, block: tuple[int, int], tid: int, shared: bytearray) -> None:
        self.launch, self.shared, self.registers = launch, shared, dict[str, Value]()
        self.special = {
            "%tid.x": tid, "%ctaid.x": block[0], "%ctaid.y": block[1], "%ntid.x": launch.threads, "%nctaid.x": launch.grid[0],
        }  # fmt: skip

    def run(self) -> Iterator[str]:
        """Ends with the thread; what it yields is a barrier."""
        kernel, at = self.launch.kernel, 0
        while True:
            each = kernel.instructions[at]
            at += 1
            if each.guard and not self.registers[each.guard]:
                continue
            name = each.words[0]
            if name == "ret":
                return
            if name == "bra":
                at = kernel.labels[each.operands[0]]
            elif name == "bar":
                yield name
            else:
                getattr(self, f"_{name}")(each.words, *each.operands)

    def value(self, operand: str) -> Value:
        if operand.startswith("%"):
            return self.special[operand] if operand in self.special else self.registers[operand]
        if operand.startswith("0f"):
            return float(struct.unpack(">f", bytes.fromhex(operand[2:]))[0])
        return self.launch.kernel.shared[operand] if operand.isalpha() else int(operand)

    def whole(self, operand: str) -> int:
        value = self.value(operand)
        assert isinstance(value, int)
        return value

    def put(self, kind: str, register: str, value: int) -> None:
        self.registers[register] = value % (1 << 8 * _WIDTH[kind])

    def address(self, operand: str) -> int:
        register, _, offset = operand.strip("[]").partition("+")
        return self.whole(register) + int(offset or 0)

    def place(self, space: str, operand: str, size: int) -> tuple[bytearray, int]:
        at = self.address(operand)
        assert at % size == 0, f"{operand} is not aligned to {size}"
        return (self.shared, at) if space == "shared" else self.launch.memory.place(at, size)

    def _ld(self, words: tuple[str, ...], target: str, source: str) -> None:
        if words[1] == "param":
            index = list(self.launch.kernel.parameters).index(source.strip("[]"))
            self.registers[target] = self.launch.arguments[index]
            return
        registers = target.strip("{}").replace(" ", "").split(",")
        data, at = self.place(words[1], source, 4 * len(registers))
        for index, register in enumerate(registers):
            self.registers[register] = struct.unpack_from(_FORM[words[-1]], data, at + 4 * index)[0]

    def _st(self, words: tuple[str, ...], target: str, source: str) -> None:
        registers = source.strip("{}").replace(" ", "").split(",")
        data, at = self.place(words[1], target, 4 * len(registers))
        for index, register in enumerate(registers):
            struct.pack_into(_FORM[words[-1]], data, at + 4 * index, self.value(register))

    def _red(self, words: tuple[str, ...], target: str, source: str) -> None:
        kind, form = words[3], _FORM[words[3]]
        data, at = self.place(words[1], target, _WIDTH[kind])
        merge: Callable[[int, int], int] = {"add": int.__add__, "or": int.__or__, "min": min}[words[2]]
        struct.pack_into(form, data, at, merge(struct.unpack_from(form, data, at)[0], self.whole(source)))

    def _mov(self, words: tuple[str, ...], target: str, source: str) -> None:
        self.registers[target] = self.value(source)

    def _cvta(self, words: tuple[str, ...], target: str, source: str) -> None:
        self.registers[target] = self.value(source)

    def _cvt(self, words: tuple[str, ...], target: str, source: str) -> None:
        self.put(words[1], target, self.whole(source) % (1 << 8 * _WIDTH[words[2]]))

    def _add(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) + self.whole(b))

    def _sub(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) - self.whole(b))

    def _and(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) & self.whole(b))

    def _xor(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) ^ self.whole(b))

    def _shl(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) << self.whole(b))

    def _shr(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        self.put(words[1], target, self.whole(a) >> self.whole(b))

    def _mul(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        assert words[1:] == ("wide", "u32")
        self.put("u64", target, self.whole(a) * self.whole(b))

    def _mad(self, words: tuple[str, ...], target: str, a: str, b: str, c: str) -> None:
        assert words[2] == "u32"
        self.put("u64" if words[1] == "wide" else "u32", target, self.whole(a) * self.whole(b) + self.whole(c))

    def _fma(self, words: tuple[str, ...], target: str, a: str, b: str, c: str) -> None:
        self.registers[target] = self.value(a) * self.value(b) + self.value(c)

    def _setp(self, words: tuple[str, ...], target: str, a: str, b: str) -> None:
        one, other = self.whole(a), self.whole(b)
        self.registers[target] = int({"ge": one >= other, "eq": one == other, "ne": one != other}[words[1]])
