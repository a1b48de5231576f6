"""What all version types share: they keep their text, and compare by their own rule and with their own kind only.

Exists because no general version scheme (PEP 440, semver) reads the versions of this trade right: `535.104.05`,
`13.0 Update 2`, hexadecimal VBIOS numbers, `580.126.20-1+site1`. Does not know any rule itself: one file per rule.

The same key means the same version. `13.0 Update 2` and `13.0.2` are equal, have one hash and find each other in sets
and mappings, although each still prints as it was written. Where the text matters, compare `text`.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import field
from typing import ClassVar, Self

from muster.model.frozen import dataclass

# No version seen is longer than 60 characters. The bound keeps a broken or hostile node from making us work on
# megabytes, and keeps every number far below the length at which `int` refuses to read it.
MAX_TEXT_LENGTH = 200

_SHOWN_LENGTH = 60


class VersionSyntaxError(ValueError):
    """A text is not a version of the wanted kind.

    `kind` is the kind of version in words ("driver version"), `text` the whole text as given, `hint` what to do
    about it: one clause without a full stop. The message holds all three, with a long text shortened.
    """

    def __init__(self, kind: str, text: str, hint: str) -> None:
        super().__init__(kind, text, hint)
        self.kind = kind
        self.text = text
        self.hint = hint

    def __str__(self) -> str:
        return f"{quoted(self.text)} is not a {self.kind}: {self.hint}"


def quoted(text: str) -> str:
    """The text in quotes for a message: control characters escaped, a long text shortened."""
    return repr(text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "...")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Version(ABC):
    """One version of one kind.

    Guarantees: immutable, hashable, `str()` gives back the text unchanged, totally ordered within its own type.
    `==` with any other type is False; `<`, `<=`, `>`, `>=` with any other type raise TypeError. The constructor checks
    the text and raises VersionSyntaxError, so a version that exists is well formed.
    """

    kind: ClassVar[str]
    text: str
    key: tuple[object, ...] = field(init=False)

    def __post_init__(self) -> None:
        if len(self.text) > MAX_TEXT_LENGTH:
            raise self.error(self.text, f"it has more than {MAX_TEXT_LENGTH} characters")
        self._read()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a version as it is found or wanted; raises VersionSyntaxError. Blanks around it are an error."""
        return cls(text)

    @classmethod
    def parse_bound(cls, text: str) -> Self:
        """Read the end of a range. Like `parse`; some kinds also take a bare beginning here, such as `<13`."""
        return cls(text)

    @classmethod
    def error(cls, text: str, hint: str) -> VersionSyntaxError:
        """The error of this kind for `text`, to be raised by the caller."""
        return VersionSyntaxError(cls.kind, text, hint)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in the version, most significant first: a measure of closeness for hints, not the order."""
        return tuple(int(number) for number in re.findall(r"[0-9]+", self.text))

    @abstractmethod
    def _read(self) -> None:
        """Read `text` and `_set` the key and the other fields, or raise VersionSyntaxError."""

    def _set(self, key: tuple[object, ...], **fields: object) -> None:
        """Fill in what was read. The only writer; it runs once, inside the constructor."""
        object.__setattr__(self, "key", key)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Version) or type(other) is not type(self):
            return NotImplemented
        return self.key == other.key

    def __lt__(self, other: Self) -> bool:
        return self.key < other.key if type(other) is type(self) else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self.key <= other.key if type(other) is type(self) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self.key > other.key if type(other) is type(self) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self.key >= other.key if type(other) is type(self) else NotImplemented
