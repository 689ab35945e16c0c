"""Webhooks at two servers, each `foldlog serve --hooks` in a process of its own that may be killed."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import URLError
from uuid import uuid4

import pytest

from tests.cli.commands import Project, Running
from tests.cli.project import write_project
from tests.http.door import SECRETS, Headers, signed

HOOK = """
[hooks.github]
agent = "helper"
verify = "github"
secret = "secret://GITHUB"
input = "${body.text}"
"""
BODY = b'{"text": "It is broken"}'
SENDERS = 8
Start = Callable[..., Running]


@pytest.fixture(scope="module")
def with_hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("hooks")
    write_project(found)
    (found / "foldlog.toml").write_text(HOOK)
    return found


@pytest.fixture
def project(with_hooks: Path, server: str) -> Project:
    return Project(with_hooks, server, f"t{uuid4().hex[:8]}")


def serve(start: Start) -> tuple[Running, str]:
    """A server and its address."""
    process = start("serve", "project_agents:one", "--hooks", "--port", "0", GITHUB=SECRETS["GITHUB"])
    found = re.search(r"http://127\.0\.0\.1:\d+", process.until("http://127.0.0.1:"))
    assert found is not None
    return process, found[0]


def deliver(address: str, headers: Headers) -> tuple[int, Any]:
    """Send the delivery; 0 if the server died before it answered."""
    request = urllib.request.Request(f"{address}/hooks/github", BODY, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except (URLError, ConnectionError, TimeoutError):
        return 0, {}


def deliveries(addresses: list[str], headers: Headers, then: Callable[[], None] = lambda: None) -> list[Any]:
    """Send one delivery from eight senders at once, to each of the servers in turn; do the rest meanwhile."""
    with ThreadPoolExecutor(SENDERS) as senders:
        turns = [addresses[number % len(addresses)] for number in range(SENDERS)]
        answers = senders.map(lambda address: deliver(address, headers), turns)
        then()
        return list(answers)


def test_a_delivery_that_comes_eight_times_at_once_to_two_servers_starts_one_run(
    project: Project, start: Start
) -> None:
    (_, one), (_, two) = serve(start), serve(start)
    answers = deliveries([one, two], signed("github", BODY, delivery="d1"))
    assert sorted(status for status, _ in answers) == [200] * (SENDERS - 1) + [202]
    assert {answer["run_id"] for _, answer in answers} == {project.only_run()}


@pytest.mark.nightly
def test_a_server_that_is_killed_under_a_delivery_leaves_one_run_for_it(
    project: Project, start: Start
) -> None:
    lasting, address = serve(start)
    cut_off = 0
    for number in range(12):
        dying, other = serve(start)

        def kill(dying: Running = dying, after_s: float = number * 0.004) -> None:
            time.sleep(after_s)  # any moment of the request is as good as another
            dying.kill()

        headers = signed("github", BODY, delivery=f"d{number}")
        answers = deliveries([other, address], headers, kill)
        status, answer = deliver(address, headers)
        assert status == 200
        assert {each["run_id"] for code, each in answers if code} == {answer["run_id"]}
        cut_off += sum(code == 0 for code, _ in answers)
    assert cut_off
    assert lasting.process.poll() is None
    assert len(project.run("runs", "list", "--json", "--limit", "100").document) == 12
