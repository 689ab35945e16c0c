"""The table of protocols in the documents: each cell is a test against both executors, and its page says the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from foldlog.adapters.cli.protocols import NAMES

from tests.protocols import test_a2a as a2a
from tests.protocols import test_agui as agui
from tests.protocols import test_mcp_server as mcp
from tests.protocols import test_nats_agents as nats_agents
from tests.protocols import test_responses as responses

DOCS = Path(__file__).parents[2] / "docs"
COLUMNS = ("tool", "approval", "cancel", "reconnect")
MISSING = "not in the protocol"
TESTS: dict[str, tuple[Any, ...]] = {
    "a2a": (
        a2a.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        a2a.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        a2a.test_a_task_goes_on_without_its_client_is_watched_again_and_cancelled,
        a2a.test_a_task_goes_on_without_its_client_is_watched_again_and_cancelled,
    ),
    "agui": (
        agui.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        agui.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        agui.test_a_run_is_cancelled_by_its_id_and_not_by_a_page_that_closes,
        agui.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
    ),
    "mcp": (
        mcp.test_a_tool_call_with_progress_and_an_approval,
        mcp.test_a_tool_call_with_progress_and_an_approval,
        mcp.test_a_call_that_is_cancelled_cancels_its_run,
        mcp.test_a_question_outlives_the_server_and_is_answered_by_the_repeated_call,
    ),
    "nats": (
        nats_agents.test_the_client_of_synadia_uses_a_tool_answers_an_approval_comes_back_and_hears_of_a_cancel,
    )
    * len(COLUMNS),
    "responses": (
        responses.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        responses.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
        responses.test_a_run_in_the_background_goes_on_alone_until_it_is_cancelled,
        responses.test_a_conversation_with_a_tool_an_approval_and_a_reconnect,
    ),
}
"""The test of each cell; all but that of a service on the server of the log take the fixture of both executors."""


def table() -> dict[str, list[str]]:
    """Return the cells of the documents' table by protocol: the page, the client, and the four steps."""
    found = {}
    for line in (DOCS / "reference" / "protocols.md").read_text().splitlines():
        if (row := re.fullmatch(r"\| \[`(\w+)`\]\(\.\./(\S+)\) \| (.*) \|", line)) is not None:
            found[row[1]] = [row[2], *row[3].split(" | ")]
    return found


def test_the_table_has_each_protocol_with_a_client_and_an_answer_for_each_step() -> None:
    assert sorted(table()) == sorted(NAMES) == sorted(TESTS)
    for cells in table().values():
        assert len(cells) == 2 + len(COLUMNS)
        assert all(cells)


@pytest.mark.parametrize("protocol", NAMES)
def test_each_step_is_tested_against_both_executors(protocol: str) -> None:
    for each in TESTS[protocol]:
        marks = [mark for mark in getattr(each, "pytestmark", []) if mark.name == "parametrize"]
        executors = [mark.args[1] for mark in marks if mark.args[0] == "executor"]
        assert executors == [["local", "durable"]] or "counter" in each.__annotations__


@pytest.mark.parametrize("protocol", NAMES)
def test_what_a_protocol_does_not_have_is_in_its_page(protocol: str) -> None:
    page, _, *cells = table()[protocol]
    text = (DOCS / page).read_text()
    assert "## What it cannot carry" in text
    carried = text.split("## What it cannot carry")[1]
    for column, cell in zip(COLUMNS, cells, strict=True):
        if cell.startswith(MISSING):
            assert column in carried.lower(), (protocol, column)
