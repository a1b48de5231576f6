"""`nvidia-smi --help-query-gpu`: the columns that this driver's tool knows."""

import re
from collections.abc import Mapping

from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_FIELD = re.compile(r'"([A-Za-z0-9_.]{1,100})"')
_MOST_FIELDS = 5_000


def sniff(head: str) -> int:
    return 100 if head.lstrip().startswith("List of valid properties to query") else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`smi_fields.names` in the tool's order, each by its first name (a line may give aliases)."""
    names = [match[1] for line in text.split("\n") if (match := _FIELD.match(line))]
    if not names:
        return {"smi_fields.count": Unknown("the text lists no columns")}
    return {"smi_fields.names": tuple(dict.fromkeys(names[:_MOST_FIELDS])), "smi_fields.count": len(set(names))}


READER = CaptureSpec("smi_help", "nvidia-smi --help-query-gpu", sniff, parse)
