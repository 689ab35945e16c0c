"""The pieces of a model's answer: each channel and each call grows separately, in whole characters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from foldlog.eventlog.ports import DraftPiece
from foldlog.runtime.core.effects import CallModel
from foldlog.runtime.driving.model_call import _Answer, _take_all
from foldlog.runtime.ports.models import CallDelta, Delta, ReasoningDelta, TextDelta
from hypothesis import given
from hypothesis import strategies as st

WRITTEN = "a😀bc\U0001f9edd"


def halves(text: str) -> list[str]:
    """A text as servers cut it that count in UTF-16: maybe within a character."""
    data = text.encode("utf-16-le")
    return [data[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(data), 2)]


def delta_of(channel: str, index: int, text: str) -> Delta:
    if channel == "text":
        return TextDelta(text)
    if channel == "reasoning":
        return ReasoningDelta(text)
    return CallDelta(index=index, id=f"c{index}", name="", arguments=text)


@given(st.data())
def test_each_channel_and_each_call_counts_its_own_pieces_and_completes_its_own_characters(
    data: st.DataObject,
) -> None:
    places = [("text", 0), ("reasoning", 0), ("tool_calls", 0), ("tool_calls", 1)]
    left = {place: halves(WRITTEN) for place in places}
    shown = dict.fromkeys(places, "")
    answer = _Answer()
    while any(left.values()):
        channel, index = data.draw(st.sampled_from([place for place in places if left[place]]))
        count = data.draw(st.integers(1, 3))
        taken, left[channel, index] = left[channel, index][:count], left[channel, index][count:]
        piece = answer.add(delta_of(channel, index, "".join(taken)))
        if piece is None:
            continue
        assert piece[:2] == (channel, index)
        assert answer.advance(piece[0], piece[1], piece[2]) == len(shown[channel, index])
        shown[channel, index] += piece[2]
    assert shown == dict.fromkeys(places, WRITTEN)
    assert [call.arguments for call in answer.calls.values()] == [WRITTEN] * 2
    assert ("".join(answer.text), "".join(answer.reasoning)) == (WRITTEN, WRITTEN)


@pytest.mark.parametrize(("phase", "shown"), [("", ["a", "b"]), ("summary", []), ("planner", [])])
async def test_only_the_answer_to_a_step_is_shown_while_it_comes(phase: str, shown: list[str]) -> None:
    published: list[str] = []

    async def publish(_root: str, piece: DraftPiece) -> None:
        published.append(piece.text)

    async def deltas() -> AsyncIterator[Delta]:
        for text in ("a", "b"):
            yield TextDelta(text)

    driver: Any = SimpleNamespace(
        state=SimpleNamespace(run="r", root="r"),
        epoch=1,
        clock=SimpleNamespace(now=lambda: 0.0),
        host=SimpleNamespace(log=SimpleNamespace(drafts=SimpleNamespace(publish=publish))),
    )
    patience: Any = SimpleNamespace(hears=lambda *, answer: not answer)
    answer = _Answer()
    effect = CallModel(step=1, attempt=1, phase=phase)
    await _take_all(driver, effect, deltas(), answer, cast("Any", None), patience)
    assert published == shown
    assert answer.text == ["a", "b"]
