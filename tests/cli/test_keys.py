"""`foldlog keys` on a real server, as an operator uses it, and with what may go wrong."""

import json

from tests.cli.commands import Done, Project

WORDS = "the secret of Ada"


def sealed(project: Project) -> Project:
    """Return the project with a wrapping key in its environment."""
    made = project.run("keys", "generate")
    project.environ |= {"SEAL_KEY": made.out.strip(), "FOLDLOG_SEAL": "env:SEAL_KEY"}
    return project


def told(project: Project, user: str = "ada", agent: str = "helper") -> str:
    done = project.run("run", f"project_agents:{agent}", WORDS, "--user", user, "--json")
    assert done.code == 0, done.err
    return str(done.lines[0]["run_id"])


def erased(project: Project, *options: str) -> Done:
    return project.run("keys", "erase", *options, "--by", "ann", "--reason", "request 7")


def test_a_key_is_listed_erased_once_and_its_owner_gets_another_one(project: Project):
    sealed(project)
    assert "there are no keys yet" in project.run("keys", "list").err
    run = told(project)
    (first,) = project.run("keys", "list", "--json").document
    assert (first["owner"], first["erased"]) == ("user:ada", [])
    deleted = project.run("runs", "delete", told(project), "--json").document
    assert deleted["keys"] == ["user:ada"]
    done = erased(project, "--user", "ada", "--yes", "--receipt", "ada.json")
    assert (done.code, "files of `foldlog keys export` from before still have it" in done.err) == (0, True)
    receipt = json.loads((project.place / "ada.json").read_text())
    assert (receipt["owner"], receipt["key"], receipt["runs"]) == ("user:ada", first["key"], [run])
    assert (receipt["by"], receipt["reason"]) == ("ann", "request 7")
    shown = project.run("runs", "show", run)
    assert (shown.code, "was made unreadable on" in shown.error) == (1, True)
    assert "by ann (request 7)" in shown.error
    again = erased(project, "--user", "ada", "--yes")
    assert (again.code, "user:ada has no key" in again.err) == (1, True)
    told(project)
    (second,) = project.run("keys", "list", "--json").document
    assert second["key"] not in {None, first["key"]}
    assert [(each["key"], each["by"], each["reason"]) for each in second["erased"]] == [
        (first["key"], "ann", "request 7")
    ]
    assert project.run("events", "verify", "--all").code == 0


def test_a_key_is_erased_only_if_it_is_named_agreed_to_and_no_longer_needed(project: Project):
    sealed(project)
    for options in ((), ("--user", "ada", "--session", "s")):
        refused = erased(project, *options, "--yes")
        assert (refused.code, "name one owner of a key" in refused.error) == (2, True)
    unknown = erased(project, "--user", "nobody", "--yes")
    assert (unknown.code, "user:nobody has no key" in unknown.err) == (1, True)
    told(project)
    unasked = erased(project, "--user", "ada")
    assert (unasked.code, "use --yes to erase it" in unasked.error) == (2, True)
    declined = project.run("keys", "erase", "--user", "ada", stdin="n\n")
    assert (declined.code, "nothing was done" in declined.err) == (1, True)
    later = ("--executor", "durable", "--at", "2d", "--run-id", "later")
    assert project.run("run", "project_agents:helper", WORDS, "--user", "ada", *later).code == 0
    held = erased(project, "--user", "ada", "--yes")
    assert (held.code, "later" in held.error) == (1, True)
    assert project.run("runs", "cancel", "later").code == 0
    assert erased(project, "--user", "ada", "--yes").code == 0


def test_an_export_brings_back_what_is_missing_and_nothing_that_was_erased(project: Project):
    sealed(project)
    kept, gone = told(project, "bob"), told(project)
    file = project.place / f"{project.environ['FOLDLOG_NAMESPACE']}.jsonl"
    exported = project.run("keys", "export", file.name)
    assert (exported.code, "2 keys" in exported.err) == (0, True)
    taken = project.run("keys", "export", file.name)
    assert (taken.code, f"{file.name} exists" in taken.error) == (2, True)
    assert erased(project, "--user", "ada", "--yes").code == 0
    imported = project.run("keys", "import", file.name)
    assert (imported.code, "0 of 2 keys" in imported.err) == (0, True)
    assert project.run("runs", "show", gone).code == 1
    assert project.run("runs", "show", kept).code == 0
    assert project.run("keys", "export", "newer.jsonl").code == 0
    other = {"FOLDLOG_NAMESPACE": f"{project.environ['FOLDLOG_NAMESPACE']}-other"}
    assert project.run("keys", "import", file.name, **other).code == 0
    outlived = project.run("keys", "import", "newer.jsonl", **other)
    assert (outlived.code, "the key of user:ada was erased, but it is here" in outlived.err) == (1, True)
    for text in ("no keys\n", '{"owner": 1}\n', "\udcff"):
        (project.place / "rubbish.jsonl").write_bytes(text.encode(errors="surrogateescape"))
        rubbish = project.run("keys", "import", "rubbish.jsonl")
        assert (rubbish.code, "is not a file of `foldlog keys export`" in rubbish.error) == (2, True)
    missing = project.run("keys", "import", "nowhere.jsonl")
    assert missing.code == 2
    assert "nowhere.jsonl" in missing.error


def test_a_rotation_needs_both_wrapping_keys_and_then_only_the_new_one(project: Project):
    sealed(project)
    run, old = told(project), project.environ["SEAL_KEY"]
    new = project.run("keys", "generate").out.strip()
    lacking = project.run("keys", "rotate", SEAL_KEY=new)
    assert (lacking.code, "is wrapped by the key" in lacking.error) == (2, True)
    for moved in (1, 0):
        rotated = project.run("keys", "rotate", SEAL_KEY=f"{new},{old}")
        assert (rotated.code, f"{moved} keys are wrapped" in rotated.err) == (0, True)
    assert project.run("runs", "show", run, SEAL_KEY=new).code == 0
    assert project.run("runs", "show", run, SEAL_KEY=old).code == 2
    spoilt = project.run("keys", "list", SEAL_KEY="c2hvcnQ=")
    assert (spoilt.code, "holds something that is not a wrapping key" in spoilt.error) == (2, True)
    assert "c2hvcnQ" not in spoilt.err


def test_doctor_says_that_the_wrapping_key_is_not_there_and_that_the_streams_are(project: Project):
    sealed(project)
    told(project)
    done = project.run("doctor", "--json", FOLDLOG_SEAL="file:gone.key")
    assert done.code == 1
    states = {check["name"]: (check["state"], check["detail"]) for check in done.document["checks"]}
    assert states["streams"][0] == "ok"
    assert states["seal"] == (
        "wrong",
        "the file gone.key of the wrapping key cannot be read: No such file or directory",
    )


def test_a_namespace_without_sealed_values_says_how_to_have_them(project: Project):
    for command in (("list",), ("rotate",), ("erase", "--user", "ada", "--yes"), ("export", "never.jsonl")):
        refused = project.run("keys", *command)
        assert (refused.code, "has no sealed values: set [seal]" in refused.error) == (2, True)
    assert not (project.place / "never.jsonl").exists()
    sealed(project)
    told(project)
    unkeyed = project.run(
        "keys", "list", "--json", FOLDLOG_SEAL=""
    )  # who has no wrapping key sees who has one
    assert [each["owner"] for each in json.loads(unkeyed.out)] == ["user:ada"]
    assert project.run("keys", "erase", "--user", "ada", "--yes", FOLDLOG_SEAL="").code == 0
