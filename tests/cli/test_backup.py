"""`foldlog backup` as a user meets it."""

from pathlib import Path

from tests.cli.commands import Project
from tests.fakes.object_store import s3_server


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


def test_a_namespace_is_saved_in_an_object_store_and_restored_from_it(
    project: Project, tmp_path: Path
) -> None:
    assert project.run("run", "project_agents:helper", "question").code == 0
    run, url = project.only_run(), "s3://bucket/backups"
    with s3_server() as s3:
        empty = project.run("backup", "restore", url, **s3)
        assert (empty.code, f"{url} has no backup" in empty.error) == (2, True)
        created = project.run("backup", "create", url, "--json", **s3).document
        assert created["backup"].startswith(f"{url}/")
        for target in (url, created["backup"]):
            assert project.run("backup", "list", target, "--json", **s3).document == [created]
        assert project.run("backup", "verify", url, "--json", **s3).document["whole"]
        restored = project.run("backup", "restore", created["backup"], "--as", "s3-copy", "--json", **s3)
        assert (restored.document["restored_as"], restored.document["backup"]) == (
            "s3-copy",
            created["backup"],
        )
        assert (
            project.run("runs", "show", run, "-n", "s3-copy", "--json").document["output"] == "Final answer"
        )
        nowhere = project.run("backup", "create", "s3://nowhere/backups", **s3)
        assert (nowhere.code, "the backups at s3://nowhere/backups cannot be written" in nowhere.error) == (
            1,
            True,
        )
    unknown = project.run("backup", "create", "ftp://somewhere")
    assert (unknown.code, "it begins with file://, s3://, gs://, az://" in unknown.error) == (2, True)


def test_a_backup_in_an_object_store_that_lost_or_changed_a_file_is_not_restored(
    project: Project, tmp_path: Path
) -> None:
    assert project.run("run", "project_agents:helper", "question").code == 0
    url = f"file://{tmp_path}/store"
    created = project.run("backup", "create", url, "--json").document
    (largest, *_) = sorted(tmp_path.glob("store/*/*.s2"), key=lambda each: -each.stat().st_size)
    whole = largest.read_bytes()
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 1
    for damaged, told in (
        (bytes(flipped), "was altered"),
        (whole[:-9], "bytes, and had"),
        (None, "No such file"),
    ):
        if damaged is None:
            largest.unlink()
        else:
            largest.write_bytes(damaged)
        for target in (url, created["backup"]):
            refused = project.run("backup", "restore", target, "--as", "damaged")
            assert (refused.code, told in refused.error) == (1, True), refused.err
    assert project.run("runs", "list", "-n", "damaged").out == ""


def test_a_damaged_backup_is_named_beside_those_that_are_whole(project: Project, tmp_path: Path) -> None:
    assert project.run("run", "project_agents:helper", "question").code == 0
    target = str(tmp_path / "several")
    old, good, new = (project.run("backup", "create", target, "--json").document["backup"] for _ in range(3))
    (Path(old) / "manifest.json").write_text("{")
    assert project.run("backup", "verify", target, "--quick", "--json").document["backup"] == new
    (Path(new) / "manifest.json").write_text('{"format": 9}')
    listed = project.run("backup", "list", target, "--json")
    assert [each["backup"] for each in listed.document] == [good]
    assert listed.code == 1
    assert f"{old}/manifest.json: it is not a manifest" in listed.err
    assert f"{new}/manifest.json has format 9" in listed.err
    refused = project.run("backup", "restore", target, "--as", "nothing")  # not an older one, unasked
    assert (refused.code, f"{new}/manifest.json has format 9" in refused.error) == (2, True)
    assert project.run("backup", "verify", good, "--quick").code == 0
    assert project.run("backup", "list", good, "--json").document == listed.document
    assert project.run("backup", "restore", good, "--as", f"again-{tmp_path.name[-6:]}").code == 0
