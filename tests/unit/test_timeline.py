"""The timeline of a family: what its rows and bars say of every stored history."""

from __future__ import annotations

from pathlib import Path

import pytest
from foldlog.adapters.cli.output.timeline import timeline
from foldlog.adapters.console.timeline import TEXT_MAX, shown
from foldlog.eventlog.events import ToolsRefreshRequested, is_terminal
from foldlog.projections.timeline.bars import _gap
from foldlog.projections.timeline.fold import TimelineFold, below
from foldlog.projections.timeline.words import engine_words
from foldlog.replay import read_archive

V1 = Path(__file__).parents[1] / "histories" / "v1"
HISTORIES = sorted(V1.glob("*.jsonl"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_the_command_line_and_the_page_say_the_same_of_every_event(path: Path) -> None:
    for trace in read_archive(path.read_bytes()).traces.values():
        fold = TimelineFold()
        rows = [fold.add(event)[0] for event in trace.events]
        page = [shown(row) for row in rows]
        assert [(row.run_id, row.revision) for row in page] == [(e.run_id, e.revision) for e in trace.events]
        assert all(row.what and len(row.detail) <= TEXT_MAX for row in page)
        terminal = [row.what for row in timeline(trace.events)]
        assert terminal == [row.what for row in rows if not row.repeated]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_every_bar_of_a_run_that_is_over_has_an_end_and_no_bar_ends_before_it_began(path: Path) -> None:
    for trace in read_archive(path.read_bytes()).traces.values():
        fold = TimelineFold()
        for event in trace.events:
            fold.add(event)
        over = {event.run_id for event in trace.events if is_terminal(event)}
        assert "run" in {bar.lane for bar in fold.bars}
        assert all(bar.end is None or bar.end >= bar.start for bar in fold.bars)
        assert [bar for bar in fold.bars if bar.end is None and bar.run_id in over] == []


def test_a_worker_that_was_lost_has_a_bar_of_its_own_and_the_takeover_a_gap_and_a_row() -> None:
    (trace,) = read_archive((V1 / "takeover.jsonl").read_bytes()).traces.values()
    fold = TimelineFold()
    rows = [fold.add(event)[0] for event in trace.events]
    (lost,) = (bar for bar in fold.bars if bar.lane == "worker" and bar.state == "lost")
    (taken,) = (row for row in rows if row.what == "takeover")
    assert f" from {lost.name} (epoch 2" in taken.detail
    (last,) = (bar for bar in fold.bars if bar.lane == "worker" and bar.start == taken.at)
    before = [event.at for event in trace.events if (event.revision or 0) < (last.revision or 0)]
    assert lost.end == before[-1] < taken.at
    assert (
        last.detail
        == f"epoch 2; {lost.name} was lost, this one was there {_gap(taken.at - before[-1])} later"
    )


def test_an_attempt_of_a_call_that_failed_is_a_bar_of_its_own() -> None:
    (trace,) = read_archive((V1 / "retries.jsonl").read_bytes()).traces.values()
    fold = TimelineFold()
    rows = [fold.add(event)[0] for event in trace.events]
    failed = [row.at for row in rows if row.type == "tool_attempt_failed"]
    assert failed
    assert [bar.end for bar in fold.bars if bar.lane == "tool" and bar.state == "failed"][
        : len(failed)
    ] == failed


def test_a_child_is_shown_without_what_is_above_it() -> None:
    (trace,) = read_archive((V1 / "child.jsonl").read_bytes()).traces.values()
    child = next(event.run_id for event in trace.events if event.run_id != trace.root)
    assert below(trace.root, trace.events) == list(trace.events)
    assert {event.run_id for event in below(child, trace.events)} == {child}
    assert {row.depth for row in timeline(below(child, trace.events))} == {0}


@pytest.mark.parametrize(
    ("servers", "remove", "told"),
    [
        ([], [], "a new listing was requested"),
        (["crm"], [], "a new listing with the servers crm was requested"),
        ([], ["pay", "look"], "the removal of pay, look was requested"),
        (["crm"], ["pay"], "a new listing with the servers crm and the removal of pay was requested"),
    ],
)
def test_a_change_of_the_tools_is_told_as_what_was_asked_for(
    servers: list[str], remove: list[str], told: str
) -> None:
    asked = ToolsRefreshRequested(mcp_servers={name: {} for name in servers}, remove=remove)
    assert engine_words(asked) == ("tools", told)  # type: ignore[arg-type] # words need no more of an event
