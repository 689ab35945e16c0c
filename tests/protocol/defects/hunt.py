"""Hunts defects: applies each to a copy of the source, and plays schedules of the copy until one breaks something.

A program of its own, for a process of its own: `hunt.py DIRECTORY` makes the copy in the directory, reads hunts from
stdin (JSON lines) and writes what came of each to stdout. A hunt names places to try, (scenario, seed), in order.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


def copied(directory: Path) -> Path:
    """The installed source, copied below the directory; the copy is imported from now on."""
    package = directory / "foldlog"
    spec = importlib.util.find_spec("foldlog")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, package)
    sys.path.insert(0, str(directory))
    sys.dont_write_bytecode = True
    _forget()
    return package


def _forget() -> None:
    for name in [name for name in sys.modules if name == "foldlog" or name.startswith("foldlog.")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@contextmanager
def patched(path: Path, old: str, new: str) -> Iterator[None]:
    """Change the one place in the file, until the end. Raises `LookupError` if it is not there, or not alone.

    The file is set aside and comes back with its time, so that what was compiled of it is valid again.
    """
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        raise LookupError(f"{path.name} has this {text.count(old)} times, not once:\n{old}")
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        kept = {
            each: Path(aside, each.name)
            for each in [path, *path.parent.glob(f"__pycache__/{path.stem}.*.pyc")]
        }
        for each, place in kept.items():
            each.rename(place)
        try:
            path.write_text(text.replace(old, new), encoding="utf-8")
            yield
        finally:
            for each, place in kept.items():
                place.rename(each)


def hunt(package: Path, changes: list[dict[str, str]], places: list[tuple[str, int]]) -> dict[str, Any]:
    """Apply the changes, play the places until one fails, and put the source back."""
    with ExitStack() as stack:
        try:
            for change in changes:
                stack.enter_context(patched(package / change["file"], change["old"], change["new"]))
        except LookupError as error:
            return {"error": str(error)}
        return _found(places)


def _found(places: list[tuple[str, int]]) -> dict[str, Any]:
    simulation = importlib.import_module("foldlog.replay.simulation")
    errors = importlib.import_module("foldlog.eventlog.errors")
    assert str(simulation.__file__).startswith(sys.path[0]), "the source is played instead of its copy"
    playing = simulation.Simulation(simulation.SCENARIOS)
    for number, (scenario, seed) in enumerate(places, start=1):
        try:
            played = playing.draw(scenario, seed)
        except errors.ConfigError as error:
            return {"tried": number, "scenario": scenario, "seed": seed, "problems": [f"ALWAYS {error}"]}
        if played.problems:
            return {
                "tried": number,
                "scenario": scenario,
                "seed": seed,
                "problems": [problem[:300] for problem in played.problems[:5]],
            }
    return {"tried": len(places)}


def main() -> None:
    """Read hunts, write what came of them. Each is a process that finds all but foldlog imported."""
    package = copied(Path(sys.argv[1]))
    importlib.import_module("foldlog.replay.simulation")
    _forget()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            _tell(package, json.loads(line))
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit("a hunt has died")


def _tell(package: Path, asked: dict[str, Any]) -> None:
    began = time.monotonic()
    try:
        found = hunt(package, asked["changes"], asked["places"])
    except BaseException:  # noqa: BLE001 - the child of a fork must not go on as its parent would
        traceback.print_exc()
        os._exit(1)
    print(json.dumps({"name": asked["name"], "seconds": time.monotonic() - began, **found}), flush=True)  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
