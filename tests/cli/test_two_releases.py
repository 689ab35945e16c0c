"""Two releases of foldlog side by side: what one begins the other finishes, and no approval is used up in between.

The earlier release is taken out of the history of this repository: its tag, or the commit below where no tag exists.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Project, Running
from tests.unit.test_compose import ROOT

pytestmark = pytest.mark.nightly
Start = Callable[..., Running]
EARLIER = ("v0.1.0", "830939cad3d1c47e7368ee988865fd9c04b23540")
"""The first of these that the history has is the earlier release."""
FOLDERS = ("eventlog", "projections", "runtime", "adapters", "replay")

SHOP = '''
import json
from pathlib import Path

from foldlog.runtime import Agent, Registry, tool


@tool(effect="unsafe")
async def pay(amount: int) -> str:
    """Pay."""
    with Path("diary").open("a") as diary:
        diary.write(f"paid {amount}\\n")
    return "paid"


def model(name, *turns):
    path = Path(f"{name}.json").absolute()
    path.write_text(json.dumps({"turns": turns}))
    return f"scripted:{path}"


call = {"tool_calls": [{"id": "c1", "name": "pay", "arguments": {"amount": 5}}]}
memory = {"scope": "session"}
script = model("cashier", call, {"text": "all paid"})
cashier = Agent("cashier", model=script, tools=[pay], hitl_tools=["pay"], memory=memory)
greeter = Agent("greeter", model=model("greeter", {"text": "hello"}), memory=memory)
registry = Registry(agents=[cashier, greeter])
'''

WHERE = """
import sys

import foldlog.runtime

registry = None
sys.stderr.write(f"{foldlog.runtime.__file__}\\n")
"""


def git(*arguments: str) -> bytes | None:
    """The output of a command of git; None if it fails, or there is no git."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the command `foldlog` of the earlier release."""
    found = next((each for each in EARLIER if git("cat-file", "-e", f"{each}^{{commit}}") is not None), None)
    archive = git("archive", found, "package", *FOLDERS) if found is not None else None
    if archive is None:
        pytest.fail(
            f"this clone has none of {', '.join(EARLIER)}, from which the earlier release is made: "
            "git fetch --unshallow --tags",
            pytrace=False,
        )
    place = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(place, filter="data")
    package = place / "site" / "foldlog"
    shutil.move(place / "package", package)
    for folder in FOLDERS:
        shutil.move(place / folder, package / folder)
    command = place / "bin" / "foldlog"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH="{place}/site" exec "{sys.executable}" -m foldlog.adapters.cli "$@"\n'
    )
    command.chmod(0o755)
    return command.parent


class Release:
    """The commands of one release, in a project of the test."""

    def __init__(self, project: Project, start: Start, name: str, commands: Path | None) -> None:
        self._project, self._start, self.name = project, start, name
        path = os.environ["PATH"] if commands is None else f"{commands}{os.pathsep}{os.environ['PATH']}"
        self._environ = {"PATH": path}

    def run(self, *arguments: str) -> Any:
        done = self._project.run(*arguments, **self._environ)
        assert "Traceback" not in done.err
        return done

    def worker(self) -> Running:
        running = self._start("worker", "two_releases:registry", "--name", self.name, **self._environ)
        running.until("serves")
        return running

    def begin(self, run: str, agent: str = "cashier", *options: str) -> None:
        done = self.run(
            *("run", f"two_releases:{agent}", "q", "--executor", "durable", "--no-wait", "--quiet"),
            *("--run-id", run, "--idempotency-key", f"key of {run}", *options),
        )
        assert done.code in {0, 5}, done.err

    def until(self, what: str, *runs: str) -> None:
        """Wait until these runs have come to this status."""
        while {row["status"] for row in self.rows() if row["run_id"] in runs} != {what}:
            pass

    def rows(self) -> list[Any]:
        rows: list[Any] = self.run("runs", "list", "--json").document
        return rows

    def approve_all(self) -> int:
        waiting = self.run("approvals", "list", "--json").document
        return sum(self.run("approvals", "approve", row["approval_id"]).code == 0 for row in waiting)


@pytest.fixture
def releases(project: Project, start: Start, earlier: Path) -> dict[str, Release]:
    (project.place / "two_releases.py").write_text(SHOP)
    (project.place / "diary").write_text("")
    names = {"earlier": earlier, "later": None}
    return {name: Release(project, start, name, commands) for name, commands in names.items()}


def paid(project: Project) -> int:
    return (project.place / "diary").read_text().count("paid 5")


def test_the_earlier_release_is_another_one(
    project: Project, releases: dict[str, Release], earlier: Path
) -> None:
    (project.place / "where.py").write_text(WHERE)
    told = {name: release.run("run", "where:registry", "q").err for name, release in releases.items()}
    assert str(earlier.parent) in told["earlier"]
    assert str(earlier.parent) not in told["later"]


@pytest.mark.parametrize(("first", "second"), [("earlier", "later"), ("later", "earlier")])
def test_what_one_release_begins_the_other_finishes_and_its_approval_counts(
    project: Project, releases: dict[str, Release], first: str, second: str
) -> None:
    begins, ends = releases[first], releases[second]
    worker = begins.worker()
    begins.begin("greeted", "greeter", "--session", "s")
    begins.until("completed", "greeted")
    begins.begin("bill", "cashier", "--session", "s")
    begins.until("paused", "bill")
    worker.interrupt(signal.SIGTERM)
    assert worker.end().code == 0
    assert ends.approve_all() == 1
    assert (paid(project), ends.run("approvals", "list", "--json").document) == (0, [])
    worker = ends.worker()
    ends.until("completed", "bill")
    ends.begin("next", "greeter", "--session", "s")
    ends.until("completed", "next")
    assert paid(project) == 1
    for release in (begins, ends):
        again = release.run(
            *("run", "two_releases:cashier", "q", "--session", "s", "--run-id", "bill"),
            *("--idempotency-key", "key of bill", "--executor", "durable", "--quiet"),
        )
        assert (again.code, again.out.strip()) == (0, "all paid")
        assert release.run("events", "verify", "--all").code == 0
        assert release.run("replay", "bill").code == 0
    assert paid(project) == 1


def test_workers_of_both_releases_serve_side_by_side_and_pay_each_bill_once(
    project: Project, releases: dict[str, Release]
) -> None:
    workers = [release.worker() for release in releases.values()]
    runs = [f"bill-{number}" for number in range(4)]
    both = list(releases.values())
    for number, run in enumerate(runs):
        both[number % 2].begin(run, "cashier", "--session", run)
    both[0].until("paused", *runs)
    workers[0].kill()  # its runs are parked, and the other worker goes on with them
    approved = 0
    while approved < len(runs):
        approved += both[approved % 2].approve_all()
    both[1].until("completed", *runs)
    assert paid(project) == len(runs)
    assert both[1].run("events", "verify", "--all").code == 0
