"""`foldlog tools`: the list, and `apply-patch` with the messages and exit codes of Codex."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest
from foldlog.adapters.builtin import builtin_tools
from foldlog.adapters.cli import app as root
from foldlog.adapters.runners.conformance import NothingRunner
from typer.testing import CliRunner, Result

from tests.cli.commands import FOLDLOG, WAIT_S

HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def invoke(*args: str, input: bytes | None = None) -> Result:  # noqa: A002 - the word of the library
    return CliRunner().invoke(root.app, ["tools", *args], input=input)


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def test_the_list_has_every_tool_with_its_effect(place: Path) -> None:
    result = invoke("list")
    assert result.exit_code == 0
    listed = {line.split()[0]: line.split()[1] for line in result.stdout.splitlines()}
    tools = builtin_tools(place, runner=NothingRunner())
    assert listed == {each.spec.name: each.spec.effect for each in tools}


def test_the_list_as_json_has_schemas(place: Path) -> None:
    specs = json.loads(invoke("list", "--json").stdout)
    assert {spec["name"] for spec in specs} >= {"read_file", "apply_patch"}
    for spec in specs:
        jsonschema.Draft202012Validator.check_schema(spec["parameters"])


def test_a_patch_is_applied_from_an_argument_and_from_standard_input(place: Path) -> None:
    result = invoke("apply-patch", patch("*** Add File: d/a", "+hello"))
    assert (result.exit_code, result.stdout) == (0, "Success. Updated the following files:\nA d/a\n")
    text = patch("*** Update File: d/a", "@@", "-hello", "+wörld", "*** Add File: b")
    result = invoke("apply-patch", input=text.encode())
    assert (result.exit_code, result.stdout) == (0, "Success. Updated the following files:\nA b\nM d/a\n")
    assert (place / "d/a").read_text() == "wörld\n"


def test_a_patch_is_applied_in_another_directory(place: Path) -> None:
    (place / "ws").mkdir()
    result = invoke("apply-patch", "--workspace", "ws", patch("*** Add File: a", "+x"))
    assert result.exit_code == 0
    assert (place / "ws/a").read_text() == "x\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        ("bad", "Invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch\nbad", "Invalid patch: The last line of the patch must be '*** End Patch'"),
        (patch(), "No files were modified."),
        (
            patch("*** Update File: foo.txt"),
            "Invalid patch hunk on line 2: Update file hunk for path 'foo.txt' is empty",
        ),
        (
            patch("*** Frobnicate File: foo"),
            f"Invalid patch hunk on line 2: '*** Frobnicate File: foo' is not a valid hunk header. {HEADERS}",
        ),
        (
            patch("*** Update File: a", "@@", "-missing", "+x"),
            "Failed to find expected lines in {root}/a:\nmissing",
        ),
        (patch("*** Delete File: none"), "Failed to delete file {root}/none"),
        (
            patch("*** Update File: none", "@@", "-x"),
            "Failed to read file to update {root}/none: No such file or directory (os error 2)",
        ),
        (patch("*** Add File: ../a", "+x"), "../a: is outside the workspace"),
    ],
)
def test_a_patch_that_does_not_fit_exits_1_and_says_why(place: Path, text: str, message: str) -> None:
    (place / "a").write_text("1\n")
    result = invoke("apply-patch", text)
    told = message.replace("{root}", str(place.resolve()))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"{told}\n")
    assert (place / "a").read_text() == "1\n"


def test_what_came_before_a_failure_stays(place: Path) -> None:
    text = patch("*** Add File: created.txt", "+hello", "*** Update File: missing.txt", "@@", "-a", "+b")
    assert invoke("apply-patch", text).exit_code == 1
    assert (place / "created.txt").read_text() == "hello\n"


def test_no_patch_at_all_exits_2_with_the_usage(place: Path) -> None:
    result = invoke("apply-patch", input=b"")
    assert result.exit_code == 2
    assert result.stderr.startswith("Usage: foldlog tools apply-patch 'PATCH'\n")


def test_a_second_patch_exits_2(place: Path) -> None:
    assert invoke("apply-patch", patch(), patch()).exit_code == 2


def test_a_workspace_that_does_not_exist_exits_2(place: Path) -> None:
    result = invoke("apply-patch", "--workspace", "none", patch())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: the workspace 'none' cannot be used")


def test_a_patch_that_is_not_text_exits_1(place: Path) -> None:
    result = invoke("apply-patch", input=b"*** Begin Patch\n\xff")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: Failed to read PATCH from stdin.\nstream did not contain valid UTF-8\n",
    )
    result = invoke("apply-patch", os.fsdecode(b"*** Begin Patch\n\xff"))
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: apply_patch requires a UTF-8 PATCH argument.\n",
    )


def test_what_a_patch_says_does_not_command_the_terminal(place: Path) -> None:
    result = invoke("apply-patch", patch("*** Add File: a\x1b[31m", "+x"))
    assert result.stdout == "Success. Updated the following files:\nA a[31m\n"


def test_a_process_of_its_own_reads_a_patch_in_a_here_document(place: Path) -> None:
    done = subprocess.run(
        [FOLDLOG, "tools", "apply-patch"],
        input=f"<<'EOF'\n{patch('*** Add File: a', '+x')}\nEOF\n".encode(),
        cwd=place,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        b"Success. Updated the following files:\nA a\n",
        b"",
    )
