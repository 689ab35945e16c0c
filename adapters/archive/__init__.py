"""Archives: copies of families that are moved out of the log, in a directory or an object store."""

from __future__ import annotations

from .store import ObjectArchive

__all__ = ["ObjectArchive"]
