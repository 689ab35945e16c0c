"""The pytest plugin as a user has it: in a project of its own, with nothing of this repository's configuration."""

from __future__ import annotations

import shutil
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "parity"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """The example as a user copies it."""
    for path in EXAMPLE.iterdir():
        if path.is_file():
            shutil.copy(path, pytester.path)
    pytester.syspathinsert()
    return pytester


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    loaded = any(entry.value == "foldlog.replay.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if loaded else ["-p", "foldlog.replay.pytest_plugin"]
    return project.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-q", "-W", "error", *args)


def test_the_example_passes_as_it_is_copied(project: pytest.Pytester) -> None:
    result = run(project)
    result.assert_outcomes(passed=6)


def test_the_first_trace_becomes_golden_and_the_next_is_held_against_it(project: pytest.Pytester) -> None:
    run(project, "--foldlog-golden", "golden", "-k", "whoever").assert_outcomes(passed=3, deselected=3)
    kept = {path.name: path.read_bytes() for path in (project.path / "golden").iterdir()}
    assert len(kept) == 3
    assert all(name.endswith(".jsonl") for name in kept)
    run(project, "--foldlog-golden", "golden", "-k", "whoever").assert_outcomes(passed=3, deselected=3)
    assert {path.name: path.read_bytes() for path in (project.path / "golden").iterdir()} == kept


def test_an_agent_that_changed_is_not_its_golden_self(project: pytest.Pytester) -> None:
    run(project, "--foldlog-golden", "golden", "-k", "whoever")
    agent = project.path / "orders.py"
    agent.write_text(agent.read_text().replace('f"order {order}: shipped"', 'f"order {order}: lost"'))
    result = run(project, "--foldlog-golden", "golden", "-k", "whoever")
    result.assert_outcomes(failed=3, deselected=3)
    result.stdout.fnmatch_lines(
        ["*the trace is not that of*tool_result(success) of orders says otherwise in result*"]
    )


def test_a_difference_between_executors_fails_the_test_with_the_report(project: pytest.Pytester) -> None:
    agent = project.path / "orders.py"
    agent.write_text(
        agent.read_text().replace(
            'return f"order {order}: shipped"', "import time; return str(time.time_ns())"
        )
    )
    result = run(project, "-k", "whoever and None")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(
        ["*ParityViolation: parity: different*", "*rule R4*says otherwise in result*"]
    )


def test_the_plugin_loads_nothing_of_foldlog_but_its_package_before_a_fixture_is_asked_for() -> None:
    source = (ROOT / "replay" / "pytest_plugin.py").read_text()
    head = source.partition("if TYPE_CHECKING:")[0]
    assert [line for line in head.splitlines() if line.startswith(("import ", "from ."))] == ["import pytest"]
