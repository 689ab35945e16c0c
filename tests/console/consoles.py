"""Consoles as processes of their own, by the installed command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.cli.commands import Project, Running
from tests.console.site import Site

REGISTRY = """
from foldlog import Agent, Registry

registry = Registry(agents=[Agent("clerk", model="scripted:clerk.json")])
"""


def desk(site: Site, place: Path) -> Project:
    """Make a project with one agent, on the server and in the namespace of a site."""
    (place / "desk.py").write_text(REGISTRY)
    (place / "clerk.json").write_text(json.dumps({"turns": [{"text": "done"}]}))
    project = Project(place, site.nats.url, "shop")
    project.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return project


@contextlib.contextmanager
def console(project: Project, port: int = 0) -> Iterator[tuple[Running, str]]:
    """Start a console without access control; yield it with its address."""
    process = project.start("console", "--registry", "desk:registry", "--no-auth", "--port", str(port))
    try:
        found = re.search(r"http://[\d.:]+", process.until("serving"))
        assert found is not None
        yield process, found[0]
    finally:
        process.kill()
