"""Spans are a fold over stored events: complete, the same whenever they are made, and in step with the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest
from foldlog.adapters.telemetry import Span, SpanFold
from foldlog.adapters.telemetry.spans import feed_all, span_id_of
from foldlog.eventlog.commits import as_read
from foldlog.eventlog.events import (
    Claimed,
    Error,
    Event,
    ForkLink,
    ModelFailed,
    ModelRequested,
    Status,
    Submitted,
    ToolCall,
    ToolResult,
    Trigger,
)
from foldlog.eventlog.names import trace_id_of
from foldlog.replay import trace_of
from hypothesis import given
from hypothesis import strategies as st

from .traces import LEGAL, Family, canonical_trace, final_step, step_started, usage

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def events_of(family: Family) -> list[Event]:
    return [event for commit in trace_of(family.stored).commits for event in as_read(commit)]


def spans_of(family: Family, *, content: bool = False) -> list[Span]:
    return feed_all(SpanFold(content=content), events_of(family))


def named(spans: Iterable[Span], prefix: str) -> list[Span]:
    return [span for span in spans if span.name.startswith(prefix)]


def submitted(**fields: object) -> Submitted:
    given = {"kind": "agent", "config": {}, "config_digest": "c", "input": "ask", "input_digest": "i"}
    return msgspec.convert({"type": "submitted", **given, **fields}, Submitted)


@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_every_run_that_ends_has_one_span_and_nothing_stays_open(build: Callable[[], Family]):
    family, fold = build(), SpanFold()
    events = events_of(family)
    spans = feed_all(fold, events)
    runs = {e.run_id for e in events if isinstance(e, Submitted)}
    over = {
        e.run_id for e in events if isinstance(e, Status) and e.status in {"completed", "error", "cancelled"}
    }
    assert sorted(s.span_id for s in named(spans, "invoke_")) == sorted(map(span_id_of, over))
    assert set(fold.runs) == runs - over
    assert len({span.span_id for span in spans}) == len(spans)
    assert all(span.ended_at >= span.started_at for span in spans)
    ids = {span.span_id for span in spans}
    assert all(not s.parent_id or s.parent_id in ids for s in spans if not fold.runs)


@given(data=st.data())
@pytest.mark.parametrize("build", LEGAL.values(), ids=LEGAL)
def test_a_fold_that_is_stored_anywhere_goes_on_to_the_same_spans(
    build: Callable[[], Family], data: st.DataObject
):
    events = events_of(build())
    cut = data.draw(st.integers(0, len(events)))
    first = SpanFold()
    spans = feed_all(first, events[:cut])
    second = msgspec.json.decode(msgspec.json.encode(first), type=SpanFold)
    assert spans + feed_all(second, events[cut:]) == feed_all(SpanFold(), events)


def test_a_model_call_has_its_model_its_tokens_and_the_digest_of_its_request():
    family = Family()
    family.commit(submitted(), Status(status="starting"))
    family.claim(1, *step_started(1), ModelRequested(attempt=1, digest="d", model="openai:gpt-5", step=1))
    family.commit(ModelFailed(attempt=1, error_type="rate_limit", error="slow down"))
    family.commit(ModelRequested(attempt=2, digest="d", model="openai:gpt-5", step=1))
    family.commit(usage(1), *final_step(1)[1:], Status(status="completed"))
    failed, replied = named(spans_of(family), "chat gpt-5")
    assert (failed.error, failed.attributes["error.type"], failed.kind) == (
        "rate_limit",
        "rate_limit",
        "client",
    )
    assert replied.error == ""
    assert replied.attributes["gen_ai.provider.name"] == "openai"
    assert replied.attributes["gen_ai.usage.input_tokens"] == 7
    assert (replied.attributes["foldlog.attempt"], replied.attributes["foldlog.request.digest"]) == (2, "d")


def test_a_takeover_is_an_event_of_the_run_that_names_both_workers():
    (run,) = named(spans_of(canonical_trace(takeover=True)), "invoke_agent")
    (taken,) = [note for note in run.notes if note.name == "foldlog.takeover"]
    assert (taken.attributes["from"], taken.attributes["epoch"]) == ("worker-a-1", 2)


def test_a_child_run_is_below_the_call_that_started_it_and_a_node_below_its_run():
    family = Family()
    family.commit(submitted())
    family.claim(1, *step_started(1), ToolCall(step=1, tool_call_id="c", tool_name="helper"))
    parents = {"below-call": {"run": "root-a", "tool_call_id": "c"}, "below-run": {"run": "root-a"}}
    for run, parent in parents.items():
        family.commit(submitted(parent=parent), run=run, path="agent/helper")
        family.commit(Status(status="completed"), run=run, path="agent/helper")
    spans = named(spans_of(family), "invoke_agent helper")
    assert [span.parent_id for span in spans] == [span_id_of("root-a", "c"), span_id_of("root-a")]
    assert {span.trace_id for span in spans} == {trace_id_of("root-a")}


def test_a_traceparent_is_continued_and_an_invalid_one_is_not():
    family = Family()
    family.commit(
        submitted(trigger={"kind": "api", "traceparent": TRACEPARENT, "request_id": "r-1"}),
        Status(status="starting"),
    )
    family.commit(Status(status="completed"))
    (span,) = spans_of(family)
    assert (span.trace_id, span.parent_id, span.remote) == (TRACEPARENT[3:35], TRACEPARENT[36:52], True)
    assert span.attributes["foldlog.request.id"] == "r-1"
    family = Family()
    family.commit(submitted(trigger=msgspec.to_builtins(Trigger(kind="api", traceparent="00-nonsense"))))
    family.commit(Status(status="completed"))
    (span,) = spans_of(family)
    assert (span.trace_id, span.parent_id) == (trace_id_of("root-a"), "")


def test_a_fork_is_a_trace_of_its_own_with_a_link_to_its_origin():
    family = Family()
    link = ForkLink(run="first", root="first", revision=7, digest="d", shared=3)
    family.commit(submitted(fork=msgspec.to_builtins(link)))
    family.commit(Status(status="completed"))
    (span,) = spans_of(family)
    (linked,) = span.links
    assert span.trace_id == trace_id_of("root-a")
    assert (linked.trace_id, linked.span_id) == (trace_id_of("first"), span_id_of("first"))
    assert linked.attributes == {"foldlog.fork.revision": 7}


def test_what_is_open_when_a_run_fails_ends_with_it_and_the_run_has_the_error():
    family = Family()
    family.commit(submitted())
    family.claim(1, *step_started(1), ToolCall(step=1, tool_call_id="c", tool_name="search"))
    family.commit(Error(error="no key", error_type="auth"), Status(status="error"))
    *calls, run = spans_of(family)
    assert ("execute_tool search", "error") in [(call.name, call.error) for call in calls]
    assert (run.error, run.attributes["foldlog.status"]) == ("auth", "error")


def test_texts_are_in_spans_only_if_asked_for():
    def texts(*, content: bool) -> list[str]:
        found = spans_of(canonical_trace(), content=content)
        return [
            value
            for span in found
            for name, value in span.attributes.items()
            if name.endswith((".messages", ".arguments", ".result")) and isinstance(value, str)
        ]

    assert texts(content=False) == []
    assert any("Final" in text for text in texts(content=True))


def test_a_run_whose_submission_was_not_seen_has_no_spans():
    events = [e for e in events_of(canonical_trace()) if not isinstance(e, Submitted)]
    assert feed_all(SpanFold(), events) == []
    assert any(isinstance(e, Claimed | ToolResult) for e in events)
