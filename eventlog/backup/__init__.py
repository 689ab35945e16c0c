"""Backups of a namespace: snapshots that the server makes of its streams, and a manifest with their digests."""

from .manifest import MANIFEST, Manifest, SavedStream, backups_in, check_files, open_backup
from .restoring import Restoring, restoring
from .taking import take_backup

__all__ = [
    "MANIFEST",
    "Manifest",
    "Restoring",
    "SavedStream",
    "backups_in",
    "check_files",
    "open_backup",
    "restoring",
    "take_backup",
]
