"""A stranger removes messages from the server behind everybody's back: what the commands say of it."""

import asyncio

from foldlog.eventlog.conformance.suite import everything
from foldlog.eventlog.jetstream import JetStreamLog
from foldlog.eventlog.names import run_subject, shard_in

from tests.cli.commands import Project


def started(project: Project, session: str) -> str:
    done = project.run(
        *("run", "project_agents:helper", "hello", "--json"),
        *("--session", session, "--idempotency-key", session),
    )
    return str(done.lines[0]["run_id"])


async def strike(project: Project, purged: str, damaged: str) -> None:
    """Do what `nats stream purge --subject` does to one run, and `nats stream rmm` to a message of the other."""
    assert project.server is not None
    async with JetStreamLog.open(project.server, namespace=project.environ["FOLDLOG_NAMESPACE"]) as log:
        subject, other = (run_subject(shard_in(run) or 0, run, run) for run in (purged, damaged))
        streams = [log._layout.shard(each.shard) for each in (subject, other)]
        everything_of_it = {"filter": log._layout.subject(subject).decode()}
        await log._wire.api(f"STREAM.PURGE.{streams[0]}", everything_of_it, dict)
        third = (await everything(log.events.read(other)))[2].position
        await log._wire.api(f"STREAM.MSG.DELETE.{streams[1]}", {"seq": third}, dict)


def test_what_a_stranger_removed_is_named_and_erased_and_both_sessions_go_on(project: Project) -> None:
    purged, damaged = started(project, "one"), started(project, "two")
    asyncio.run(strike(project, purged, damaged))
    for command in (("doctor",), ("events", "verify", "--all")):
        told = project.run(*command)
        assert told.code == 1
        assert f"runs completely missing: {purged} (in " in told.out
        assert f"runs that lack commits: {damaged} (from revision " in told.out
    assert f"foldlog runs delete {damaged}" in project.run("doctor").out
    shown = project.run("runs", "show", damaged)
    assert (shown.code, f"the log of run {damaged} is damaged at revision" in shown.error) == (1, True)
    hello = ("run", "project_agents:helper", "hello", "--quiet")
    again = project.run(*hello, "--session", "one", "--idempotency-key", "one")
    assert (again.code, f"run {purged}, to which 'one' belongs, was purged" in again.error) == (1, True)
    again = project.run(*hello, "--session", "two", "--idempotency-key", "two")
    assert (again.code, f"the log of run {damaged} is damaged" in again.error) == (1, True)
    for session, gone in (("one", purged), ("two", damaged)):
        assert project.run(*hello, "--session", session).code == 0
        assert gone not in project.run("sessions", "show", session).out
    for command in (("runs", "list"), ("runs", "list", "--session", "one"), ("approvals", "list")):
        told = project.run(*command)
        assert told.code == 1
        assert f"damaged: the log of run {damaged} is damaged at revision" in told.err
        assert f"`foldlog runs delete {damaged}`" in told.err
    rows = {row["run_id"]: row for row in project.run("runs", "list", "--json").document}
    assert (rows[damaged]["damage"]["revision"], len(rows)) == (rows[damaged]["revision"] + 1, 3)
    refused = project.run("runs", "delete", "--session", "two")
    assert (refused.code, f"the log of run {damaged} is damaged" in refused.error) == (1, True)
    deleted = project.run("runs", "delete", damaged, "--json").document
    assert list(deleted["erased"][0]["damaged"]) == [damaged]
    assert [row["buried"] for row in project.run("runs", "list", "--json").document] == ["", "", "deleted"]
    shown = project.run("runs", "show", purged)
    assert (shown.code, "`foldlog events verify --all` names those" in shown.error) == (1, True)
    verified = project.run("events", "verify", "--all", "--accept-loss")
    assert "runs that lack commits" not in verified.out
    assert (verified.code, project.run("doctor").code) == (0, 0)
