"""`foldlog run --file` and `foldlog runs files` in processes of their own, on a real server."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.commands import Project

PNG = b"\x89PNG\r\n\x1a\n" + bytes(9)


def test_files_are_given_to_a_run_shown_with_it_and_written_again(project: Project, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    given = ["--file", str(tmp_path / "cat.png"), "--file", "https://example.com/dog.png"]
    run = project.run("run", "project_agents:helper", "Which?", *given, "--json").lines[0]["run_id"]
    assert "[cat.png (image/png, 17 bytes)] [dog.png (image/png)]" in project.run("runs", "show", run).out
    done = project.run("runs", "files", run, "-o", str(tmp_path / "out"), "--json")
    files = json.loads(done.out)["files"]
    assert [(file["name"], file["source"]) for file in files] == [("cat.png", "input"), ("dog.png", "input")]
    assert (tmp_path / "out/cat.png").read_bytes() == PNG


def test_a_fork_and_a_parity_check_take_files(project: Project, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "dog.png").write_bytes(PNG + b"!")
    given = ["--file", str(tmp_path / "cat.png")]
    run = project.run("run", "project_agents:helper", "Which?", *given, "--json").lines[0]["run_id"]
    dog = ["--at", "1", "--input", "Or this?", "--file", str(tmp_path / "dog.png")]
    plan = json.loads(project.run("fork", run, *dog, "--json").out)
    assert (plan["input"], [file["name"] for file in plan["files"]]) == ("Or this?", ["dog.png"])
    shown = project.run("fork", run, "project_agents:registry", *dog, "--yes", "--run-id", "forked")
    assert "dog.png (image/png, 18 bytes) (instead of the run's input)" in shown.out + shown.err
    files = json.loads(project.run("runs", "files", "forked", "--json").out)["files"]
    assert [file["name"] for file in files] == ["dog.png"]
    missing = project.run("fork", run, "--at", "1", "--file", "nowhere.png")
    assert (missing.code, "the file 'nowhere.png' cannot be read" in missing.err) == (2, True)
    (tmp_path / "script.json").write_text(
        json.dumps({"turns": [{"text": "A cat.", "reads_files": ["cat.png"]}]})
    )
    script = ["--script", str(tmp_path / "script.json"), "--input", "Which?"]
    assert project.run("parity", "project_agents:helper", *script, *given).code == 0


def test_a_file_that_is_missing_is_one_line_and_no_run(alone: Project) -> None:
    done = alone.run("run", "project_agents:helper", "Which?", "--file", "nowhere.png")
    assert done.code == 2
    assert "the file 'nowhere.png' cannot be read: No such file or directory" in done.err
