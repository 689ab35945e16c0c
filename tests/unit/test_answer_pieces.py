"""What arrives of a model's answer: each channel and each call grows by itself, in whole characters."""

from __future__ import annotations

from foldlog.runtime.driving.model_call import _Answer
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
