"""What all forms of nvidia-smi's report share: the key of a GPU, its values, and the node's sums over them. Pure."""

from collections.abc import Iterable, Mapping

from muster.facts import _smi
from muster.facts.captures._text import whole
from muster.facts.gpu import MOST_GPUS
from muster.model.fact import FactValue, Unknown

MOST_VALUE_CHARS = 500


class Gpus:
    """Gathers one report's GPUs into fact paths. At most `MOST_GPUS`; `more` counts what was left out.

    A GPU whose names all came before is the same one again, of a tool that ran in a loop: it is counted in `repeats`, not read.
    """

    def __init__(self) -> None:
        self.found: dict[str, FactValue] = {}
        self.keys: list[str] = []
        self.more = 0
        self.repeats = 0
        self._named: set[tuple[str, ...]] = set()

    def add(self, *names: str | None) -> str | None:
        """The key of one more GPU: the first of `names` (UUID, bus id, index) that there is; a later one joined to it where the first came
        before. None when there are too many, or it was there before.
        """
        given = [name for name in names if name and not isinstance(_smi.reading(name), Unknown) and name != "[N/A]"]
        if tuple(given) in self._named:
            self.repeats += 1
            return None
        if len(self.keys) >= MOST_GPUS:
            self.more += 1
            return None
        self._named |= {tuple(given)} if given else set()
        key = _smi.plain_key(given[0]) if given else f"row{len(self.keys)}"
        if key in self.keys:
            key = _smi.plain_key("@".join(given[:2])) if len(given) > 1 else key
        if key in self.keys:
            key = f"{key}@row{len(self.keys)}"
        self.keys.append(key)
        return key

    def put(self, key: str, field: str, text: str) -> None:
        """One value as the tool printed it; the first of a field counts."""
        self.found.setdefault(f"gpu[{key}].{field}", _smi.reading(text[:MOST_VALUE_CHARS]))

    def result(
        self, *, driver: str | None = None, cuda: str | None = None, attached: str | None = None
    ) -> Mapping[str, FactValue]:
        """All facts with the sums: count, products, driver and CUDA version (a text that is no version says nothing)."""
        found = dict(self.found)
        count = len(self.keys) + self.more
        found["gpu.count"] = count
        if self.more:
            found["gpu.count"] = Unknown(f"the report lists {count} GPUs, which no node has")
        elif not count:
            found["gpu.count"] = Unknown("the output lists no GPU")
        if self.repeats:
            found["report.repeats"] = self.repeats
        names = {str(name) for key in self.keys if isinstance(name := found.get(f"gpu[{key}].name"), str) and name}
        if names:
            found["gpu.product"] = ", ".join(sorted(names))
        if attached is not None:
            number = whole(attached)
            found["gpu.attached"] = (
                number if number is not None else Unknown("the report does not say how many GPUs are attached")
            )
        found |= versions(driver=driver, cuda=cuda)
        return found


def versions(*, driver: str | None, cuda: str | None) -> Mapping[str, FactValue]:
    """The driver and CUDA version where the report has a place for them: the text, or Unknown where it is no version."""
    found: dict[str, FactValue] = {}
    if driver is not None:
        found["gpu.driver_version"] = (
            driver if driver[:1].isdigit() else Unknown(f"the report states no driver version: {driver[:80]}")
        )
    if cuda is not None:
        found["gpu.cuda_version"] = (
            cuda if cuda[:1].isdigit() else Unknown(f"the report states no CUDA version: {cuda[:80]}")
        )
    return found


def first_version(texts: Iterable[str | None]) -> str | None:
    """The first that is a version; else the first that is there at all; else None. From 610 on the plain names hold `Deprecated, see ...`."""
    given = [text for text in texts if text is not None]
    return next((text for text in given if text[:1].isdigit()), given[0] if given else None)
