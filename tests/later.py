"""Modules that are imported once they are used: each process collects all tests, and runs only a share of them."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module that takes more than a second to import, for the top of a file of tests."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Import the module, and return what it has by this name; what pytest asks of each object imports nothing."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
