"""Finds the plug-ins of a package: every module below it that declares the asked-for attribute. For bootstraps and tests only."""

import importlib
import pkgutil
from collections.abc import Mapping


def discover(package: str, attribute: str) -> Mapping[str, object]:
    """Module name (last part) -> the object each module of `package` declares as `attribute`, by name.

    A package below `package` is another kind of plug-in, found by its own name. Raises AttributeError when a module whose name does not
    begin with `_` lacks the attribute: a plug-in that cannot be found is a fault of ours.
    """
    found: dict[str, object] = {}
    parent = importlib.import_module(package)
    for module in sorted(pkgutil.iter_modules(parent.__path__), key=lambda entry: entry.name):
        if not module.ispkg and not module.name.startswith("_"):
            found[module.name] = getattr(importlib.import_module(f"{package}.{module.name}"), attribute)
    return found


def one(package: str, module: str, attribute: str) -> object:
    """What `module` of `package` declares as `attribute`; for a plug-in that is only loaded when it is used. Raises AttributeError."""
    found: object = getattr(importlib.import_module(f"{package}.{module}"), attribute)
    return found
