"""`foldlog backup` as a user meets it."""

from pathlib import Path

from tests.cli.commands import Project


def test_a_namespace_is_saved_checked_and_restored_under_another_name(
    project: Project, tmp_path: Path
) -> None:
    assert project.run("run", "project_agents:helper", "question").code == 0
    run = project.only_run()
    place = str(tmp_path / "backups")
    assert project.run("backup", "list", str(tmp_path)).code == 1
    created = project.run("backup", "create", place, "--json").document
    assert created["messages"] > 0
    (listed,) = project.run("backup", "list", place, "--json").document
    assert listed == created
    verified = project.run("backup", "verify", place, "--json").document
    assert (verified["whole"], verified["problems"], verified["runs"]) == (True, [], 1)
    refused = project.run("backup", "restore", place)
    assert refused.code == 2
    assert "is not empty" in refused.error
    restored = project.run("backup", "restore", place, "--as", "copy", "--json").document
    assert (restored["restored_as"], restored["held"]) == ("copy", [])
    assert project.run("runs", "show", run, "-n", "copy", "--json").document["output"] == "Final answer"
    manifest = Path(created["backup"]) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("FL_", "FX_"))
    damaged = project.run("backup", "verify", place)
    assert damaged.code == 1
    assert "was altered" in damaged.error


def test_a_target_without_a_backup_is_told_what_to_do(project: Project, tmp_path: Path) -> None:
    for target, told in [(tmp_path / "nowhere", "is not a directory"), (tmp_path, "has no backup")]:
        done = project.run("backup", "restore", str(target))
        assert done.code == 2
        assert told in done.error
    none = project.run("backup", "create", str(tmp_path), "-n", "never-used")
    assert none.code == 1
    assert "there is no namespace 'never-used'" in none.err
