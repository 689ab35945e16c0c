"""`foldlog knowledge`, as a person and as a script use it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from foldlog.adapters.cli.app import app

from tests.cli.commands import FOLDLOG, Done

Run = Callable[..., Done]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOLDLOG_KNOWLEDGE", str(tmp_path / "k"))
    return tmp_path / "k"


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process."""

    def ran(*args: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            app(["knowledge", *args], prog_name="foldlog")
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return ran


def test_texts_are_added_found_listed_and_removed(run: Run, file: Path, tmp_path: Path):
    handbook = tmp_path / "handbook.txt"
    handbook.write_text("Deploys happen on Tuesday.\n\n" + "Lunch is at noon. " * 120)
    added = run("add", str(handbook), "--json").document
    assert [item["source"] for item in added] == [str(handbook)] * len(added)
    assert run("add", str(handbook)).err == f"0 new pieces in {file}\n"

    found = run("search", "when do deploys happen?", "--json", "--limit", "1").document
    assert found[0]["text"].startswith("Deploys happen on Tuesday.")
    assert found[0].keys() == {"id", "source", "text", "score"}
    shown = run("search", "deploys")
    assert (shown.code, shown.out.splitlines()[0]) == (0, f"{found[0]['id']}  {handbook}")
    nothing = run("search", '") OR (', "--json")
    assert (nothing.code, nothing.document) == (1, [])

    listed = run("list", "--json").document
    assert listed == added
    assert listed[0]["id"] in run("list").out
    assert run("list", "--namespace", "other", "--json").document == []
    assert run("remove", listed[0]["id"]).err == "1 piece removed\n"
    assert run("remove", listed[0]["id"]).code == 1
    assert run("remove", "--source", str(handbook)).code == 0
    assert run("list", "--json").document == []


def test_a_text_may_not_command_the_terminal(run: Run, tmp_path: Path):
    evil = tmp_path / "evil.txt"
    evil.write_text("deploy \x1b]0;owned\x07 [bold]now")
    run("add", str(evil), "--source", "\x1b[2Jname")
    for done in (run("search", "deploy"), run("list"), run("search", "deploy", "--json")):
        assert "\x1b" not in done.out
        assert "[bold]now" in done.out


@pytest.mark.usefixtures("file")
def test_a_text_on_standard_input_has_the_source_that_is_said():
    done = subprocess.run(
        [FOLDLOG, "knowledge", "add", "-", "--source", "notes", "--json"],
        input=b"\xef\xbb\xbfRoll back first.",
        capture_output=True,
        check=True,
    )
    assert [(item["source"], item["text"]) for item in json.loads(done.stdout)] == [
        ("notes", "Roll back first.")
    ]


def test_what_cannot_be_added_or_removed_is_said_in_one_line(run: Run, file: Path, tmp_path: Path):
    binary = tmp_path / "image"
    binary.write_bytes(b"\x89PNG\xff")
    refused = run("add", str(binary))
    assert (refused.code, refused.error) == (2, f"error: {binary} is not UTF-8 text; nothing was added")
    assert run("add", "nowhere.txt").error == "error: nowhere.txt cannot be read: No such file or directory"
    assert run("remove").error.startswith("error: give ids of pieces")
    file.write_bytes(b"no database at all" * 100)
    broken = run("search", "x")
    assert (broken.code, "is damaged" in broken.error) == (1, True)
