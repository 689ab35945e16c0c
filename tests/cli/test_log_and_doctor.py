"""`foldlog log` and `foldlog doctor`, on a server of a project's own and on others; repair (W27)."""

from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from foldlog.eventlog.jetstream.layout import Layout
from foldlog.eventlog.names import shard_in

from tests.cli.commands import Project, Running
from tests.cli.project import write_project

WITHOUT_BOTO3 = """
import sys
sys.modules["boto3"] = None  # as if it were not installed
sys.argv = ["foldlog", "doctor", "--json"]
from foldlog.adapters.cli import main
main()
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Project]:
    """A project with a server of its own, which is ended in the end."""
    write_project(tmp_path)
    project = Project(tmp_path, None)
    yield project
    project.run("log", "down")


def test_the_projects_own_server_goes_up_and_down(own: Project) -> None:
    assert own.run("log", "status").code == 1
    assert own.run("log", "status", "--json").document["running"] is False
    up = own.run("log", "up", "--json")
    assert (up.code, up.document["running"], up.document["sync"]) == (0, True, "always")
    assert "token" not in up.out
    assert own.run("log", "status", "--json").document == up.document
    assert "sync always" in own.run("log", "status").out
    assert own.run("log", "down", "--json").document["ended"] is True
    assert own.run("log", "down", "--json").document["ended"] is False
    assert own.run("log", "status").code == 1


def test_a_command_without_a_server_starts_the_projects_own_and_finds_its_runs_again(own: Project) -> None:
    assert own.run("run", "project_agents:helper", "question").code == 0
    run = own.only_run()
    assert own.run("log", "down").code == 0
    assert own.run("runs", "show", run, "--json").document["output"] == "Final answer"


def test_a_wrong_setting_of_the_server_is_told_in_one_line(own: Project) -> None:
    done = own.run("log", "up", FOLDLOG_SYNC="sometimes")
    assert done.code == 2
    assert "FOLDLOG_SYNC is 'sometimes'" in done.error


def test_a_weaker_sync_is_told_with_what_it_may_lose(own: Project) -> None:
    assert "power failure" in own.run("log", "up", FOLDLOG_SYNC="default").err
    (sync,) = [c for c in own.run("doctor", "--json").document["checks"] if c["name"] == "sync"]
    assert sync["state"] == "unknown"
    assert "power failure" in sync["detail"]


def test_doctor_finds_a_healthy_project_healthy(own: Project) -> None:
    own.run("run", "project_agents:helper", "question")
    done = own.run("doctor", "--json", OPENAI_API_KEY="made-up")
    assert done.code == 0
    assert done.document["healthy"] is True
    assert {check["name"]: check["state"] for check in done.document["checks"]} == {
        "python": "ok",
        "packages": "ok",
        "keys": "ok",
        "vendors": "ok",
        "nats-server": "ok",
        "server": "ok",
        "JetStream": "ok",
        "sync": "ok",
        "streams": "ok",
        "losses": "ok",
        "disk": "ok",
        "worker": "ok",
    }
    assert "made-up" not in done.out


def test_doctor_says_which_vendors_are_installed_and_have_a_key(alone: Project) -> None:
    alone.environ |= {"ANTHROPIC_API_KEY": "made-up", "GOOGLE_API_KEY": ""}
    checks = alone.python(WITHOUT_BOTO3).document["checks"]
    (told,) = [check["detail"] for check in checks if check["name"] == "vendors"]
    groups = dict(group.split(": ") for group in told.split("; "))
    assert "anthropic" in groups["can be called"].split(", ")
    assert "google" in groups["no key"].split(", ")
    assert "bedrock" in groups["not installed"].split(", ")
    assert "made-up" not in told


def test_doctor_promises_no_call_of_a_vendor_whose_sdk_looks_for_the_key(alone: Project) -> None:
    checks = alone.run("doctor", "--json").document["checks"]
    (told,) = [check["detail"] for check in checks if check["name"] == "vendors"]
    assert dict(group.split(": ") for group in told.split("; "))["the SDK looks for the key"] == "bedrock"


def test_doctor_names_a_key_that_a_configured_provider_needs(alone: Project, tmp_path: Path) -> None:
    config = tmp_path / "foldlog.toml"
    config.write_text(
        '[providers.mine]\nbase_url = "https://models.example.com/v1"\napi_key_env = "MY_KEY"\n'
    )
    done = alone.run("doctor", "--json", FOLDLOG_CONFIG=str(config))
    assert done.code == 1
    (provider,) = [check for check in done.document["checks"] if check["name"] == "providers"]
    assert provider["state"] == "wrong"
    assert "MY_KEY" in provider["detail"]


async def test_doctor_finds_a_stream_that_drops_events_or_is_not_compressed_as_it_should_be(
    project: Project,
) -> None:
    project.run("run", "project_agents:helper", "question")
    connection = await nats.connect(project.environ["NATS_URL"])
    jetstream = connection.jetstream()
    name = Layout(project.environ["FOLDLOG_NAMESPACE"]).shard(1)
    config = (await jetstream.stream_info(name)).config
    config.max_msgs = 10
    await jetstream.update_stream(config)
    await connection.close()
    done = project.run("doctor", FOLDLOG_COMPRESSION="s2")
    assert done.code == 1
    assert f"the stream {name} drops events: max_msgs is 10" in done.out
    assert f"the stream {name} has compression 'none', not 's2'" in done.out


async def test_a_run_that_is_gone_as_a_whole_is_named_by_verify_doctor_and_monitor(project: Project) -> None:
    project.run("run", "project_agents:helper", "question")
    run = project.only_run()
    assert project.run("events", "verify", "--all", "--json").document["whole"] is True
    connection = await nats.connect(project.environ["NATS_URL"])
    layout, shard = Layout(project.environ["FOLDLOG_NAMESPACE"]), shard_in(run) or 0
    stream = layout.shard(shard)
    await connection.jetstream().purge_stream(stream, subject=f"{layout.prefix(shard)}.run.>")
    await connection.close()
    checked = project.run("events", "verify", "--all", "--json")
    assert (checked.code, checked.document["whole"], checked.document["runs"]) == (1, False, 0)
    assert {loss["stream"] for loss in checked.document["losses"]} == {stream}
    assert [missing["run"] for missing in checked.document["missing_runs"]] == [run]
    for command in (("events", "verify", "--all"), ("doctor",), ("monitor", "--once")):
        told = project.run(*command)
        assert told.code == 1
        assert f"shard {shard} (stream {stream})" in told.out
        assert f"{run} (in seal 1 of shard {shard})" in " ".join(told.out.split())
    accepted = project.run("events", "verify", "--all", "--accept-loss", "--json")
    assert (accepted.code, accepted.document["losses"], accepted.document["whole"]) == (0, [], True)
    assert {loss["stream"] for loss in accepted.document["accepted_losses"]} == {stream}
    for command in (("doctor",), ("monitor", "--once")):
        assert project.run(*command).code == 0


async def test_doctor_wakes_a_run_whose_wake_up_was_lost(
    project: Project, start: Callable[..., Running]
) -> None:
    worker = start("worker", "project_agents:registry", "--name", "w1", "--lease-s", "1")
    running = start("run", "project_agents:hanging", "question", "--executor", "durable")
    running.until("for ever")
    worker.kill()
    run = project.only_run()
    connection = await nats.connect(project.environ["NATS_URL"])
    layout, shard = Layout(project.environ["FOLDLOG_NAMESPACE"]), shard_in(run) or 0
    await connection.jetstream().purge_stream(layout.shard(shard), subject=f"{layout.prefix(shard)}.wake.>")
    await connection.close()
    while not (woken := project.run("doctor", "--repair", "--json").document["woken"]):
        pass  # it has to be idle for three leases first
    assert woken == [run]
    start("worker", "project_agents:registry", "--name", "w2").until("claimed, epoch 2")
