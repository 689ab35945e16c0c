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


def options() -> list[str]:
    loaded = any(entry.value == "foldlog.replay.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if loaded else ["-p", "foldlog.replay.pytest_plugin"]
    return [*plugin, "-p", "no:cacheprovider", "-q", "-W", "error"]


def run(project: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run the tests of the project in this process, where everything is imported already."""
    return project.runpytest_inprocess(*options(), *args)


def test_the_example_passes_as_it_is_copied(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*options())
    result.assert_outcomes(passed=6)


ON_EVERY = ("--foldlog-golden", "golden", "-k", "on_every")


def goldens(project: pytest.Pytester) -> dict[str, bytes]:
    """The golden traces by their names; empty before there is a directory."""
    return {path.name: path.read_bytes() for path in (project.path / "golden").glob("*")}


@pytest.fixture(autouse=True)
def outside_of_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def test_golden_traces_are_written_on_request_and_later_traces_are_held_against_them(
    project: pytest.Pytester,
) -> None:
    run(project, *ON_EVERY, "--golden-update").assert_outcomes(passed=3, deselected=3)
    kept = goldens(project)
    assert len(kept) == 3
    assert all(name.endswith(".jsonl") for name in kept)
    run(project, *ON_EVERY, "--golden-check").assert_outcomes(passed=3, deselected=3)
    run(project, *ON_EVERY, "--golden-update").assert_outcomes(passed=3, deselected=3)
    assert goldens(project) == kept


def test_a_missing_golden_trace_is_a_warning_and_is_not_written(project: pytest.Pytester) -> None:
    result = run(project, *ON_EVERY, "-W", "default")
    result.assert_outcomes(passed=3, deselected=3, warnings=3)
    result.stdout.fnmatch_lines(["*there is no golden trace*write it with --golden-update*"])
    assert goldens(project) == {}


@pytest.mark.parametrize("by", ["the option", "CI"])
def test_a_missing_golden_trace_fails_the_check(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "CI":
        monkeypatch.setenv("CI", "true")
    result = run(project, *ON_EVERY, *(["--golden-check"] if by == "the option" else []))
    result.assert_outcomes(failed=3, deselected=3)
    result.stdout.fnmatch_lines(["*there is no golden trace*write it with --golden-update*"])
    assert goldens(project) == {}


def test_an_agent_that_changed_is_not_its_golden_self_until_the_golden_trace_is_updated(
    project: pytest.Pytester,
) -> None:
    run(project, *ON_EVERY, "--golden-update")
    before = goldens(project)
    agent = project.path / "orders.py"
    agent.write_text(agent.read_text().replace('f"order {order}: shipped"', 'f"order {order}: lost"'))
    result = run(project, *ON_EVERY)
    result.assert_outcomes(failed=3, deselected=3)
    result.stdout.fnmatch_lines(
        ["*the trace (right) differs from*tool_result(success) of orders differs in result*"]
    )
    assert goldens(project) == before
    run(project, *ON_EVERY, "--golden-update").assert_outcomes(passed=3, deselected=3)
    run(project, *ON_EVERY, "--golden-check").assert_outcomes(passed=3, deselected=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--golden-check", "--golden-update"], "*exclude each other*"),
        (["--golden-update"], "*--golden-update needs --foldlog-golden DIR*"),
        (["--golden-check"], "*--golden-check needs --foldlog-golden DIR*"),
    ],
)
def test_golden_options_that_make_no_sense_are_refused(
    project: pytest.Pytester, options: list[str], message: str
) -> None:
    result = run(project, *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_a_difference_between_executors_fails_the_test_with_the_report(project: pytest.Pytester) -> None:
    agent = project.path / "orders.py"
    agent.write_text(
        agent.read_text().replace(
            'return f"order {order}: shipped"', "import time; return str(time.time_ns())"
        )
    )
    result = run(project, "-k", "on_every and None")
    result.assert_outcomes(failed=1, deselected=5)
    result.stdout.fnmatch_lines(["*ParityViolation: parity: different*", "*rule R4*differs in result*"])


def test_the_plugin_loads_nothing_of_foldlog_but_its_package_before_a_fixture_is_asked_for() -> None:
    source = (ROOT / "replay" / "pytest_plugin.py").read_text()
    head = source.partition("if TYPE_CHECKING:")[0]
    assert [line for line in head.splitlines() if line.startswith(("import ", "from ."))] == ["import pytest"]
