"""Endless files are not read to the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from foldlog.adapters.cli import app as root
from foldlog.adapters.cli import traces
from foldlog.adapters.cli.json_options import messages_option
from foldlog.adapters.cli.mcp_files import read_servers
from foldlog.adapters.secrets import FileSecret
from foldlog.eventlog import files
from foldlog.eventlog.errors import ArchiveInvalid, ConfigError
from foldlog.eventlog.files import read_bounded
from foldlog.replay import from_jsonl
from foldlog.replay.ordering.golden import hold_golden
from foldlog.replay.parity.scripts import read_script
from foldlog.replay.rerunning.recorded import RecordedProvider
from foldlog.runtime import ToolFailed
from typer.testing import CliRunner

ZERO = "/dev/zero"
HISTORIES = Path(__file__).parents[1] / "histories" / "v1"
NO_END = "has more than [0-9,]+ bytes, the limit for such a file, or has no end"


def test_a_file_is_read_to_its_bound_and_refused_beyond(tmp_path: Path) -> None:
    file = tmp_path / "some"
    file.write_bytes(b"x" * 100)
    assert read_bounded(file, 100) == b"x" * 100
    with pytest.raises(ConfigError, match="some has more than 99 bytes"):
        read_bounded(file, 99)


def test_messages_scripts_and_servers_without_an_end_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match=NO_END):
        messages_option("--messages", ZERO)
    with pytest.raises(ConfigError, match=NO_END):
        read_script(ZERO)
    with pytest.raises(ConfigError, match=NO_END):
        read_servers(ZERO)


def test_a_file_that_is_not_an_archive_is_read_no_further_than_needed_to_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(files, "ARCHIVE_BYTES_MAX", 1 << 60)  # more than there is memory
    with pytest.raises(ArchiveInvalid, match="/dev/zero: line 1 is not a line of an export"):
        traces.read_file(ZERO)


def test_golden_traces_and_recorded_answers_are_read_from_regular_files(tmp_path: Path) -> None:
    trace = from_jsonl(next(iter(sorted(HISTORIES.glob("*.jsonl")))).read_bytes())
    zero, fifo = tmp_path / "zero.jsonl", tmp_path / "fifo.jsonl"
    zero.symlink_to(ZERO)
    os.mkfifo(fifo)
    for path in (zero, fifo):
        told = f"{path} is not a regular file"
        with pytest.raises(ConfigError, match=told):
            hold_golden(trace, tmp_path, path.stem)
        with pytest.raises(ConfigError, match=told):
            RecordedProvider().check(str(path))
    done = CliRunner().invoke(root.app, ["replay", "--golden", str(tmp_path)])
    assert done.exit_code == 2
    assert "fifo.jsonl is not a regular file" in done.stderr


@pytest.mark.anyio
async def test_secrets_without_an_end_are_refused() -> None:
    with pytest.raises(ToolFailed, match=NO_END):
        await FileSecret(path=ZERO, tools=("t",)).read()


def test_nesting_without_an_end_is_told_in_one_line(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    with pytest.raises(typer.BadParameter, match="--messages is not JSON"):
        messages_option("--messages", str(deep))
    with pytest.raises(ConfigError, match="deep"):
        read_script(deep)
