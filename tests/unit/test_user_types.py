"""Type checkers on code that uses foldlog: they report nothing in right code, and each wrong line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from foldlog.runtime.agents import config, tables
from foldlog.runtime.agents.loop_config import Stop

CODE = Path(__file__).parent / "user_code"
BIN = Path(sys.executable).parent
STRICT = {"typeCheckingMode": "strict", "reportUnnecessaryComparison": False}
"""As pyright's own strict mode: basedpyright reports more."""


def checkers(folder: Path, names: tuple[str, ...]) -> dict[str, list[str]]:
    (folder / "pyrightconfig.json").write_text(json.dumps(STRICT))
    files = [f"{name}.py" for name in names]
    return {
        "mypy": [str(BIN / "mypy"), "--strict", "--cache-dir", os.devnull, *files],
        "pyright": [str(BIN / "basedpyright"), "--pythonpath", sys.executable],
    }


def errors(folder: Path, *names: str) -> dict[str, set[tuple[str, int]]]:
    """Return the lines that each checker finds an error in; both look at once."""
    for name in names:
        shutil.copy(CODE / f"{name}.py", folder)
    running = {
        name: subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        for name, command in checkers(folder, names).items()
    }
    told = {name: process.communicate()[0] for name, process in running.items()}
    error = re.compile(rf"({'|'.join(names)})\.py:(\d+)(?::\d+)?(?: -|:) error")
    return {name: {(file, int(line)) for file, line in error.findall(text)} for name, text in told.items()}


def wrong_lines(name: str) -> set[tuple[str, int]]:
    lines = (CODE / f"{name}.py").read_text().splitlines()
    return {(name, number) for number, line in enumerate(lines, 1) if line.endswith("# wrong")}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[str, int]]]:
    return errors(tmp_path_factory.mktemp("user_code"), "right", "wrong")


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_right_code_passes_and_each_wrong_line_of_user_code_is_found(
    said: dict[str, set[tuple[str, int]]], checker: str
) -> None:
    wrong = wrong_lines("wrong")
    assert len(wrong) > 30
    assert said[checker] == wrong


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_agents_of_other_frameworks_keep_their_types_of_output_and_dependencies(tmp_path: Path) -> None:
    wrong = wrong_lines("frameworks")
    assert len(wrong) == 3
    assert errors(tmp_path, "frameworks") == {"mypy": wrong, "pyright": wrong}


TABLES = {
    tables.BreakerTable: config.BreakerConfig,
    tables.BudgetsTable: config.BudgetsConfig,
    tables.CeilingsTable: config.Ceilings,
    tables.ConcurrencyTable: config.ConcurrencyConfig,
    tables.ContextTable: config.ContextConfig,
    tables.FilesTable: config.FilesConfig,
    tables.MemoryTable: config.MemoryConfig,
    tables.PolicyRuleTable: config.PolicyRuleConfig,
    tables.PolicyTable: config.PolicyConfig,
    tables.RetryTable: config.RetryConfig,
    tables.SettingsTable: config.SettingsConfig,
    tables.StopTable: Stop,
}


def test_each_table_that_a_checker_knows_has_the_keys_and_the_required_keys_of_its_model() -> None:
    known = {each for each in vars(tables).values() if getattr(each, "__module__", "") == tables.__name__}
    assert known == set(TABLES)
    for table, model in TABLES.items():
        assert set(table.__annotations__) == set(model.model_fields), table
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert {key for key, hint in table.__annotations__.items() if "Required[" in str(hint)} == required, (
            table
        )
